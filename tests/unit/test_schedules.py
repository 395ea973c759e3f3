"""Schedules as people handle them: declared in code, added at run time, changed, paused, looked at."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs import App, ConfigurationError, NewJob, Refused, ScheduleUnknown
from dibs.admin import Admin
from dibs.job import Filter, Job
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore
from dibs.testing.clock import FakeClock
from dibs.timetable import DECLARED, HANDLED, STORED, tell
from dibs.worker.outage import Weather
from dibs.worker.scheduling import Scheduling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(tmp_path / "j.db", clock=clock)
    await made.setup()
    yield made
    await made.close()


@pytest.fixture
def app(store: Store, clock: FakeClock) -> App:
    made = App(store=store, clock=clock)

    @made.task(queue="slow", priority=-3, max_attempts=2, key="report-{kind}")
    async def report(kind: str, pages: int = 1) -> str:
        return kind

    @made.task
    async def clean() -> None: ...

    return made


def worker(app: App, store: Store, name: str = "w") -> Scheduling:
    return Scheduling(name, store, app.tasks.schedules, Weather(name))


async def jobs(store: Store) -> list[Job]:
    return list((await store.find(Filter(), limit=1_000)).jobs)[::-1]


# --- in code ----------------------------------------------------------------------------------


def test_a_schedule_above_a_task_has_its_name_and_the_task_stays_a_task(app: App) -> None:
    @app.schedule(cron="0 3 * * *", zone="Europe/Berlin", jitter=5)
    @app.task(queue="night", meta={"team": "a"})
    async def sweep(rooms: int = 3) -> None: ...

    made = app.tasks.schedules["sweep"]
    assert (made.task, made.args, made.queue, made.meta) == ("sweep", {}, "night", {"team": "a"})
    assert (made.cron, made.zone, made.jitter) == ("0 3 * * *", "Europe/Berlin", timedelta(seconds=5))
    assert sweep is app.tasks.by_name["sweep"]


def test_one_task_can_have_several_schedules_with_arguments_and_options(app: App) -> None:
    report = app.tasks.by_name["report"]
    app.schedule("sales", report.job("sales"), every=90)
    app.schedule("staff", report.options(queue="other").job("staff", pages=2), cron="@daily", overlap="skip")
    sales, staff = app.tasks.schedules["sales"], app.tasks.schedules["staff"]
    assert (sales.args, sales.queue, sales.priority, sales.max_attempts) == (
        {"kind": "sales"},
        "slow",
        -3,
        2,
    )
    assert (sales.every, sales.key) == (timedelta(seconds=90), "report-sales")
    assert (staff.args["pages"], staff.queue) == (2, "other")


def test_two_names_above_one_task_are_two_schedules(app: App) -> None:
    @app.schedule("morning", cron="0 6 * * *")
    @app.schedule("evening", cron="0 18 * * *")
    @app.task
    async def water() -> None: ...

    assert sorted(app.tasks.schedules) == ["evening", "morning"]


@pytest.mark.parametrize(
    ("rhythm", "says"),
    [
        ({}, "schedule clean: a schedule needs either cron= or every="),
        ({"cron": "0 25 * * *"}, "schedule clean: cron '0 25 \\* \\* \\*' is not understood"),
        ({"cron": "@daily", "zone": "Mars/Base"}, "schedule clean: zone 'Mars/Base' is no known time zone"),
        ({"every": 0.5}, "every must be a timedelta from 0:00:01"),
        ({"every": float("inf")}, "every must be a timedelta or seconds"),
        ({"cron": "@daily", "paused": True}, "there is no paused: a schedule knows cron, every"),
    ],
)
def test_a_wrong_schedule_is_a_configuration_error_when_it_is_declared(app: App, rhythm: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        app.schedule("clean", app.tasks.by_name["clean"], **rhythm)


def test_arguments_are_checked_when_a_schedule_is_declared(app: App) -> None:
    report = app.tasks.by_name["report"]
    with pytest.raises(ConfigurationError, match=r"schedule daily: .*kind"):
        app.schedule("daily", report, cron="@daily")
    with pytest.raises(ConfigurationError, match=r"schedule daily: .*pages"):
        app.schedule("daily", NewJob(task="report", args={"kind": "x", "pages": "many"}), cron="@daily")
    with pytest.raises(ConfigurationError, match="leave delay and run_at"):
        app.schedule("daily", report.options(delay=5).job("x"), cron="@daily")


def test_one_name_is_one_schedule(app: App) -> None:
    clean = app.tasks.by_name["clean"]
    app.schedule("daily", clean, cron="@daily")
    app.schedule("daily", clean, cron="@daily")  # a module that is imported twice
    with pytest.raises(ConfigurationError, match="there is a schedule daily already"):
        app.schedule("daily", clean, cron="@hourly")


def test_the_decorator_says_where_it_belongs(app: App) -> None:
    with pytest.raises(ConfigurationError, match="above a task"):
        app.schedule(cron="@daily")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(ConfigurationError, match="given a name first"):
        app.schedule(app.tasks.by_name["clean"], cron="@daily")  # type: ignore[call-overload]


# --- at run time ------------------------------------------------------------------------------


async def test_an_added_schedule_is_listed_with_its_next_ticks(app: App) -> None:
    made = await app.schedules.add("sales", app.tasks.by_name["report"].job("sales"), cron="30 * * * *")
    [listed] = await app.schedules.list(ticks=2)
    assert (listed.name, listed.origin, listed.schedule, listed.paused, listed.last) == (
        "sales",
        "stored",
        made,
        False,
        None,
    )
    assert listed.next == (NOON + 30 * MINUTE, NOON + 90 * MINUTE)
    assert listed.now == NOON


async def test_a_schedule_for_a_task_of_another_program_is_taken_as_it_is(app: App) -> None:
    made = await app.schedules.add("theirs", NewJob(task="theirs", args=[1, "x"], queue="q"), every=HOUR)
    assert (made.task, made.args, made.queue) == ("theirs", [1, "x"], "q")


async def test_a_taken_name_is_refused_unless_it_may_be_replaced(app: App) -> None:
    clean = app.tasks.by_name["clean"]
    await app.schedules.add("daily", clean, cron="@daily")
    with pytest.raises(Refused, match="there is a schedule daily already"):
        await app.schedules.add("daily", clean, cron="@hourly")
    await app.schedules.add("daily", clean, cron="@hourly", replace=True)
    assert (await app.schedules.get("daily")).schedule == await app.schedules.change("daily")
    app.schedule("in code", clean, cron="@daily")
    with pytest.raises(Refused, match="declared in code"):
        await app.schedules.add("in code", clean, cron="@daily", replace=True)


async def test_arguments_that_do_not_fit_the_task_are_refused_and_nothing_is_stored(app: App) -> None:
    with pytest.raises(Refused, match="pages"):
        await app.schedules.add("x", NewJob(task="report", args={"kind": "x", "pages": []}), cron="@daily")
    assert await app.schedules.list() == []


async def test_a_change_leaves_what_it_does_not_name(app: App) -> None:
    report = app.tasks.by_name["report"]
    await app.schedules.add("sales", report.job("sales"), cron="0 3 * * *", zone="Europe/Berlin", jitter=60)
    changed = await app.schedules.change("sales", cron="0 4 * * *")
    assert (changed.cron, changed.zone, changed.jitter) == ("0 4 * * *", "Europe/Berlin", MINUTE)
    changed = await app.schedules.change("sales", every=3600)
    assert (changed.cron, changed.zone, changed.every) == (None, "UTC", HOUR)
    changed = await app.schedules.change("sales", report.job("staff"), ends_at=NOON + DAY)
    assert (changed.args["kind"], changed.every, changed.ends_at) == ("staff", HOUR, NOON + DAY)
    assert (await app.schedules.change("sales", ends_at=None)).ends_at is None
    with pytest.raises(Refused):
        await app.schedules.change("sales", cron="nonsense")
    assert (await app.schedules.get("sales")).schedule == await app.schedules.change("sales")


async def test_a_removed_schedule_is_gone_and_leaves_nothing(app: App, store: Store) -> None:
    await app.schedules.add("sales", app.tasks.by_name["clean"], every=HOUR, paused=True)
    await app.schedules.remove("sales")
    assert await app.schedules.list() == []
    assert (await store.kept([STORED, HANDLED, "schedule paused"])).values == {
        STORED: {},
        HANDLED: {},
        "schedule paused": {},
    }


async def test_an_unknown_name_is_named_and_a_near_one_offered(app: App) -> None:
    await app.schedules.add("nightly", app.tasks.by_name["clean"], every=HOUR)
    for call in (app.schedules.pause, app.schedules.resume, app.schedules.remove, app.schedules.run):
        with pytest.raises(ScheduleUnknown, match="no schedule nightli: did you mean nightly"):
            await call("nightli")
    with pytest.raises(ScheduleUnknown):
        await app.schedules.change("other", every=HOUR)


async def test_what_code_declares_is_shown_and_can_be_paused_but_not_changed(app: App, store: Store) -> None:
    app.schedule("nightly", app.tasks.by_name["clean"], cron="@hourly")
    [listed] = await app.schedules.list()
    assert (listed.origin, listed.live, listed.seen_at) == ("code", False, None)
    await worker(app, store).look()
    other = App(store=store)
    [listed] = await other.schedules.list()
    assert (listed.name, listed.origin, listed.live, listed.seen_at) == ("nightly", "code", True, NOON)
    assert listed.next == (NOON + HOUR,)
    for call in (other.schedules.change("nightly", every=HOUR), other.schedules.remove("nightly")):
        with pytest.raises(Refused, match="declared in code"):
            await call
    await other.schedules.pause("nightly")
    assert (await app.schedules.get("nightly")).paused


async def test_what_is_gone_from_the_code_is_shown_as_gone_and_then_forgotten(
    app: App, store: Store, clock: FakeClock
) -> None:
    app.schedule("nightly", app.tasks.by_name["clean"], cron="@hourly")
    await worker(app, store).look()
    clock.advance(10 * MINUTE)
    other = App(store=store)
    [listed] = await other.schedules.list()
    assert (listed.live, listed.seen_at) == (False, NOON)
    clock.advance(8 * DAY)
    await tell(store, [])
    assert (await store.kept([DECLARED])).values == {DECLARED: {}}


async def test_of_many_workers_only_one_a_minute_says_what_the_code_declares(
    app: App, store: Store, clock: FakeClock
) -> None:
    app.schedule("nightly", app.tasks.by_name["clean"], cron="@hourly")
    await tell(store, app.tasks.schedules.values())
    before = (await store.kept([DECLARED])).values
    clock.advance(timedelta(seconds=20))
    await tell(store, app.tasks.schedules.values())
    assert (await store.kept([DECLARED])).values == before
    clock.advance(timedelta(seconds=20))
    await tell(store, app.tasks.schedules.values())
    assert (await store.kept([DECLARED])).values != before


async def test_run_enqueues_a_job_now_and_the_ticks_go_on(app: App, store: Store, clock: FakeClock) -> None:
    await app.schedules.add("sales", app.tasks.by_name["report"].job("sales"), cron="0 * * * *", paused=True)
    handle = await app.schedules.run("sales")
    assert handle.created
    [job] = await jobs(store)
    assert (job.id, job.task, job.args["kind"], job.run_at) == (handle.id, "report", "sales", NOON)
    assert job.meta["schedule"] == {"name": "sales", "tick": "2026-01-01T12:00:00Z", "by_hand": True}
    again = await app.schedules.run("sales")
    assert (again.id, again.created) == (handle.id, False)  # the key of its task is busy


async def test_the_last_tick_and_its_job_are_shown(app: App, store: Store, clock: FakeClock) -> None:
    await app.schedules.add("hourly", app.tasks.by_name["clean"], cron="0 * * * *")
    clock.advance(HOUR)
    await worker(app, store).look()
    listed = await app.schedules.get("hourly")
    assert listed.last == NOON + HOUR
    job = await app.schedules.last_job(listed)
    assert job is not None and job.id == (await jobs(store))[0].id


def test_the_same_verbs_are_there_without_an_event_loop(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.sync(app.schedules.add("theirs", NewJob(task="theirs"), every=5))
    app.sync(app.schedules.pause("theirs"))
    assert [listed.paused for listed in app.sync(app.schedules.list())] == [True]
    app.sync(app.close())


async def test_a_tick_that_nobody_handles_is_shown_as_late_and_the_doctor_says_so(
    app: App, store: Store, clock: FakeClock
) -> None:
    await app.schedules.add("hourly", app.tasks.by_name["clean"], cron="0 * * * *")
    await app.schedules.add("paused", app.tasks.by_name["clean"], cron="0 * * * *", paused=True)
    clock.advance(HOUR + 30 * timedelta(seconds=1))
    assert [listed.late for listed in await app.schedules.list()] == [None, None]
    clock.advance(MINUTE)
    assert [listed.late for listed in await app.schedules.list()] == [NOON + HOUR, None]
    found = {finding.check: finding for finding in await Admin(store, clock).health()}
    assert "nobody enqueued its tick of 2026-01-01 13:00:00" in found["schedule hourly"].text
    await worker(app, store).look()
    assert [listed.late for listed in await app.schedules.list()] == [None, None]
    found = {finding.check: finding for finding in await Admin(store, clock).health()}
    assert found["schedules"].text == "2 schedules, 1 paused"
