"""How handlers are called: in batches, in processes, through middleware; who hears of it; which first, how many."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dibs import signals
from dibs.attempt import Attempt, current
from dibs.job import NewJob, State
from dibs.outcome import Outcome, Retry, Succeeded
from dibs.retry import Constant
from tests.unit import handlers_for_processes as handlers
from tests.unit.working import STORES, Shop, opened_shop, until

NOW = Constant(0)
HOUR = Constant(3600)


@pytest_asyncio.fixture(params=STORES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened_shop(request.param, tmp_path) as shop:
        yield shop


# --- batches ------------------------------------------------------------------------------------------------


async def test_a_batch_task_gets_what_is_at_hand_in_one_call(shop: Shop) -> None:
    calls: list[list[int]] = []
    seen: list[int] = []

    @shop.task(batch=10)
    async def store(items: list[int]) -> None:
        calls.append(items)
        together = current().batch
        assert all(each.batch is together for each in together), "a list for each would be n² of them"
        seen.append(len(together))

    ids = [await shop.enqueue(store, number) for number in range(25)]
    stats = await shop.drain()
    assert [len(call) for call in calls] == [10, 10, 5]
    assert sorted(item for call in calls for item in call) == list(range(25))
    assert seen == [10, 10, 5]
    assert stats.succeeded == 25
    assert {(await shop.job(each)).state for each in ids} == {State.SUCCEEDED}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_batch_may_give_each_job_its_own_outcome(shop: Shop, kind: str) -> None:
    answers: list[Any] = [
        7,
        ValueError("bad"),
        signals.Fail("no"),
        signals.Snooze(60),
        signals.Retry(60, "again"),
        None,
    ]

    async def on_loop(items: list[int]) -> list[Any]:
        return [answers[item] for item in items]

    def in_thread(items: list[int]) -> list[Any]:
        return [answers[item] for item in items]

    task = shop.task(on_loop if kind == "async" else in_thread, batch=100, retry=HOUR)
    ids = [await shop.enqueue(task, number) for number in range(6)]
    stats = await shop.drain()
    jobs = [await shop.job(each) for each in ids]
    queued = State.QUEUED
    assert [job.state for job in jobs] == [State.SUCCEEDED, queued, State.FAILED, queued, queued, State.SUCCEEDED]
    assert [job.result for job in jobs] == [7, None, None, None, None, None]
    assert [job.attempts for job in jobs] == [1, 1, 1, 0, 1, 1]
    assert jobs[1].errors[0].error == "ValueError: bad"
    assert (stats.succeeded, stats.retried, stats.failed, stats.snoozed) == (2, 2, 1, 1)


async def test_a_batch_that_raises_counts_for_all_of_its_jobs(shop: Shop) -> None:
    @shop.task(batch=3, max_attempts=1)
    async def store(items: list[int]) -> None:
        raise OSError("full")

    ids = [await shop.enqueue(store, number) for number in range(3)]
    await shop.drain()
    assert [(await shop.job(each)).errors[0].error for each in ids] == ["OSError: full"] * 3


async def test_a_batch_that_answers_for_too_few_fails_all_and_says_so(shop: Shop) -> None:
    @shop.task(batch=3)
    async def store(items: list[int]) -> list[int]:
        return items[1:]

    ids = [await shop.enqueue(store, number) for number in range(3)]
    await shop.drain()
    errors = [(await shop.job(each)).errors[0].error for each in ids]
    assert errors == ["a batch task returns None or a list of 3 results here, not 2 of them"] * 3


async def test_one_job_of_a_batch_whose_arguments_do_not_fit_fails_alone(shop: Shop) -> None:
    @shop.task(batch=10)
    async def store(items: list[int]) -> None: ...

    good = await shop.enqueue(store, 1)
    [bad] = await shop.store.enqueue([NewJob(task="store", args={"items": "one"})])
    await shop.drain()
    assert (await shop.job(good)).state is State.SUCCEEDED
    assert (await shop.job(bad.id)).state is State.FAILED


async def test_a_batch_is_claimed_with_few_slots_too(shop: Shop) -> None:
    sizes: list[int] = []

    @shop.task(batch=50)
    async def store(items: list[int]) -> None:
        sizes.append(len(items))

    for number in range(200):
        await shop.enqueue(store, number)
    await shop.drain(concurrency=1)
    assert sizes == [50] * 4


# --- processes ----------------------------------------------------------------------------------------------


async def test_handlers_in_processes_end_in_every_way(shop: Shop) -> None:
    inside = {"executor": "process", "max_attempts": 1}
    tasks = {name: shop.task(getattr(handlers, name), **inside) for name in ("add", "where", "snooze", "divide", "die")}
    tasks["sleep"] = shop.task(handlers.sleep, timeout=0.5, **inside)
    tasks["each"] = shop.task(handlers.each, batch=10, **inside)
    ids = {
        "add": await shop.enqueue(tasks["add"], 40, 2),
        "where": await shop.enqueue(tasks["where"]),
        "snooze": await shop.enqueue(tasks["snooze"]),
        "divide": await shop.enqueue(tasks["divide"], 0),
        "die": await shop.enqueue(tasks["die"]),
        "sleep": await shop.enqueue(tasks["sleep"]),
        "two": await shop.enqueue(tasks["each"], 2),
        "zero": await shop.enqueue(tasks["each"], 0),
    }
    await shop.drain(processes=2)
    jobs = {name: await shop.job(each) for name, each in ids.items()}
    assert jobs["add"].result == 42
    assert [line.text for line in jobs["add"].report.log] == ["adding"]
    assert jobs["where"].result not in (None, os.getpid())
    assert (jobs["snooze"].state, jobs["snooze"].attempts) == (State.QUEUED, 0)
    assert jobs["divide"].errors[0].error == "ZeroDivisionError: division by zero"
    assert "1 / by" in jobs["divide"].errors[0].traceback
    assert "code 7" in jobs["die"].errors[0].error
    assert "TimeoutError" in jobs["sleep"].errors[0].error
    assert jobs["two"].result == 4
    assert jobs["zero"].errors[0].error == "ValueError: zero"
    finished = {name: job.state for name, job in jobs.items() if name != "snooze"}
    assert set(finished.values()) == {State.SUCCEEDED, State.FAILED}


async def test_no_more_jobs_for_processes_are_claimed_than_there_are_processes(shop: Shop) -> None:
    task = shop.task(handlers.sleep, executor="process", timeout=1, max_attempts=1)
    for _ in range(5):
        await shop.enqueue(task)
    async with shop.working(processes=2) as worker:
        await until(lambda: worker.stats.started == 2)
        [queue] = await shop.store.counts()
        assert queue.states[State.RUNNING] == 2
        worker.stop(now=True)
    [queue] = await shop.store.counts()
    assert queue.states[State.RUNNING] == 0


async def test_a_handler_that_a_child_cannot_import_fails_its_job_and_says_so(shop: Shop) -> None:
    def hidden() -> None: ...

    job = await shop.run_one(shop.task(hidden, executor="process"))
    assert job.state is State.FAILED
    assert "hidden" in job.errors[0].error


# --- middleware and hooks -----------------------------------------------------------------------------------


async def test_middleware_wraps_every_attempt_the_first_outermost(shop: Shop) -> None:
    steps: list[str] = []

    @shop.task
    async def on_loop() -> str:
        steps.append("handler")
        return "x"

    @shop.task
    def in_thread() -> str:
        return "y"

    @shop.middleware
    async def outer(attempt: Attempt, call_next: Any) -> Any:
        steps.append(f"outer {attempt.task}")
        return (await call_next()) + "!"

    @shop.middleware
    async def inner(attempt: Attempt, call_next: Any) -> Any:
        assert current() is attempt
        steps.append("inner")
        return (await call_next()) + "?"

    assert (await shop.run_one(on_loop)).result == "x?!"
    assert steps == ["outer on_loop", "inner", "handler"]
    assert (await shop.run_one(in_thread)).result == "y?!"


async def test_what_middleware_raises_counts_for_the_attempt(shop: Shop) -> None:
    @shop.task
    async def fine() -> None: ...

    @shop.middleware
    async def forbid(attempt: Attempt, call_next: Any) -> Any:
        raise signals.Fail("not on Sundays")

    job = await shop.run_one(fine)
    assert job.errors[0].error == "not on Sundays"


async def test_hooks_hear_of_everything_and_their_errors_harm_nobody(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str, type[Outcome] | None]] = []
    turns: list[str] = []

    @shop.task(retry=NOW, max_attempts=2)
    async def act(how: str) -> None:
        if how == "bad":
            raise ValueError

    for event in ("started", "succeeded", "failed", "retried"):

        def plain(attempt: Attempt, outcome: Outcome | None, event: str = event) -> None:
            heard.append((event, None if outcome is None else type(outcome)))
            raise RuntimeError("in a hook")

        shop.on(event)(plain)

    @shop.on("succeeded")
    async def slow(attempt: Attempt, outcome: Outcome) -> None:
        await asyncio.sleep(0)
        turns.append(attempt.task)
        raise RuntimeError("in an async hook")

    @shop.on("startup")
    async def up() -> None:
        turns.append("startup")

    @shop.on("shutdown")
    def down() -> None:
        turns.append("shutdown")

    await shop.enqueue(act, "good")
    await shop.enqueue(act, "bad")
    stats = await shop.drain()
    assert Counter(heard) == {
        ("started", None): 3,
        ("succeeded", Succeeded): 1,
        ("retried", Retry): 1,
        ("failed", Retry): 1,
    }
    assert turns == ["startup", "act", "shutdown"]
    assert (stats.succeeded, stats.failed) == (1, 1)
    assert "in an async hook" in caplog.text
