"""Judging: whatever a handler does, its job gets the outcome that says so, and is never left running."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dibs import signals
from dibs.attempt import Attempt, current
from dibs.job import NewJob, State
from dibs.retry import Constant
from dibs.worker import Stats
from tests.unit.working import STORES, Shop, opened_shop

NOW = Constant(0)


@pytest_asyncio.fixture(params=STORES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened_shop(request.param, tmp_path) as shop:
        yield shop


async def test_a_result_is_kept_with_the_job(shop: Shop) -> None:
    @shop.task
    async def double(number: int) -> int:
        return number * 2

    job = await shop.run_one(double, 21)
    assert (job.state, job.result, job.attempts) == (State.SUCCEEDED, 42, 1)


async def test_a_plain_function_runs_in_a_thread_and_sees_its_attempt(shop: Shop) -> None:
    @shop.task
    def where(text: str) -> list[Any]:
        import threading

        return [text, threading.current_thread() is threading.main_thread(), current().attempt, current().task]

    job = await shop.run_one(where, "x")
    assert job.result == ["x", False, 1, "where"]


async def test_contexts_do_not_leak_from_job_to_job(shop: Shop) -> None:
    from contextvars import ContextVar

    left: ContextVar[int] = ContextVar("left", default=0)
    seen: list[int] = []

    @shop.task
    async def leave(number: int) -> None:
        seen.append(left.get())
        left.set(number)

    @shop.task
    def leave_in_thread(number: int) -> None:
        seen.append(left.get())
        left.set(number)

    for number in range(1, 6):
        await shop.enqueue(leave, number)
        await shop.enqueue(leave_in_thread, number)
    await shop.drain(concurrency=1)
    assert seen == [0] * 10


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        RecursionError("deep"),
        MemoryError(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_ends_other_programs_is_only_an_attempt(shop: Shop, error: BaseException, kind: str) -> None:
    @shop.task(retry=NOW, max_attempts=3)
    async def on_loop() -> None:
        raise error

    @shop.task(retry=NOW, max_attempts=3)
    def in_thread() -> None:
        raise error

    @shop.task
    async def fine() -> None: ...

    bad = await shop.enqueue(on_loop if kind == "async" else in_thread)
    good = await shop.enqueue(fine)
    stats = await shop.drain()
    job = await shop.job(bad)
    assert (job.state, job.attempts) == (State.FAILED, 3), "exactly as many attempts as allowed"
    assert len(job.errors) == 3
    assert job.errors[0].error.startswith(type(error).__name__)
    assert (await shop.job(good)).state is State.SUCCEEDED
    assert stats == Stats(started=4, succeeded=1, failed=1, retried=2)


async def test_real_recursion_is_an_attempt(shop: Shop) -> None:
    @shop.task(max_attempts=1)
    async def fall() -> None:
        def deeper() -> None:
            deeper()

        deeper()

    job = await shop.run_one(fall)
    assert job.errors[0].error.startswith("RecursionError: ")
    assert len(job.errors[0].traceback) < 20_000


async def test_a_stop_iteration_from_a_thread_ends_the_attempt(shop: Shop) -> None:
    @shop.task(max_attempts=1)
    def empty() -> None:
        next(iter([]))

    job = await shop.run_one(empty)
    assert job.state is State.FAILED
    assert "StopIteration" in job.errors[0].error


async def test_an_error_is_named_with_the_frames_of_the_user_only(shop: Shop) -> None:
    @shop.task(max_attempts=1)
    async def divide(by: int) -> float:
        return 1 / by

    job = await shop.run_one(divide, 0)
    [error] = job.errors
    assert error.error == "ZeroDivisionError: division by zero"
    assert "return 1 / by" in error.traceback
    assert "dibs/worker" not in error.traceback
    assert error.traceback.startswith("Traceback")


async def test_an_exception_that_cannot_be_printed_is_one_all_the_same(shop: Shop) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    @shop.task(max_attempts=1)
    async def mute() -> None:
        raise Mute

    job = await shop.run_one(mute)
    assert job.state is State.FAILED
    assert job.errors[0].error.startswith("Mute: ")


async def test_a_signal_says_what_it_means(shop: Shop) -> None:
    @shop.task
    async def act(how: str) -> None:
        match how:
            case "fail":
                raise signals.Fail("no such user")
            case "snooze":
                raise signals.Snooze(3600)
            case "retry":
                raise signals.Retry(timedelta(hours=2), "later")
            case "policy":
                raise signals.Retry(reason="as usual")

    jobs = {how: await shop.run_one(act, how) for how in ("fail", "snooze", "retry", "policy")}
    assert jobs["fail"].state is State.FAILED
    assert jobs["fail"].errors[0].error == "no such user"
    assert (jobs["snooze"].state, jobs["snooze"].attempts, jobs["snooze"].errors) == (State.QUEUED, 0, ())
    assert jobs["snooze"].run_at - jobs["snooze"].created_at >= timedelta(seconds=3600)
    assert (jobs["retry"].state, jobs["retry"].attempts) == (State.QUEUED, 1)
    assert jobs["retry"].run_at - jobs["retry"].created_at >= timedelta(hours=2)
    assert jobs["retry"].errors[0].error == "later"
    assert timedelta(0) < jobs["policy"].run_at - jobs["policy"].created_at < timedelta(seconds=5)


async def test_fail_on_is_stronger_than_retry_on_and_others_fail(shop: Shop) -> None:
    @shop.task(retry=Constant(3600), retry_on=(LookupError, OSError), fail_on=KeyError)
    async def act(which: str) -> None:
        raise {"key": KeyError, "index": IndexError, "value": ValueError}[which](which)

    states = {which: (await shop.run_one(act, which)).state for which in ("key", "index", "value")}
    assert states == {"key": State.FAILED, "index": State.QUEUED, "value": State.FAILED}


async def test_a_retry_rule_of_the_user_decides_and_its_own_error_fails_the_job(shop: Shop) -> None:
    def rule(attempt: int, error: BaseException) -> float | None:
        if str(error) == "bug":
            raise RuntimeError("in the rule")
        return None if str(error) == "hopeless" else 3600

    @shop.task(retry=rule)
    async def act(text: str) -> None:
        raise ValueError(text)

    states = {text: (await shop.run_one(act, text)).state for text in ("hopeless", "bug", "x")}
    assert states == {"hopeless": State.FAILED, "bug": State.FAILED, "x": State.QUEUED}


def _note(told: list[str], event: str, attempt: Attempt, outcome: object) -> None:
    told.append(event)


async def test_a_result_that_cannot_be_stored_fails_the_job_with_that_reason(shop: Shop) -> None:
    @shop.task
    async def give(what: str) -> Any:
        return {"object": object(), "nan": float("nan"), "huge": "x" * (2 << 20), "surrogate": "\ud800"}[what]

    told: list[str] = []
    for event in ("succeeded", "failed"):
        shop.on(event)(partial(_note, told, event))
    for what in ("object", "nan", "huge", "surrogate"):
        job = await shop.run_one(give, what)
        assert job.state is State.FAILED, what
        assert "result" in job.errors[0].error
    assert told == ["failed"] * 4, "hooks hear what the store has"


async def test_arguments_that_no_longer_fit_fail_the_job_and_say_which(shop: Shop) -> None:
    @shop.task
    async def resize(size: int) -> None: ...

    @shop.task
    def resize_in_thread(size: int) -> None: ...

    for task in ("resize", "resize_in_thread"):
        [sent] = await shop.store.enqueue([NewJob(task=task, args={"size": "large"})])
        await shop.drain()
        job = await shop.job(sent.id)
        assert job.state is State.FAILED
        assert "do not fit" in job.errors[0].error
        assert "size" in job.errors[0].error
        assert job.attempts == 1


async def test_a_job_of_an_unknown_task_is_left_alone(shop: Shop) -> None:
    @shop.task
    async def known() -> None: ...

    [sent] = await shop.store.enqueue([NewJob(task="of somebody else")])
    await shop.run_one(known)
    job = await shop.job(sent.id)
    assert (job.state, job.attempts) == (State.QUEUED, 0)


async def test_drain_runs_what_handlers_enqueue_and_leaves_what_is_not_due(shop: Shop) -> None:
    @shop.task
    async def chain(number: int) -> None:
        if number:
            await shop.enqueue(chain, number - 1)

    later = await shop.enqueue(chain, 0, delay=3600)
    await shop.enqueue(chain, 4)
    stats = await shop.drain()
    assert stats.succeeded == 5
    assert (await shop.job(later)).state is State.QUEUED


async def test_drain_runs_a_job_that_a_running_handler_waits_for(shop: Shop) -> None:
    done = asyncio.Event()

    @shop.task
    async def inner() -> None:
        done.set()

    @shop.task
    async def outer() -> None:
        await shop.enqueue(inner)
        await done.wait()

    await shop.enqueue(outer)
    assert (await shop.drain()).succeeded == 2


async def test_what_is_said_reaches_the_store_while_the_handler_runs(shop: Shop) -> None:
    @shop.task(lease=1)
    async def talk() -> str:
        current().progress(0.5, "half way")
        while True:
            job = await shop.store.get(current().id)
            if job is not None and job.report.progress is not None:
                return job.report.note
            await asyncio.sleep(0.01)

    assert (await shop.run_one(talk)).result == "half way"


@pytest.mark.parametrize(
    "nonsense", ["half", None, float("nan"), object(), 10**400], ids=["text", "none", "nan", "object", "huge"]
)
async def test_nonsense_in_a_report_harms_nobody(shop: Shop, nonsense: Any) -> None:
    @shop.task
    async def talk() -> None:
        current().progress(nonsense, nonsense)
        current().log(nonsense)

    job = await shop.run_one(talk)
    assert job.state is State.SUCCEEDED
    assert len(job.report.log) == 1


async def test_logs_and_progress_of_all_attempts_stay_with_the_job(shop: Shop) -> None:
    @shop.task(retry=NOW)
    async def talk() -> None:
        attempt = current()
        attempt.log(f"attempt {attempt.attempt}")
        attempt.progress(attempt.attempt / 2, "going")
        if attempt.attempt == 1:
            raise ValueError

    job = await shop.run_one(talk)
    assert [line.text for line in job.report.log] == ["attempt 1", "attempt 2"]
    assert (job.report.progress, job.report.note) == (1.0, "going")
