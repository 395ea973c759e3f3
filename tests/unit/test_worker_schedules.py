"""How workers run schedules: each tick once, whoever looks, by the store's clock; and what does not stop them."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from dibs import App, NewJob, StoreUnavailable
from dibs.job import Filter, Job, Retention
from dibs.outcome import Succeeded
from dibs.schedule import GRACE, job_for, ticks
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.testing.flaky import FlakyStore
from dibs.timetable import HANDLED, STORED
from dibs.worker.outage import Weather
from dibs.worker.scheduling import LOOK_EVERY, Scheduling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
JOB = NewJob(task="t")


class Crew:
    """A store whose clock stands still, an app on it, and workers that look when they are told."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.store = FlakyStore(MemoryStore(clock=self.clock))
        self.app = App(store=self.store)

    def worker(self, name: str = "w", app: App | None = None) -> Scheduling:
        return Scheduling(name, self.store, (app or self.app).tasks.schedules, Weather(name))

    async def pass_time(self, *workers: Scheduling, by: timedelta, step: timedelta = SECOND) -> None:
        """Let time pass, and the workers look in turns."""
        for number in range(by // step):
            self.clock.advance(step)
            await workers[number % len(workers)].look()

    async def jobs(self) -> list[Job]:
        return list((await self.store.find(Filter(), limit=10_000)).jobs)[::-1]

    async def ticks(self) -> list[datetime]:
        return [datetime.fromisoformat(job.meta["schedule"]["tick"]) for job in await self.jobs()]

    async def finish_all(self) -> None:
        claims = await self.store.claim("default", "w", 1_000, MINUTE)
        await self.store.settle([claim.settled(Succeeded()) for claim in claims])


@pytest.fixture
def crew() -> Crew:
    return Crew()


def every(step: timedelta, count: int) -> list[datetime]:
    return [NOON + step * number for number in range(1, count + 1)]


async def test_several_workers_enqueue_each_tick_once_and_on_time(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=10)
    await crew.pass_time(*(crew.worker(str(n)) for n in range(5)), by=10 * MINUTE)
    assert await crew.ticks() == every(10 * SECOND, 60)
    assert all(job.created_at == job.run_at for job in await crew.jobs())


async def test_workers_that_look_at_the_same_instant_store_a_tick_once(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=10)
    crew.clock.advance(10 * SECOND)
    await asyncio.gather(*(crew.worker(str(n)).look() for n in range(50)))
    assert await crew.ticks() == every(10 * SECOND, 1)


async def test_a_tick_is_not_run_again_after_its_job_was_pruned(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=10, missed="all")
    one, other = crew.worker("one"), crew.worker("other")
    await crew.pass_time(one, by=10 * SECOND)
    await crew.finish_all()
    await crew.store.prune(Retention(succeeded=timedelta(0)))
    assert await crew.jobs() == []
    await other.look()
    await crew.worker("new").look()
    assert await crew.jobs() == []


async def test_one_who_was_held_up_does_not_set_the_others_back(crew: Crew) -> None:
    """It read the time, enqueued, was suspended for an hour, and only then says how far it got."""
    await crew.app.schedules.add("s", JOB, every=60, missed="all")
    slow, fast = crew.worker("slow"), crew.worker("fast")
    go_on, keep, waiting = asyncio.Event(), crew.store.keep, asyncio.Event()

    async def held_up(kind: str, values: Any, *, rank: int = 0) -> None:
        if kind == HANDLED and not waiting.is_set():
            waiting.set()
            await go_on.wait()
        await keep(kind, values, rank=rank)

    crew.store.keep = held_up  # type: ignore[method-assign]
    crew.clock.advance(MINUTE)
    late = asyncio.create_task(slow.look())
    await waiting.wait()
    await crew.pass_time(fast, by=HOUR, step=10 * SECOND)
    await crew.finish_all()
    await crew.store.prune(Retention(succeeded=timedelta(0)))
    go_on.set()
    await late
    await fast.look()
    assert await crew.jobs() == []


async def test_a_worker_that_dies_between_the_job_and_its_note_leaves_one_job(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=10)
    crew.clock.advance(10 * SECOND)
    crew.store.fail_next("keep")
    dying = crew.worker("dying")
    dying._told = crew.clock.now  # so that the note about the tick is the write that fails
    with pytest.raises(StoreUnavailable):
        await dying.look()
    assert len(await crew.jobs()) == 1
    await crew.worker("other").look()
    assert await crew.ticks() == every(10 * SECOND, 1)


@pytest.mark.parametrize("offset", [-10 * MINUTE, 10 * MINUTE, 365 * DAY])
async def test_what_the_clock_of_a_worker_shows_does_not_matter(
    crew: Crew, offset: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the only clock that is asked: a worker that asks its own would fail here."""

    def wrong() -> datetime:
        raise AssertionError("a worker asked its own clock")

    monkeypatch.setattr("dibs.clock.system_clock", wrong)
    crew.clock.now = NOON + offset
    await crew.app.schedules.add("s", JOB, every=60)
    await crew.pass_time(crew.worker(), by=3 * MINUTE)
    assert await crew.ticks() == [NOON + offset + MINUTE * n for n in (1, 2, 3)]


# --- many -------------------------------------------------------------------------------------

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata")
CRONS = ("30 2 * * *", "*/20 1-3 * * *", "0 * * * *", "15,45 2 * * *")
CHANGES = {
    "Berlin forward": datetime(2026, 3, 28, 18, tzinfo=UTC),
    "Lord Howe back": datetime(2026, 4, 4, 6, tzinfo=UTC),
    "New York back": datetime(2026, 10, 31, 18, tzinfo=UTC),
}


@pytest.mark.parametrize("start", CHANGES.values(), ids=CHANGES)
async def test_fifty_workers_and_a_hundred_schedules_over_a_change_of_the_clocks(crew: Crew, start: datetime) -> None:
    """Workers look at random, several at once, and now and then one dies between the job and its note."""
    dice, end = Random(7), start + DAY
    crew.clock.now = start
    for number in range(100):
        zone, cron = ZONES[number % 5], CRONS[number % 4]
        await crew.app.schedules.add(f"s{number}", JOB, cron=cron, zone=zone, jitter=number, missed="all")
    made = [listed.schedule for listed in await crew.app.schedules.list() if listed.schedule is not None]
    wanted = {job_for(one, tick).id for one in made for tick in ticks(one, start, end, 1_000)}
    crowd = [crew.worker(str(number)) for number in range(50)]
    for moment in sorted({tick for one in made for tick in ticks(one, start, end, 1_000)}):
        crew.clock.now = moment + dice.random() * GRACE / 2
        if dice.random() < 0.1:
            crew.store.fail_next("keep", after_effect=dice.random() < 0.5)
        looks = (worker.look() for worker in dice.sample(crowd, dice.randint(1, 4)))
        await asyncio.gather(*looks, return_exceptions=True)
    crew.clock.now = end
    await crowd[0].look()
    stored = [job.id for job in await crew.jobs()]
    assert len(stored) > 800
    assert set(stored) == wanted


# --- outages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("one", 1), ("all", 60)])
async def test_after_an_outage_the_policy_says_what_is_made_up_for(crew: Crew, missed: Any, count: int) -> None:
    await crew.app.schedules.add("s", JOB, every=60, missed=missed)
    crew.clock.advance(HOUR + GRACE + SECOND)
    await crew.worker().look()
    assert await crew.ticks() == every(MINUTE, 60)[60 - count :]
    await crew.pass_time(crew.worker("other"), by=MINUTE)
    assert len(await crew.ticks()) == count + 1


async def test_a_schedule_that_was_just_added_has_missed_nothing(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=60, missed="all", starts_at=NOON - DAY)
    await crew.worker().look()
    assert await crew.jobs() == []


async def test_one_in_code_that_nobody_ever_looked_at_has_missed_nothing(crew: Crew) -> None:
    crew.app.schedule("s", JOB, cron="* * * * *", missed="all")
    crew.clock.advance(45 * SECOND)
    await crew.worker().look()
    assert await crew.jobs() == []
    await crew.pass_time(crew.worker(), by=MINUTE)
    assert await crew.ticks() == [NOON + MINUTE]


async def test_a_changed_rhythm_has_missed_nothing_of_its_own_past(crew: Crew) -> None:
    old, new = App(store=crew.store), App(store=crew.store)
    old.schedule("s", JOB, cron="@daily", missed="all")
    new.schedule("s", JOB, cron="@hourly", missed="all")
    await crew.worker(app=old).look()
    crew.clock.advance(5 * HOUR + MINUTE)
    await crew.worker(app=new).look()
    assert await crew.jobs() == []
    await crew.pass_time(crew.worker(app=new), by=HOUR, step=10 * SECOND)
    assert await crew.ticks() == [NOON + 6 * HOUR]


async def test_old_and_new_code_side_by_side_run_no_tick_twice(crew: Crew) -> None:
    old, new = App(store=crew.store), App(store=crew.store)
    old.schedule("s", JOB, every=60)
    new.schedule("s", JOB, every=20)
    await crew.pass_time(crew.worker(app=old), crew.worker(app=new), by=2 * MINUTE)
    found = sorted(await crew.ticks())
    assert [tick for tick in found if tick > NOON] == every(20 * SECOND, 6)
    assert len(found) == len(set(found))


# --- pauses, changes, removals ----------------------------------------------------------------


async def test_a_pause_counts_at_the_next_look_and_its_ticks_are_not_made_up_for(crew: Crew) -> None:
    worker = crew.worker()
    await crew.app.schedules.add("s", JOB, every=60, missed="all")
    await crew.pass_time(worker, by=2 * MINUTE)
    await crew.app.schedules.pause("s")
    await crew.pass_time(worker, by=10 * MINUTE)
    assert len(await crew.ticks()) == 2
    await crew.app.schedules.resume("s")
    await crew.pass_time(worker, by=MINUTE)
    assert await crew.ticks() == [NOON + MINUTE * n for n in (1, 2, 13)]


async def test_a_pause_through_which_nobody_worked_is_not_made_up_for_either(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=60, missed="all", paused=True)
    crew.clock.advance(HOUR)
    await crew.app.schedules.resume("s")
    await crew.worker().look()
    assert await crew.jobs() == []


async def test_what_code_declares_is_paused_without_touching_the_code(crew: Crew) -> None:
    crew.app.schedule("s", JOB, every=60)
    worker = crew.worker()
    await crew.pass_time(worker, by=MINUTE)
    await crew.app.schedules.pause("s")
    await crew.pass_time(crew.worker("new"), by=5 * MINUTE)
    assert len(await crew.ticks()) == 1


async def test_what_is_removed_or_gone_from_the_code_stops(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=60)
    with_it, without = App(store=crew.store), App(store=crew.store)
    with_it.schedule("t", JOB, every=60)
    await crew.pass_time(crew.worker(app=with_it), by=MINUTE)
    assert len(await crew.ticks()) == 2
    await crew.app.schedules.remove("s")
    await crew.pass_time(crew.worker(app=without), by=5 * MINUTE)
    assert len(await crew.ticks()) == 2


async def test_a_running_worker_follows_a_change(crew: Crew) -> None:
    worker = crew.worker()
    await crew.app.schedules.add("s", JOB, every=60)
    await crew.pass_time(worker, by=MINUTE)
    await crew.app.schedules.change("s", NewJob(task="other", queue="q"), every=30)
    await crew.pass_time(worker, by=MINUTE)
    assert await crew.ticks() == [NOON + SECOND * n for n in (60, 90, 120)]
    assert [job.task for job in await crew.jobs()] == ["t", "other", "other"]


async def test_no_new_job_while_the_last_is_unfinished_if_they_must_not_overlap(crew: Crew) -> None:
    worker = crew.worker()
    await crew.app.schedules.add("s", JOB, every=60, overlap="skip")
    await crew.pass_time(worker, by=3 * MINUTE)
    assert await crew.ticks() == [NOON + MINUTE]
    await crew.finish_all()
    await crew.pass_time(worker, by=MINUTE)
    assert await crew.ticks() == [NOON + MINUTE, NOON + 4 * MINUTE]


async def test_a_schedule_ends_with_its_end(crew: Crew) -> None:
    await crew.app.schedules.add("s", JOB, every=60, ends_at=NOON + 3 * MINUTE)
    worker = crew.worker()
    await crew.pass_time(worker, by=5 * MINUTE)
    assert await crew.ticks() == every(MINUTE, 2)
    assert await worker.look() == LOOK_EVERY


# --- what does not stop the others ------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"task": "t", "cron": "@daily", "moon": "full"}, "another version of dibs, with moon"),
        ({"task": "t", "cron": "99 * * * *"}, "is not understood"),
        ({"task": "t", "cron": "@daily", "zone": "Mars/Base"}, "no known time zone"),
        ({"task": 5, "cron": "@daily"}, "cannot be read"),
        ({}, "cannot be read"),
    ],
)
async def test_one_that_cannot_be_read_is_named_once_and_does_not_stop_the_others(
    crew: Crew, caplog: pytest.LogCaptureFixture, value: dict[str, Any], says: str
) -> None:
    await crew.app.schedules.add("fine", JOB, every=60)
    await crew.store.keep(STORED, {"bad": value})
    with caplog.at_level(logging.WARNING):
        await crew.pass_time(crew.worker(), by=3 * MINUTE)
    assert await crew.ticks() == every(MINUTE, 3)
    [said] = [record.getMessage() for record in caplog.records]
    assert "schedule bad is left out" in said and says in said
    [bad, _] = await crew.app.schedules.list()
    assert bad.problem is not None and says in bad.problem
    await crew.app.schedules.remove("bad")


async def test_one_whose_job_this_store_refuses_does_not_stop_the_others(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    await crew.app.schedules.add("fine", JOB, every=60)
    await crew.app.schedules.add("large", NewJob(task="t", args="x" * 1_000), every=60)
    crew.store._inner._limits = type(crew.store._inner._limits)(max_bytes=500)  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        await crew.pass_time(crew.worker(), by=2 * MINUTE)
    assert await crew.ticks() == every(MINUTE, 2)
    [said] = [record.getMessage() for record in caplog.records]
    assert "schedule large makes a job that is refused: args take 1,002 bytes" in said


async def test_one_that_a_wrong_clock_has_handled_far_ahead_is_named_and_can_begin_again(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    await crew.app.schedules.add("s", JOB, every=60)
    crew.clock.now = NOON + 365 * DAY
    await crew.worker().look()
    crew.clock.now = NOON
    before = len(await crew.jobs())
    with caplog.at_level(logging.WARNING):
        await crew.pass_time(crew.worker(), by=2 * MINUTE)
    assert len(await crew.jobs()) == before
    assert "dibs schedules resume s" in caplog.text
    await crew.app.schedules.resume("s")
    await crew.pass_time(crew.worker(), by=2 * MINUTE)
    assert len(await crew.jobs()) == before + 2


async def test_a_look_says_how_long_to_sleep(crew: Crew) -> None:
    worker = crew.worker()
    assert await worker.look() == LOOK_EVERY
    await crew.app.schedules.add("s", JOB, every=60)
    crew.clock.advance(20 * SECOND)
    assert await worker.look() == 40


async def test_a_look_at_many_schedules_takes_one_read_and_writes_only_at_ticks(crew: Crew) -> None:
    for number in range(100):
        await crew.app.schedules.add(f"s{number}", JOB, every=60)
    worker, calls = crew.worker(), list[str]()
    for verb in ("keep", "kept", "enqueue"):
        _count(crew.store, verb, calls)
    await worker.look()
    calls.clear()
    crew.clock.advance(SECOND)
    await worker.look()
    assert calls == ["kept"]
    calls.clear()
    crew.clock.advance(58 * SECOND)
    await worker.look()
    assert calls == ["kept"]
    calls.clear()
    crew.clock.advance(SECOND)
    worker._told = crew.clock.now
    await worker.look()
    assert calls == ["kept", "enqueue", "keep"]
    assert len(await crew.jobs()) == 100


def _count(store: Any, verb: str, calls: list[str]) -> None:
    real = getattr(store, verb)

    async def counted(*args: Any, **options: Any) -> Any:
        calls.append(verb)
        return await real(*args, **options)

    setattr(store, verb, counted)
