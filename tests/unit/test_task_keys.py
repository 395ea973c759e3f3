"""What a task says about keys, windows, expiry and limits reaches its jobs; what makes no sense is refused at once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs import App, JobCancelled, Limit, OnConflict, Rate, Refused, Scope
from dibs.errors import ConfigurationError
from dibs.job import NewJob
from dibs.schedule import job_for
from dibs.testing.clock import FakeClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def app(clock: FakeClock) -> App:
    return App("memory://", clock=clock)


# --- keys -----------------------------------------------------------------------------------------------------


def test_the_options_of_a_key_reach_the_job(app: App) -> None:
    @app.task(key="k-{n}", unique_for=60, on_conflict="debounce", max_delay=HOUR)
    def tidy(n: int) -> None: ...

    job = tidy.job(7)
    assert (job.key, job.unique_for, job.max_delay) == ("k-7", timedelta(seconds=60), HOUR)
    assert job.on_conflict is OnConflict.DEBOUNCE
    other = tidy.options(on_conflict=OnConflict.REPLACE, unique_for=None).job(7)
    assert (other.on_conflict, other.unique_for, other.max_delay) == (OnConflict.REPLACE, None, None)


def test_a_job_without_a_key_has_no_window_either(app: App) -> None:
    @app.task(key=lambda n: f"k-{n}" if n else None, unique_for=60, on_conflict="replace")
    def tidy(n: int) -> None: ...

    for job in (tidy.job(0), tidy.options(key=None).job(7)):
        assert (job.key, job.unique_for, job.on_conflict) == (None, None, OnConflict.EXISTING)


async def test_a_handle_says_whether_the_job_is_new_or_changed_or_neither(app: App, clock: FakeClock) -> None:
    @app.task(key="k", on_conflict="replace", unique_for=60)
    async def tidy(n: int) -> int:
        return n

    handles = [await tidy.enqueue(1), await tidy.enqueue(2)]
    handles.append(await tidy.options(on_conflict="existing").enqueue(3))
    async for handle in tidy.enqueue_many([(4,)]):
        handles.append(handle)
    handles.append(await app.send("tidy", {"n": 5}))
    other = App(store=await app.store())
    handles.append(await other.send("tidy", {"n": 6}, key="k", on_conflict="replace", unique_for=60))
    assert len(set(handles)) == 1
    assert [(each.created, each.changed) for each in handles] == [
        (True, False),
        (False, True),
        (False, False),
        (False, True),
        (False, True),
        (False, True),
    ]
    await app.drain()
    assert await handles[0].result() == 6
    assert (await tidy.enqueue(7)).created is False, "its window is open"
    clock.advance(timedelta(seconds=60))
    assert (await tidy.enqueue(8)).created is True


async def test_debouncing_waits_for_the_last_request_and_not_longer_than_it_may(app: App, clock: FakeClock) -> None:
    @app.task(key="k", on_conflict="debounce", delay=30, max_delay=50)
    async def tidy() -> None: ...

    handle = await tidy.enqueue()
    for seconds in (30, 40, 50, 50):
        job = await handle.job()
        assert job is not None and job.run_at == NOON + timedelta(seconds=seconds)
        clock.advance(timedelta(seconds=10))
        await tidy.enqueue()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unique_for": 60}, r"unique_for is about jobs of the same key: give a key, too"),
        ({"on_conflict": "replace"}, "on_conflict is about jobs of the same key"),
        ({"key": "k", "max_delay": 60}, 'max_delay is the longest .*: say on_conflict="debounce"'),
        ({"key": "k", "unique_for": 0}, "unique_for must be more than nothing"),
        ({"key": "k", "on_conflict": "merge"}, "on_conflict must be one of existing, replace, debounce, not 'merge'"),
        ({"expires_in": "soon"}, "expires_in must be a timedelta or seconds"),
        ({"expires_at": NOON}, "there is no option expires_at"),
        ({"limit_key": "{tenant}"}, "the limit_key '{tenant}' names 'tenant'; the function has n"),
        ({"limit_key": 7}, "limit_key must be a string or a function"),
        ({"concurrency": -1}, "concurrency must be"),
        ({"rate": "100 a minute"}, 'a rate is written as "100/min"'),
        ({"rate": "0/s"}, "the count of a rate"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_declared(app: App, options: dict[str, Any], says: str) -> None:
    def tidy(n: int) -> None: ...

    with pytest.raises(ConfigurationError, match=says) as refused:
        app.task(**options)(tidy)
    assert "\n" not in str(refused.value)
    assert "tidy" not in app.tasks.by_name


# --- expiry ---------------------------------------------------------------------------------------------------


def test_a_job_expires_so_long_after_it_is_due(app: App) -> None:
    @app.task(expires_in=HOUR)
    def tell() -> None: ...

    assert tell.job().expires_at == NOON + HOUR
    assert tell.options(delay=60).job().expires_at == NOON + timedelta(minutes=1) + HOUR
    assert tell.options(run_at=NOON + HOUR).job().expires_at == NOON + 2 * HOUR
    assert tell.options(expires_at=NOON + timedelta(minutes=5)).job().expires_at == NOON + timedelta(minutes=5)
    assert tell.options(expires_in=None).job().expires_at is None
    with pytest.raises(Refused, match="give expires_in or expires_at, not both"):
        tell.options(expires_in=5, expires_at=NOON)


async def test_the_result_of_a_job_that_expired_says_so(app: App, clock: FakeClock) -> None:
    @app.task(expires_in=60)
    async def tell() -> None: ...

    late, cancelled = await tell.enqueue(), await tell.options(expires_in=None).enqueue()
    await cancelled.cancel()
    clock.advance(timedelta(seconds=60))
    await app.drain()
    with pytest.raises(JobCancelled, match="expired: it had not started by 2026-03-01 12:01:00"):
        await late.result()
    with pytest.raises(JobCancelled, match="was cancelled"):
        await cancelled.result()


# --- limits ---------------------------------------------------------------------------------------------------


def test_a_limit_key_is_made_as_a_key_is(app: App) -> None:
    @app.task(limit_key="{tenant}")
    def send(tenant: str, to: str = "") -> None: ...

    assert send.job("acme").limit_key == "acme"
    assert send.options(limit_key="{x}").job("acme").limit_key == "{x}"
    assert send.options(limit_key=lambda tenant: tenant.upper()).job("acme").limit_key == "ACME"
    assert send.options(limit_key=None).job("acme").limit_key is None


def test_limits_are_declared_for_queues_keys_and_tasks(app: App) -> None:
    @app.task(concurrency=3, rate="10/s")
    def charge() -> None: ...

    app.limit(queue="mail", concurrency=10, rate=Rate(100, per=60))
    app.limit(queue="mail", each_key=True, concurrency=1)
    app.limit(task="other", rate="5/30s")
    app.limit(task=charge, concurrency=3, rate=Rate(10, per=1))
    assert app.tasks.limits == {
        Scope(task="charge"): Limit(concurrency=3, rate=Rate(10, per=timedelta(seconds=1))),
        Scope(queue="mail"): Limit(concurrency=10, rate=Rate(100, per=timedelta(minutes=1))),
        Scope(queue="mail", each_key=True): Limit(concurrency=1),
        Scope(task="other"): Limit(rate=Rate(5, per=30)),
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"concurrency": 1}, 'say queue="mail" or task="charge"'),
        ({"queue": "q", "task": "t", "concurrency": 1}, "one of the two"),
        ({"task": "t", "each_key": True, "concurrency": 1}, "each_key belongs to a queue"),
        ({"task": 5, "concurrency": 1}, "task must be a task or its name, not int"),
        ({"queue": "q"}, "a limit says how many may run at once"),
        ({"queue": "q", "concurrency": 1.5}, "concurrency"),
        ({"queue": "q", "rate": "5/year"}, "a rate is written as"),
        ({"queue": "q", "rate": 5}, "a rate is written as"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(app: App, words: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        app.limit(**words)
    with pytest.raises(Refused, match=says):
        app.sync(app.limits.set(**words))


def test_a_scope_has_one_limit_in_code(app: App) -> None:
    app.limit(queue="mail", concurrency=1)
    app.limit(queue="mail", concurrency=1)
    with pytest.raises(ConfigurationError, match="queue mail is limited already, to 1 at once"):
        app.limit(queue="mail", concurrency=2)


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("100/min", 100, 60),
        ("5/s", 5, 1),
        ("1000/h", 1000, 3600),
        ("10/30s", 10, 30),
        ("1/600ms", 1, 0.6),
        ("2/day", 2, 86_400),
    ],
)
def test_a_rate_is_read_and_written(text: str, count: int, seconds: float) -> None:
    rate = Rate.read(text)
    assert rate == Rate(count, per=seconds)
    assert str(rate) == text
    assert Rate.read(f" {text.replace('/', ' / ')} ") == rate


@pytest.mark.parametrize("text", ["", "100", "100/", "/s", "-1/s", "1.5/s", "5/fortnight", f"5/{'9' * 300}h"])
def test_what_is_no_rate_is_not_read(text: str) -> None:
    assert Rate.read(text) is None


def test_limits_are_set_and_listed_without_a_loop(app: App) -> None:
    app.sync(app.limits.set(queue="mail", concurrency=2))
    [one] = app.sync(app.limits.list())
    assert (one.scope, one.limit, one.by, one.running) == (Scope(queue="mail"), Limit(concurrency=2), "operator", 0)
    assert app.sync(app.limits.reset(queue="mail")) is None


# --- schedules and flows --------------------------------------------------------------------------------------


async def test_the_jobs_of_a_schedule_have_its_limit_key_window_and_expiry(app: App) -> None:
    @app.task(limit_key="acme", key="k", unique_for=60, expires_in=300)
    async def tell(n: int = 0) -> None: ...

    made = await app.schedules.add("s", tell, every=3600)
    for schedule in (made, (await app.schedules.list())[0].schedule):
        assert schedule is not None
        job = job_for(schedule, NOON)
        assert (job.limit_key, job.unique_for, job.expires_at) == (
            "acme",
            timedelta(seconds=60),
            NOON + timedelta(minutes=5),
        )
    other = await app.schedules.add("t", tell.job(1), every=3600, expires_in=10)
    assert job_for(other, NOON).expires_at == NOON + timedelta(seconds=10)
    with pytest.raises(Refused, match="give expires_in here"):
        await app.schedules.add("u", NewJob(task="else", expires_at=NOON + HOUR), every=60)
    by_hand = await (await app.schedules.run("t")).job()
    assert by_hand is not None and by_hand.expires_at is not None
    assert by_hand.expires_at - by_hand.created_at == timedelta(seconds=10)


async def test_steps_have_limit_keys_and_expiry_but_no_keys(app: App) -> None:
    @app.task(limit_key="{n}", expires_in=60, key="k", unique_for=60)
    async def tell(n: int) -> None: ...

    plan = app.flow("f")
    with pytest.raises(Refused, match="options\\(key=None\\)"):
        plan.step("a", tell.job(1))
    plan.step("a", tell.options(key=None).job(1))
    handle = await plan.start()
    job = (await handle.steps())["a"]
    assert (job.limit_key, job.expires_at, job.unique_until) == ("1", NOON + timedelta(minutes=1), None)
