"""Whether a worker is alive, and whether it works: what ``/healthz`` and ``/readyz`` say."""

import asyncio
from collections.abc import Callable
from time import monotonic

import msgspec

LATE = 30.0
"""Seconds without a turn of the loop, or of the heartbeat's thread, after which a worker is not alive."""
TURN = 1.0
"""Seconds between two turns."""


class Health(msgspec.Struct, frozen=True):
    """``alive``: restarting it would help nobody. ``ready``: it takes jobs. And what is wrong, in words."""

    alive: bool
    ready: bool
    problems: tuple[str, ...] = ()


class Vitals:
    """The signs of life of one worker. Written by its loop, asked from any thread."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.watched = False
        """Whether anybody is going to ask: only then does the loop say that it turns."""
        self.clock = clock
        self.phase = "starting"
        self.lag = 0.0
        """How much later than wanted the loop last turned, in seconds."""
        self.heartbeat_at: Callable[[], float | None] = lambda: None
        """When the heartbeat's thread last turned; None if it has not begun."""
        self.store_away: Callable[[], bool] = lambda: False
        self.turned: Callable[[], None] = lambda: None
        """Called at every turn, on the loop."""
        self._loop_at: float | None = None
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """On the worker's loop: say from now on that it turns."""
        if self.watched:
            self._turn(asyncio.get_running_loop(), self.clock())

    def end(self) -> None:
        self.phase = "ended"
        if self._next is not None:
            self._next.cancel()

    def _turn(self, loop: asyncio.AbstractEventLoop, wanted: float) -> None:
        self._loop_at = now = self.clock()
        self.lag = max(0.0, now - wanted)
        self.turned()
        self._next = loop.call_later(TURN, self._turn, loop, now + TURN)

    @property
    def loop_lag(self) -> float:
        """Seconds that the loop is late, also while it is blocked."""
        late = 0.0 if self._loop_at is None else self.clock() - self._loop_at - TURN
        return max(self.lag, late)

    def health(self) -> Health:
        """How it is now."""
        now, problems = self.clock(), list[str]()
        if self._loop_at is not None and now - self._loop_at > LATE:
            problems.append(f"the loop has not turned for {now - self._loop_at:.0f} s: a handler blocks it")
        beat = self.heartbeat_at()
        if beat is not None and now - beat > LATE:
            problems.append(f"the heartbeat has not turned for {now - beat:.0f} s")
        alive = not problems and self.phase != "ended"
        if self.phase != "working":
            problems.append(f"the worker is {self.phase}")
        if self.store_away():
            problems.append("the store is away")
        return Health(alive, not problems, tuple(problems))
