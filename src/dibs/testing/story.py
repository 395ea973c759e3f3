"""Two stores, one story: what :mod:`dibs.testing.machine` tells, it tells to a lab's store and to the model."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from dibs.errors import Refused
from dibs.job import Claim, Filter, Job, NewFlow, NewJob
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import START, FakeClock
from dibs.testing.draws import KINDS, MICROSECOND, MOVES
from dibs.testing.labs.base import Lab

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]

HANDLES = 3
REMEMBERED = 40


class Story(RuleBasedStateMachine):
    """Both stores, their clock, what was asked of them so far, and that they answer the same."""

    factory: ClassVar[Callable[[], Lab]]
    runner: ClassVar[asyncio.Runner]
    over: ClassVar[AsyncExitStack]

    @classmethod
    @contextmanager
    def on(cls, factory: Callable[[], Lab]) -> Iterator[type[Self]]:
        """Stories about one kind of lab. They have one loop, so that a lab may keep connections for the next story."""
        over = AsyncExitStack()
        with asyncio.Runner() as runner:
            told = {"factory": staticmethod(factory), "runner": runner, "over": over}
            try:
                yield type(cls.__name__, (cls,), told)
            finally:
                runner.run(over.aclose())

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(START)
        self.model: Store = MemoryStore(clock=self.clock)
        self.lab = type(self).factory()
        self.lab.over = self.over
        self.handles: list[Store] = []
        self.calls = self.steps = 0
        self.made: list[NewJob] = []
        self.started: list[NewFlow] = []
        self.is_limited = False
        self.claims: list[Claim] = []
        self.jobs: tuple[Job, ...] = ()
        self.run(self._start())

    async def _start(self) -> None:
        await self.lab.start()
        await self.lab.set_clock(self.clock.now)
        self.handles = [await self.lab.open() for _ in range(HANDLES)]

    def teardown(self) -> None:
        try:
            if self.handles:
                self.compare_tables()
        finally:
            self.run(self.lab.stop())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        # Not runner.run(): it sets and resets a handler for Ctrl-C, which takes longer than most calls.
        return self.runner.get_loop().run_until_complete(call)

    def both(self, verb: str, *args: Any, **options: Any) -> Any:
        """Ask the model and one of the handles the same thing."""
        self.calls += 1
        handle = self.handles[self.calls % HANDLES]
        expected = self.run(_answer(getattr(self.model, verb)(*args, **options)))
        answer = self.run(_answer(getattr(handle, verb)(*args, **options)))
        assert answer == expected, f"{verb}: the model answers {expected}, the store {answer}"
        return expected

    def tell(self, verb: str, *args: Any, **options: Any) -> Any:
        """The same, as a step of the story that a failure prints."""
        said = [*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())]
        note(f"    {verb}({', '.join(said)})")
        return self.both(verb, *args, **options)

    @invariant()
    def compare(self) -> None:
        """After every step both show the same jobs and flows; after every fourth the same tables, too."""
        self.steps += 1
        self.jobs = self.both("find", Filter(), limit=1_000).jobs
        if self.started:
            self.both("flows", limit=1_000)
        if self.steps % 4 == 0:
            self.compare_tables()

    def compare_tables(self) -> None:
        self.both("counts")
        self.both("workers")
        self.both("kept", KINDS)
        if self.is_limited:
            self.both("limits")

    # --- time ---------------------------------------------------------------------------------

    def move(self, now: datetime) -> None:
        note(f"    the clock shows {now}")
        self.clock.now = now
        self.run(self.lab.set_clock(now))

    def advance(self, draw: Draw) -> None:
        self.move(self.clock.now + draw(st.sampled_from(MOVES)))

    def advance_to_an_instant_that_matters(self, draw: Draw) -> None:
        """The next at which a lease ends, a job is due or expires, a key is free or a rate lets one start; or just
        before it."""
        unfinished = [job for job in self.jobs if job.finished_at is None]
        moments = [job.locked_until or job.run_at for job in unfinished]
        if draw(st.booleans()):
            moments += [job.expires_at for job in unfinished if job.expires_at is not None]
            moments += [job.unique_until for job in self.jobs if job.unique_until is not None]
            if self.is_limited:
                moments += [one.next_start for one in self.both("limits") if one.next_start is not None]
        coming = [moment for moment in moments if moment > self.clock.now + MICROSECOND]
        if coming:
            self.move(min(coming) - draw(st.sampled_from((0, 0, 1))) * MICROSECOND)


async def _answer(call: Coroutine[Any, Any, Any]) -> Any:
    """What the store says, or the words in which it refuses."""
    try:
        return await call
    except Refused as problem:
        return str(problem)


def nth(remembered: Sequence[T], n: int) -> T:
    """One of the latest, counted from the newest; numbers too large go round."""
    recent = remembered[-REMEMBERED:]
    return recent[-1 - n % len(recent)]


def make_id(shelf: int, count: int) -> UUID:
    """A UUIDv7 like any other, the same in every run. A higher shelf sorts behind a lower one."""
    millis = int(START.timestamp() * 1_000)
    return UUID(int=millis << 80 | 7 << 76 | 0b10 << 62 | shelf << 40 | count)
