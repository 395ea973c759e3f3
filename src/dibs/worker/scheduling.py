"""Schedules: any worker enqueues the jobs of their ticks, none leads.

The job of a tick has an id of its own, so the store has it once, whoever is first. When a tick is due is a matter of
the store's clock, which comes with every look: what a worker's own clock shows does not count.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from random import uniform
from uuid import UUID

from dibs import limits
from dibs.errors import Refused
from dibs.job import NewJob
from dibs.schedule import META, Schedule, due, job_for, rhythm, ticks
from dibs.store import CHUNK, Store
from dibs.timetable import HANDLED, PAUSED, STORED, TELL_EVERY, Handled, Reader, Timetable, move_on, tell
from dibs.worker.log import log
from dibs.worker.outage import Backoff, Weather

LOOK_EVERY = 5.0
"""Seconds after which a worker looks again whether schedules were added, changed or paused."""
SPREAD = 0.25
"""Seconds over which the workers come to a tick, so that most of them find it done."""
PART = "schedules"
AHEAD = timedelta(hours=1)
"""A schedule that got further than this has been handled by a clock that was wrong."""

_Next = tuple[Schedule, datetime, datetime | None]


class Scheduling:
    """Looks at every schedule that is stored or declared by this worker's code, and enqueues what is due."""

    def __init__(self, worker: str, store: Store, declared: Mapping[str, Schedule], weather: Weather) -> None:
        self._worker = worker
        self._store = store
        self._declared = declared
        self._weather = weather
        self._reader = Reader()
        self._next: dict[str, _Next] = {}
        self._told: datetime | None = None
        self._complained: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """For ever."""
        backoff, never = Backoff(), asyncio.Event()
        await asyncio.sleep(uniform(0.0, SPREAD))
        while True:
            try:
                left = await self.look()
            except Exception as problem:
                self._weather.failed(PART, problem)
                await backoff.pause(never)
                continue
            self._weather.fine(PART)
            backoff.reset()
            await asyncio.sleep(min(left + uniform(0.0, SPREAD), LOOK_EVERY * uniform(0.75, 1.25)))

    async def look(self) -> float:
        """Enqueue what is due; answers how many seconds there are until the next tick.

        First the jobs, then how far that was: whoever dies in between leaves it to the others, who enqueue the same
        jobs again, to no effect.
        """
        found = await self._store.kept((STORED, PAUSED, HANDLED))
        table = self._reader.timetable(found, self._declared)
        for name, problem in table.problems.items():
            self._complain(name, f"is left out: {problem}")
        await self._tell(table.now)
        ripe = list(self._ripe(table))
        ticks_of = {one.name: due(one, _last(one, before, table.now), table.now) for one, before in ripe}
        there = await self._enqueue(job_for(one, tick) for one, _ in ripe for tick in ticks_of[one.name])
        done = {
            one.name: Handled(table.now, rhythm(one), _latest(one, before, ticks_of[one.name], there))
            for one, before in ripe
        }
        if done:
            await move_on(self._store, done, table.now)
        return self._until_next(table, done)

    def _ripe(self, table: Timetable) -> Iterator[tuple[Schedule, Handled | None]]:
        """The schedules that nobody has looked at before, or that had a tick since somebody did."""
        for name, schedule in table.schedules.items():
            last = table.handled.get(name)
            if last is None or last.rhythm != rhythm(schedule):
                yield schedule, last
                continue
            if last.until > table.now + AHEAD:
                ahead = f"was handled up to {last.until:%Y-%m-%d %H:%M} UTC, which lies ahead of the store's clock"
                self._complain(name, f"{ahead}: dibs schedules resume {name} lets it begin again")
            tick = self._after(schedule, last.until)
            if tick is not None and tick <= table.now:
                yield schedule, last

    def _after(self, schedule: Schedule, moment: datetime) -> datetime | None:
        """The next tick; remembered, since it is asked for every few seconds and changes with the tick."""
        known = self._next.get(schedule.name)
        if known is None or known[1] != moment or known[0] != schedule:
            found = ticks(schedule, moment, limits.TIMES[1], 1)
            known = self._next[schedule.name] = (schedule, moment, found[0] if found else None)
        return known[2]

    def _until_next(self, table: Timetable, done: Mapping[str, Handled]) -> float:
        """Also of those that are paused: their ticks are passed over when they come."""
        self._next = {name: self._next[name] for name in self._next.keys() & table.schedules.keys()}
        coming = (
            self._after(schedule, done[name].until if name in done else table.handled[name].until)
            for name, schedule in table.schedules.items()
        )
        left = [(tick - table.now).total_seconds() for tick in coming if tick is not None]
        return max(0.0, min(left, default=LOOK_EVERY))

    async def _enqueue(self, jobs: Iterator[NewJob]) -> set[UUID]:
        """Store them; answers which of them are there. One that must not overlap may have been left out."""
        there: set[UUID] = set()
        while chunk := list(islice(jobs, CHUNK)):
            try:
                there.update(sent.id for sent in await self._store.enqueue(chunk))
            except Refused:
                for job in chunk:
                    there.update(await self._enqueue_one(job))
        return there

    async def _enqueue_one(self, job: NewJob) -> list[UUID]:
        """What this store does not take, because its limits are other ones, must not stop the rest."""
        try:
            return [sent.id for sent in await self._store.enqueue([job])]
        except Refused as problem:
            self._complain(job.meta[META]["name"], f"makes a job that is refused: {problem}")
            return []

    async def _tell(self, now: datetime) -> None:
        if self._told is None or abs(now - self._told) >= TELL_EVERY:
            await tell(self._store, self._declared.values())
            self._told = now

    def _complain(self, name: str, problem: str) -> None:
        """Once."""
        if (name, problem) not in self._complained:
            self._complained.add((name, problem))
            log.warning("%s: schedule %s %s", self._worker, name, problem)


def _last(schedule: Schedule, before: Handled | None, now: datetime) -> datetime | None:
    """Up to when its ticks have been handled. One that nobody has looked at begins with its next tick.

    If what was handled were other ticks, workers with two versions of the code may be at work side by side: then those
    that are on time are due for both.
    """
    if before is None:
        return now
    return before.until if before.rhythm == rhythm(schedule) else None


def _latest(
    schedule: Schedule, before: Handled | None, found: Sequence[datetime], there: Collection[UUID]
) -> datetime | None:
    """The last tick that has a job of its own."""
    stored = [tick for tick in found if job_for(schedule, tick).id in there]
    return stored[-1] if stored else None if before is None else before.tick
