"""An app in memory for one test: what runs, when, and where."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

import dibs
from dibs import App, Constant, Fail, Handle, JobUnknown, Refused, Retry, Snooze, StoreUnavailable
from dibs.testing import LEASE, HandlerFailed, Harness, use_memory

app = App("postgresql://nobody@127.0.0.1:1/nowhere")  # nothing listens there
ran: list[tuple[str, object]] = []
mood: ContextVar[str] = ContextVar("mood", default="none")


@app.task
async def note(what: object) -> object:
    ran.append(("note", what))
    return what


@app.task
def plain(what: int) -> int:
    ran.append((threading.current_thread().name, what))
    return what * 2


@app.task
async def twice(what: int) -> None:
    await note.enqueue(what)
    await note.options(queue="elsewhere", delay=timedelta(days=1)).enqueue(what + 1)


@app.task(max_attempts=3, retry=Constant(timedelta(hours=1)))
async def third_time_lucky(what: int) -> str:
    attempt = dibs.current()
    ran.append(("try", attempt.attempt))
    if attempt.attempt < 3:
        raise ValueError(f"not yet {what}")
    return "at last"


@app.task(max_attempts=1)
async def signal(name: str) -> None:
    raise {"retry": Retry(5), "fail": Fail("broken"), "snooze": Snooze(60)}[name]


@app.task(executor="process", lease=timedelta(minutes=5))
def heavy(what: int) -> int:
    app.sync(note.enqueue("from heavy"))
    return what


@app.task(batch=10)
def several(items: list[int]) -> list[int | BaseException]:
    ran.append(("batch", tuple(items)))
    return [ValueError(f"bad {item}") if item < 0 else item for item in items]


@app.task
def feeling() -> str:
    return mood.get()


@pytest.fixture
def harness() -> Iterator[Harness]:
    ran.clear()
    with use_memory(app) as harness:
        yield harness


# --- the app ----------------------------------------------------------------------------------------------------


async def test_after_the_block_the_app_is_on_its_own_store_again(tmp_path: Path) -> None:
    own = App(f"sqlite:///{tmp_path}/own.db?migrate=auto")
    task = own.task(name="task")(lambda: None)
    hourly = task.options(delay=3600)  # made before
    before = await task.enqueue()
    with use_memory(own) as harness:
        inside = await hourly.enqueue()
        assert harness.job(inside).run_at == harness.now + timedelta(hours=1)
        with pytest.raises(JobUnknown, match="in this test's store"):
            harness.job(before)
    after = await hourly.enqueue()
    assert await inside.job() is None
    found = await after.job()
    assert found is not None and found.run_at < datetime.now(UTC) + timedelta(hours=1)
    await own.close()


def test_a_url_that_is_set_in_the_block_counts_after_it(tmp_path: Path) -> None:
    own = App("memory://")
    task = own.task(name="task")(lambda: None)
    with use_memory(own) as harness:
        own.url = f"sqlite:///{tmp_path}/own.db?migrate=auto"  # a factory that configures the app, say
        own.sync(task.enqueue())
        harness.assert_enqueued(task)
    assert not (tmp_path / "own.db").exists()
    own.sync(task.enqueue())
    assert (tmp_path / "own.db").exists()
    own.sync(own.close())


def test_an_app_in_memory_has_its_own_jobs_again() -> None:
    own = App("memory://")
    task = own.task(name="task")(lambda: None)
    before = own.sync(task.enqueue())
    with use_memory(own) as harness:
        assert harness.jobs() == []
    assert own.sync(before.job()) is not None


def test_blocks_within_blocks_are_apart() -> None:
    with use_memory(app) as outer:
        app.sync(note.enqueue(1))
        with use_memory(app) as inner:
            inner.assert_not_enqueued()
        outer.assert_enqueued(note, times=1)


def test_every_event_loop_and_thread_sees_the_same_jobs(harness: Harness) -> None:
    handle = asyncio.run(plain.enqueue(1))
    asyncio.run(harness.drain())
    app.sync(plain.enqueue(2))
    thread = threading.Thread(target=asyncio.run, args=[plain.enqueue(3)])
    thread.start()
    thread.join()
    harness.sync(harness.drain())
    assert asyncio.run(handle.result(0)) == 2
    assert [job.result for job in harness.jobs(plain)] == [2, 4, 6]


def test_the_clock_starts_just_ahead_of_real_time_or_where_it_is_told() -> None:
    with use_memory(app) as harness:
        assert timedelta(0) <= harness.now - datetime.now(UTC) <= timedelta(seconds=1)
    new_year = datetime(2030, 1, 1, tzinfo=UTC)
    with use_memory(app, now=new_year) as harness:
        assert harness.job(app.sync(note.options(delay=1).enqueue(1))).run_at == new_year + timedelta(seconds=1)


# --- drain ------------------------------------------------------------------------------------------------------


async def test_drain_runs_what_is_due_and_what_that_enqueues(harness: Harness) -> None:
    await twice.enqueue(1)
    done = await harness.drain()
    assert ran == [("note", 1)]
    assert done.succeeded == 2
    harness.advance(timedelta(days=1))
    await harness.drain()
    assert ran == [("note", 1), ("note", 2)]


async def test_jobs_run_one_after_the_other_in_their_order(harness: Harness) -> None:
    for number in range(5):
        await note.options(priority=-number).enqueue(number)
    await harness.drain()
    assert [what for _, what in ran] == [4, 3, 2, 1, 0]


async def test_an_exception_of_a_handler_is_raised_and_kept_with_the_job(harness: Harness) -> None:
    handle = await third_time_lucky.enqueue(7)
    other = await note.enqueue("later")
    with pytest.raises(ValueError, match="not yet 7") as failure:
        await harness.drain()
    assert failure.traceback[-1].name == "third_time_lucky"
    assert f"attempt 1 of job {handle.id} (third_time_lucky)" in failure.value.__notes__[0]
    assert [error.error for error in harness.job(handle).errors] == ["ValueError: not yet 7"]
    assert (harness.job(other).state, harness.job(other).attempts) == ("queued", 0)
    assert (await harness.drain()).succeeded == 1


async def test_without_raising_a_retry_waits_for_the_clock(harness: Harness) -> None:
    handle = await third_time_lucky.enqueue(1)
    assert (await harness.drain(raising=False)).retried == 1
    assert (await harness.drain(raising=False)).retried == 0
    harness.advance(timedelta(hours=1))
    assert (await harness.drain(raising=False)).retried == 1
    assert harness.job(handle).attempts == 2


async def test_until_done_moves_the_clock_from_due_time_to_due_time(harness: Harness) -> None:
    start, real = harness.now, monotonic()
    handle = await third_time_lucky.enqueue(1)
    await twice.enqueue(1)
    done = await harness.drain(until_done=True, raising=False)
    assert await handle.result(0) == "at last"
    assert (done.retried, done.succeeded) == (2, 4)
    assert harness.now == start + timedelta(days=1)
    assert monotonic() - real < 30


async def test_until_done_leaves_a_paused_queue_alone(harness: Harness) -> None:
    handle = await note.enqueue(1)
    await harness.store.pause("default")
    await harness.drain(until_done=True)
    assert harness.job(handle).state == "queued"


async def test_a_retry_or_snooze_on_purpose_is_no_error_but_a_failure_is(harness: Harness) -> None:
    await signal.options(max_attempts=2).enqueue("retry")
    await signal.enqueue("snooze")
    done = await harness.drain()
    assert (done.retried, done.snoozed) == (1, 1)
    broken = await signal.enqueue("fail")
    with pytest.raises(Fail, match="broken"):
        await harness.drain()
    assert [job.id for job in harness.failed()] == [broken.id]
    harness.advance(5)
    with pytest.raises(Retry):  # and no attempts left
        await harness.drain()


async def test_one_bad_item_of_a_batch_is_raised_in_words(harness: Harness) -> None:
    await several.enqueue_many([(1,), (-2,), (3,)])
    with pytest.raises(HandlerFailed, match="ValueError: bad -2") as failure:
        await harness.drain()
    assert ran == [("batch", (1, -2, 3))]
    assert failure.value.job is not None and failure.value.job.args == {"items": -2}


async def test_arguments_that_do_not_fit_are_raised_in_words(harness: Harness) -> None:
    await app.enqueue([dibs.NewJob(task="plain", args={"what": "text"})])
    with pytest.raises(HandlerFailed, match=r"the arguments do not fit the task: .*expected int, got str"):
        await harness.drain()


async def test_a_drain_that_does_not_end_gives_up(harness: Harness) -> None:
    @app.task
    async def again() -> None:
        await again.enqueue()

    try:
        await again.enqueue()
        with pytest.raises(TimeoutError, match=r"still running or due after 0\.1 s"):
            await harness.drain(timeout=0.1)
    finally:
        del app.tasks.by_name["again"]


async def test_a_task_for_a_process_runs_here_where_the_test_can_follow_it(harness: Harness) -> None:
    handle = await heavy.enqueue(3)
    await harness.drain()
    assert await handle.result(0) == 3
    assert ran == [("note", "from heavy")]


# --- without a loop ---------------------------------------------------------------------------------------------


def test_in_sync_plain_handlers_run_in_the_tests_own_thread_and_context(harness: Harness) -> None:
    app.sync(plain.enqueue(4))
    asked = app.sync(feeling.enqueue())
    mood.set("fine")
    harness.sync(harness.drain())
    assert ran == [(threading.current_thread().name, 4)]
    assert harness.job(asked).result == "fine"


def test_in_sync_a_plain_handler_can_use_app_sync(harness: Harness) -> None:
    app.sync(heavy.enqueue(1))
    harness.sync(harness.drain())
    assert ran == [("note", "from heavy")]


def test_in_sync_an_exception_is_raised_with_the_handlers_traceback(harness: Harness) -> None:
    app.sync(third_time_lucky.enqueue(7))
    with pytest.raises(ValueError, match="not yet 7") as failure:
        harness.sync(harness.drain())
    assert failure.traceback[-1].name == "third_time_lucky"
    assert failure.value.__context__ is None


def test_in_sync_a_handler_that_takes_too_long_is_said_so(harness: Harness) -> None:
    late = threading.Event()

    @app.task(timeout=0.05, name="slow")
    def slow() -> None:
        late.wait(0.5)

    try:
        app.sync(slow.enqueue())
        with pytest.raises(HandlerFailed, match=r"TimeoutError: the handler took longer than 0\.05 s"):
            harness.sync(harness.drain())
    finally:
        del app.tasks.by_name["slow"]


async def test_sync_in_a_loop_says_what_to_do(harness: Harness) -> None:
    with pytest.raises(RuntimeError, match="write await"):
        harness.sync(harness.drain())


def test_an_interrupt_in_sync_ends_the_drain(harness: Harness) -> None:
    @app.task
    def interrupted() -> None:
        raise KeyboardInterrupt

    try:
        app.sync(interrupted.enqueue())
        with pytest.raises(KeyboardInterrupt):
            harness.sync(harness.drain(raising=False))
    finally:
        del app.tasks.by_name["interrupted"]


# --- a worker beside --------------------------------------------------------------------------------------------


async def test_a_worker_beside_the_test_gives_results_to_code_that_waits(harness: Harness) -> None:
    with harness.working():
        assert await (await plain.enqueue(2)).result(30) == 4


def test_a_worker_beside_the_test_raises_at_the_end(harness: Harness) -> None:
    def wait_for_a_failure() -> None:
        handle = app.sync(signal.enqueue("fail"))
        assert app.sync(handle.ended(30)).state == "failed"

    with pytest.raises(Fail, match="broken"), harness.working():
        wait_for_a_failure()
    with harness.working(raising=False):
        wait_for_a_failure()


# --- trouble ----------------------------------------------------------------------------------------------------


async def test_after_a_crash_behind_the_run_the_job_runs_again_with_a_higher_epoch(harness: Harness) -> None:
    seen: list[tuple[int, int]] = []

    @app.middleware
    async def watch(attempt: dibs.Attempt, call_next: object) -> object:
        seen.append((attempt.attempt, attempt.epoch))
        return await call_next()  # type: ignore[operator]

    try:
        first, handle = await plain.enqueue(1), await plain.enqueue(2)
        job = await harness.crash(handle)
        assert (job.state, job.locked_until) == ("running", harness.now + LEASE)
        assert seen == [(1, 1)]
        await harness.drain()
        assert (harness.job(first).state, harness.job(handle).state) == ("succeeded", "running")
        harness.advance(LEASE)
        await harness.drain()
        assert seen == [(1, 1), (1, 1), (2, 2)]
        assert await handle.result(0) == 4
    finally:
        app.tasks.middleware.remove(watch)


def test_after_a_crash_behind_the_claim_nothing_has_run(harness: Harness) -> None:
    handle = app.sync(heavy.enqueue(2))
    job = harness.sync(harness.crash(handle, after="claim"))
    assert ran == []
    assert (job.attempts, job.epoch, job.locked_until) == (1, 1, harness.now + timedelta(minutes=5))
    harness.sync(harness.drain(until_done=True))
    assert (harness.job(handle).state, harness.job(handle).attempts, harness.job(handle).epoch) == ("succeeded", 2, 2)


async def test_what_an_enqueueing_handler_did_before_the_crash_is_there(harness: Harness) -> None:
    handle = await twice.enqueue(1)
    await harness.crash(handle, after="run")
    harness.assert_enqueued(note, what=1, times=1)
    harness.advance(LEASE)
    await harness.drain()
    harness.assert_enqueued(note, what=1, times=2)


async def test_a_job_of_a_batch_task_can_crash(harness: Harness) -> None:
    handle = await several.enqueue(1)
    await harness.crash(handle)
    assert ran == [("batch", (1,))]
    await several.enqueue(2)
    harness.advance(LEASE)
    await harness.drain()
    assert ran[1:] == [("batch", (1, 2))]


async def test_what_a_handler_raises_before_the_crash_dies_with_its_worker(harness: Harness) -> None:
    handle = await third_time_lucky.enqueue(1)
    job = await harness.crash(handle)
    assert (job.state, job.errors, ran) == ("running", (), [("try", 1)])


async def test_the_last_attempts_crash_fails_the_job(harness: Harness) -> None:
    handle = await signal.enqueue("retry")
    await harness.crash(handle, after="claim")
    harness.advance(LEASE)
    await harness.drain()
    [job] = harness.failed()
    assert (job.id, job.errors[-1].error) == (handle.id, "lease expired")


async def test_only_a_job_that_could_be_claimed_can_crash(harness: Harness) -> None:
    async def refused(handle: Handle[object]) -> str:
        with pytest.raises(Refused) as failure:
            await harness.crash(handle)
        return str(failure.value)

    assert "this app has no task theirs" in await refused(await app.send("theirs"))
    assert "not due before" in await refused(await note.options(delay=60).enqueue(1))
    done = await note.enqueue(1)
    await harness.crash(done, after="claim")
    assert "with a lease until" in await refused(done)
    await harness.drain(until_done=True)
    assert "succeeded already" in await refused(done)


async def test_the_store_can_fail_before_an_enqueue(harness: Harness) -> None:
    harness.fail_next("enqueue")
    with pytest.raises(StoreUnavailable, match="before it took effect"):
        await note.enqueue(1)
    harness.assert_not_enqueued()
    await note.enqueue(1)
    harness.assert_enqueued(note, times=1)


async def test_a_settle_whose_answer_got_lost_does_not_run_the_job_again(harness: Harness) -> None:
    handle = await note.enqueue(1)
    harness.fail_next("settle", after_effect=True)
    await harness.drain()
    assert ran == [("note", 1)]
    assert harness.job(handle).state == "succeeded"


# --- what it needs ----------------------------------------------------------------------------------------------


def test_it_needs_neither_pytest_nor_hypothesis() -> None:
    code = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import dibs
from dibs.testing import use_memory
app = dibs.App("memory://")
task = app.task(name="task")(lambda: None)
with use_memory(app) as harness:
    app.sync(task.enqueue())
    assert harness.sync(harness.drain()).succeeded == 1
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_drain_leaves_what_limits_hold_back_and_counts_it(harness_app: App) -> None:
    with use_memory(harness_app) as harness:
        ran: list[int] = []

        @harness_app.task(name="held")
        async def held(n: int) -> None:
            ran.append(n)

        await harness_app.limits.set(task=held, rate="2/min")
        for number in range(5):
            await held.enqueue(number)
        done = await harness.drain()
        assert (done.succeeded, done.held_back, ran) == (2, 3, [0, 1])
        start = harness.now
        done = await harness.drain(until_done=True)
        assert (done.succeeded, done.held_back, ran) == (3, 0, [0, 1, 2, 3, 4])
        assert harness.now - start == timedelta(seconds=90)


async def test_a_drain_until_done_says_that_a_limit_will_never_let_a_job_start(harness_app: App) -> None:
    with use_memory(harness_app) as harness:

        @harness_app.task(name="held")
        async def held() -> None: ...

        await harness_app.limits.set(task=held, concurrency=0)
        await held.enqueue()
        assert (await harness.drain()).held_back == 1
        with pytest.raises(AssertionError, match="jobs are left that limits hold back for ever: held"):
            await harness.drain(until_done=True)


@pytest.fixture
def harness_app() -> App:
    return App("memory://")
