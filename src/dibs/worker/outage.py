"""When the store is away: try again for ever, ever more rarely, and say so once."""

import asyncio
import threading
import time
from contextlib import suppress
from random import uniform

from dibs.errors import StoreUnavailable
from dibs.worker.log import log

FIRST, LONGEST = 0.1, 10.0


class Backoff:
    """How long to wait before the next try: twice as long each time, with jitter, from 0.1 to 10 seconds."""

    def __init__(self, first: float = FIRST, longest: float = LONGEST) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def next(self) -> float:
        """Seconds to wait now."""
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause * uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked."""
        self._next = self._first

    async def pause(self, until: asyncio.Event) -> None:
        """Wait, but no longer than until the event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.next()):
                await until.wait()


class Weather:
    """Whether the store can be reached, as all loops and threads of a worker see it.

    One line when it goes, one when it is back: when a part that had failed gets through. The answer to a call that
    another part made before the outage says nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._since = 0.0
        self._failing: set[str] = set()

    @property
    def down(self) -> bool:
        return bool(self._failing)

    def failed(self, part: str, problem: BaseException) -> None:
        """A call went wrong. What is not an outage is a fault of ours, and logged as one."""
        with self._lock:
            was_down = self.down
            self._failing.add(part)
            if was_down:
                return
            self._since = time.monotonic()
        if isinstance(problem, StoreUnavailable):
            log.warning("%s: the store is away, trying again until it is back: %s", self._name, problem)
        else:
            log.error("%s: a call of the store failed, trying again", self._name, exc_info=problem)

    def fine(self, part: str) -> None:
        """A call went well."""
        if part not in self._failing:
            return
        with self._lock:
            was_down = part in self._failing
            self._failing.clear()
        if was_down:
            log.warning("%s: the store is back after %.1f s", self._name, time.monotonic() - self._since)
