"""Fifty workers, a hundred schedules, and a year with the changes of five clocks: each tick has its job, once."""

import asyncio
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from dibs import App, NewJob
from dibs.errors import StoreUnavailable
from dibs.job import Enqueued, Retention
from dibs.outcome import Succeeded
from dibs.schedule import GRACE, Schedule, job_for, ticks
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.testing.flaky import FlakyStore
from dibs.worker.outage import Weather
from dibs.worker.scheduling import Scheduling

FULL = os.environ.get("DIBS_FAULTS") == "full"
WORKERS, SCHEDULES = 50, 100
DAYS = 365 if FULL else 36
START = datetime(2026, 1, 1, tzinfo=UTC) if FULL else datetime(2026, 3, 5, tzinfo=UTC)
"""The tenth of a year has changes of three of the clocks, in both directions."""
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago")
CRONS = ("30 2 * * *", "*/20 1-3 * * *", "0 */2 * * *", "15,45 2 * * *")
DAY, MOST = timedelta(days=1), 100_000


class Recording(MemoryStore):
    """Remembers every job that was ever stored, also when it is pruned."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.stored: Counter[UUID] = Counter()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        sent = await super().enqueue(jobs)
        self.stored.update(each.id for each in sent if each.created)
        return sent


async def _schedules(app: App) -> list[Schedule]:
    for number in range(SCHEDULES):
        zone, cron = ZONES[number % len(ZONES)], CRONS[number % len(CRONS)]
        await app.schedules.add(f"s{number}", NewJob(task="t"), cron=cron, zone=zone, jitter=number, missed="all")
    return [listed.schedule for listed in await app.schedules.list() if listed.schedule is not None]


class Almanac:
    """The ticks of all schedules, worked out once: fifty workers would each do it for themselves.

    Now and then the real arithmetic is asked, too, and has to give the same from wherever it starts.
    """

    def __init__(self, schedules: list[Schedule], end: datetime, dice: Random) -> None:
        self._dice = dice
        self._end = end + DAY
        self.of = {one.name: ticks(one, START, self._end, MOST) for one in schedules}
        self.asked = 0

    def ticks(self, schedule: Schedule, after: datetime, until: datetime, limit: int) -> list[datetime]:
        known = self.of[schedule.name]
        first = bisect_right(known, after)
        found = known[first : min(bisect_right(known, until), first + limit)]
        if self._dice.random() < 0.02 and (limit == 1 or until < self._end):
            self.asked += 1
            assert found == ticks(schedule, after, until, limit), (schedule, after)
        return found


async def test_each_tick_of_a_year_has_its_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at random, several at once, and now and then one dies between the job and its note."""
    dice, clock = Random(11), FakeClock(START)
    inner = Recording(clock)
    store = FlakyStore(inner)
    app, end = App(store=store), START + DAYS * DAY
    made = await _schedules(app)
    almanac = Almanac(made, end, dice)
    monkeypatch.setattr("dibs.worker.scheduling.ticks", almanac.ticks)
    monkeypatch.setattr("dibs.schedule.ticks", almanac.ticks)
    pairs = [(one, tick) for one in made for tick in almanac.of[one.name] if tick <= end]
    wanted = {job_for(one, tick).id for one, tick in pairs}
    crowd = [Scheduling(str(n), store, app.tasks.schedules, Weather(str(n))) for n in range(WORKERS)]
    day = START
    for moment in sorted({tick for _, tick in pairs}):
        clock.now = moment + dice.random() * GRACE / 2
        if dice.random() < 0.05:
            store.fail_next("keep", after_effect=dice.random() < 0.5)
        looks = (worker.look() for worker in dice.sample(crowd, dice.choice((1, 1, 1, 2, 3))))
        failed = await asyncio.gather(*looks, return_exceptions=True)
        assert all(isinstance(each, float | StoreUnavailable) for each in failed), failed
        if moment >= day + DAY:
            day += DAY
            store.recover()
            await crowd[0].look()  # somebody does, a few seconds after one died; only then its job may go
            await _work_through(store)
    clock.now = end
    await crowd[0].look()
    assert max(inner.stored.values()) == 1
    assert inner.stored.keys() == wanted
    assert len(wanted) > DAYS * SCHEDULES * 4
    assert almanac.asked > DAYS * 10


async def _work_through(store: FlakyStore) -> None:
    """Run what is there, and drop it: what the store does not know any more must not come again."""
    while claims := await store.claim("default", "w", 1_000, timedelta(minutes=1)):
        await store.settle([claim.settled(Succeeded()) for claim in claims])
    while await store.prune(Retention(succeeded=timedelta(0)), 10_000):
        pass
