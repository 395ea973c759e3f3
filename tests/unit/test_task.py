"""Tasks: declaring them, enqueueing their jobs, and asking how these ended."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs import App, Constant, JobCancelled, JobFailed, JobUnknown, Priority, Refused, State, new_id
from dibs.errors import ConfigurationError
from dibs.job import NewJob
from dibs.outcome import Failed, Outcome, Succeeded
from dibs.testing.clock import FakeClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=60)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def app(clock: FakeClock) -> App:
    return App("memory://", clock=clock)


async def end(app: App, outcome: Outcome, queue: str = "default") -> None:
    """Do what a worker does, without one."""
    store = await app.store()
    claims = await store.claim(queue, "w", 100, LEASE)
    await store.settle([claim.settled(outcome) for claim in claims])


# --- declaring ------------------------------------------------------------------------------------


def test_a_task_is_called_what_its_function_is_called(app: App) -> None:
    @app.task
    def send() -> None: ...

    @app.task(name="mail.send")
    def also_send() -> None: ...

    assert (send.name, also_send.name) == ("send", "mail.send")
    assert app.tasks.by_name == {"send": send, "mail.send": also_send}


def test_a_task_called_directly_is_just_its_function(app: App) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @app.task(queue="math")
    async def double(a: int) -> int:
        return a * 2

    @app.task(batch=10)
    def triple(numbers: list[int]) -> list[int]:
        return [3 * each for each in numbers]

    assert add(1, b=2) == 3
    assert asyncio.run(double(4)) == 8
    assert triple([1, 2]) == [3, 6]
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


def test_a_second_task_of_the_same_name_is_refused_with_both_places(app: App) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(ConfigurationError, match=r"there is a task send already, tests\.unit\..*name=") as refused:
        app.task(name="send")(lambda: None)
    assert "\n" not in str(refused.value)
    assert app.tasks.by_name["send"] is send


def test_at_a_prompt_a_task_may_be_declared_again() -> None:
    code = "import dibs; app = dibs.App('memory://')\nfor _ in '12':\n  @app.task\n  def send(): ...\nprint(send.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "send\n", done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quue": "mail"}, "task send: there is no option quue: it is one of batch, "),
        ({"queue": " mail"}, "task send: queue ' mail' must be printable"),
        ({"queue": ""}, "task send: queue must have 1 to 200 characters"),
        ({"priority": 40_000}, "task send: priority must be a whole number from -32768 to 32767"),
        ({"max_attempts": 0}, "task send: max_attempts must be a whole number from 1 to 1000"),
        ({"lease": 0.1}, "task send: lease must be a timedelta from 1 second to 24 hours"),
        ({"timeout": 0}, "task send: timeout must be more than nothing"),
        ({"timeout": "5"}, "task send: timeout must be a timedelta or seconds"),
        ({"retry": 5}, "task send: retry must be Constant, Linear, Exponential or a function"),
        ({"retry_on": ("OSError",)}, "task send: retry_on must be exception classes"),
        ({"fail_on": (3,)}, "task send: fail_on must be exception classes"),
        ({"key": 5}, "task send: key must be a string or a function"),
        ({"key": "user-{user}"}, "task send: the key 'user-{user}' names 'user'; the function has to, size"),
        ({"key": "user-{}"}, "task send: the key 'user-{}' names 'nothing'"),
        ({"key": "user-{to"}, "task send: the key 'user-{to' is no template"),
        ({"executor": "thread"}, "task send: executor must be 'auto' or 'process'"),
        ({"batch": 0}, "task send: batch must be a whole number from 1 to 10000"),
        ({"meta": {"at": NOON}}, "task send: meta must be JSON"),
        ({"name": "a\nb"}, "must be printable"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_the_task_is_declared(
    app: App, options: dict[str, Any], message: str
) -> None:
    def send(to: str, size: int = 1) -> None: ...

    with pytest.raises(ConfigurationError, match=message) as refused:
        app.task(**options)(send)
    assert "\n" not in str(refused.value)
    assert app.tasks.by_name == {}


def test_what_is_no_function_is_refused(app: App) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigurationError, match="numbers is a generator"):
        app.task(numbers)
    with pytest.raises(ConfigurationError, match="a task is made of a function"):
        app.task("mail")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="a task needs a name"):
        app.task(lambda: None)


# --- enqueueing -----------------------------------------------------------------------------------


async def test_a_job_has_what_its_task_says(app: App) -> None:
    @app.task(queue="mail", priority=Priority.LOW, max_attempts=3, meta={"team": "shop"})
    def send(to: str) -> None: ...

    job = await (await send.enqueue("ada")).job()
    assert job is not None
    assert (job.task, job.args, job.queue, job.state) == ("send", {"to": "ada"}, "mail", State.QUEUED)
    assert (job.priority, job.max_attempts, job.meta, job.run_at) == (100, 3, {"team": "shop"}, NOON)


async def test_options_change_one_call_and_not_the_task(app: App) -> None:
    @app.task(queue="mail", meta={"team": "shop"})
    def send(to: str) -> None: ...

    urgent = send.options(priority=-5, queue="fast", max_attempts=1, delay=90, meta={"by": "ada"})
    job, plain = await (await urgent.enqueue("ada")).job(), send.job("ada")
    assert job is not None
    assert (job.priority, job.queue, job.max_attempts, job.meta) == (-5, "fast", 1, {"by": "ada"})
    assert job.run_at == NOON + timedelta(seconds=90)
    assert (plain.priority, plain.queue, plain.run_at, plain.meta) == (0, "mail", None, {"team": "shop"})


def test_of_delay_and_run_at_the_one_given_last_counts(app: App) -> None:
    @app.task
    def send() -> None: ...

    later = NOON + timedelta(hours=5)
    assert send.options(run_at=later).job().run_at == later
    assert send.options(run_at=later).options(delay=timedelta(hours=1)).job().run_at == NOON + timedelta(hours=1)
    assert send.options(delay=1).options(run_at=later).job().run_at == later
    assert send.options(delay=1).options(delay=None).job().run_at is None
    with pytest.raises(Refused, match="delay or run_at, not both"):
        send.options(delay=1, run_at=later)
    with pytest.raises(Refused, match="run_at must be a datetime with a time zone"):
        send.options(run_at=datetime(2026, 1, 1))


async def test_what_a_store_would_refuse_is_refused_with_task_and_parameter(app: App) -> None:
    @app.task
    def send(to: str, size: float = 1) -> None: ...

    with pytest.raises(Refused, match="send: size must not hold inf"):
        await send.enqueue("ada", float("inf"))
    with pytest.raises(Refused, match="send: to must not hold NUL"):
        await send.enqueue("a\0")
    with pytest.raises(Refused, match=r"send: args take 2,000,0.. bytes"):
        await send.enqueue("a" * 2_000_000)
    assert await (await app.store()).counts() == []


# --- keys -----------------------------------------------------------------------------------------


async def test_a_key_made_of_the_arguments_lets_one_unfinished_job_in(app: App) -> None:
    @app.task(key="user-{user}-{kind}")
    def sync_user(user: int, kind: str = "full") -> None: ...

    first, again, other = await sync_user.enqueue(1), await sync_user.enqueue(1, "full"), await sync_user.enqueue(2)
    assert (first.created, again.created, other.created) == (True, False, True)
    assert first == again != other
    job = await first.job()
    assert job is not None and job.key == "user-1-full"


def test_a_function_makes_the_key_or_none(app: App) -> None:
    @app.task(key=lambda user, urgent=False: None if urgent else f"u{user}")
    def sync_user(user: int, urgent: bool = False) -> None: ...

    assert sync_user.job(1).key == "u1"
    assert sync_user.job(1, urgent=True).key is None


def test_a_key_given_for_one_call_is_taken_literally(app: App) -> None:
    @app.task(key="user-{user}")
    def sync_user(user: int) -> None: ...

    assert sync_user.options(key="{user}").job(1).key == "{user}"
    assert sync_user.options(key=None).job(1).key is None
    assert sync_user.options(priority=1).job(1).key == "user-1"


def test_a_key_that_does_not_fit_the_arguments_is_refused(app: App) -> None:
    @app.task(key="{user.id}")
    def sync_user(user: dict[str, int]) -> None: ...

    with pytest.raises(Refused, match=r"sync_user: the key '{user.id}' does not fit these arguments"):
        sync_user.job({"id": 1})


# --- handles --------------------------------------------------------------------------------------


async def test_a_result_comes_as_the_type_that_the_function_returns(app: App) -> None:
    @app.task
    def when() -> datetime:
        return NOON

    handle = await when.enqueue()
    await end(app, Succeeded(when.signature.pack_result(NOON)))
    assert await handle.result() == NOON
    assert await when.handle(handle.id).result() == NOON
    assert await app.handle(str(handle.id)).result() == "2026-03-01T12:00:00Z"


async def test_a_result_is_waited_for(app: App) -> None:
    @app.task
    def add() -> int:
        return 3

    handle = await add.enqueue()
    waiting = asyncio.create_task(handle.result(timeout=10))
    await asyncio.sleep(0)
    assert not waiting.done()
    await end(app, Succeeded(3))
    assert await waiting == 3


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_job_goes_on(app: App) -> None:
    @app.task
    def add() -> int:
        return 3

    handle = await add.enqueue()
    with pytest.raises(TimeoutError, match=f"job {handle.id} .add. is still queued after 0 s"):
        await handle.result(timeout=timedelta(0))
    job = await handle.job()
    assert job is not None and job.state is State.QUEUED


async def test_a_job_that_failed_raises_with_its_reason_and_the_job(app: App) -> None:
    @app.task
    def add() -> int:
        return 3

    handle = await add.enqueue()
    await end(app, Failed("the sum is too large"))
    with pytest.raises(JobFailed, match=r"\(add\) failed: the sum is too large") as raised:
        await handle.result()
    assert raised.value.job.id == handle.id
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.job) == (str(raised.value), raised.value.job)


async def test_a_cancelled_job_and_an_unknown_one_have_no_result(app: App) -> None:
    @app.task
    def add() -> int:
        return 3

    handle = await add.enqueue()
    assert await handle.cancel()
    assert not await handle.cancel()
    with pytest.raises(JobCancelled, match="was cancelled"):
        await handle.result()
    with pytest.raises(JobUnknown, match="there is no job"):
        await add.handle(new_id()).result()


def test_a_retry_policy_and_exceptions_are_kept_as_given(app: App) -> None:
    @app.task(
        retry=Constant(3), retry_on=OSError, fail_on=[KeyError, IndexError], timeout=5, lease=timedelta(minutes=2)
    )
    def add() -> None: ...

    how = add.defaults
    assert (how.retry, how.retry_on, how.fail_on) == (Constant(3), (OSError,), (KeyError, IndexError))
    assert (how.timeout, how.lease) == (timedelta(seconds=5), timedelta(minutes=2))


def test_a_job_of_a_task_is_a_value_that_other_ways_of_enqueueing_take(app: App) -> None:
    @app.task(queue="mail")
    def send(to: str) -> None: ...

    job = send.job("ada")
    assert isinstance(job, NewJob)
    assert (job.task, job.queue, job.args) == ("send", "mail", {"to": "ada"})
