"""How handlers are called: in batches, in processes, through middleware; who hears of it; which first, how many."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dibs import signals
from dibs.attempt import Attempt, current
from dibs.errors import ConfigurationError, SchemaError
from dibs.job import Claim, NewJob, State
from dibs.outcome import Outcome, Retry, Succeeded
from dibs.retry import Constant
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
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
        seen.append(len(current().batch))

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


# --- how many, and in which order ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_no_more_handlers_run_at_once_than_concurrency_allows(shop: Shop, kind: str) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def enter(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    @shop.task
    async def on_loop() -> None:
        enter(1)
        await asyncio.sleep(0.001)
        enter(-1)

    @shop.task
    def in_thread() -> None:
        enter(1)
        threading.Event().wait(0.001)
        enter(-1)

    for _ in range(100):
        await shop.enqueue(on_loop if kind == "async" else in_thread)
    await shop.drain(concurrency=7)
    assert most == 7


async def test_a_list_of_queues_is_served_in_its_order(shop: Shop) -> None:
    order: list[str] = []

    @shop.task
    async def note(queue: str) -> None:
        order.append(queue)

    for queue in ("low", "high", "middle"):
        for _ in range(5):
            await shop.enqueue(note, queue, queue=queue)
    await shop.drain(queues=["high", "middle", "low"], concurrency=1)
    assert order == ["high"] * 5 + ["middle"] * 5 + ["low"] * 5


async def test_weights_share_among_queues_and_none_starves(shop: Shop) -> None:
    order: list[str] = []

    @shop.task
    async def note(queue: str) -> None:
        order.append(queue)

    for queue in ("a", "b", "c"):
        for _ in range(600):
            await shop.enqueue(note, queue, queue=queue)
    await shop.drain(queues={"a": 6, "b": 3, "c": 1}, concurrency=5, prefetch=20)
    shares = Counter(order[:900])
    assert 500 <= shares["a"] <= 580
    assert 230 <= shares["b"] <= 310
    assert 60 <= shares["c"] <= 130
    assert Counter(order) == {"a": 600, "b": 600, "c": 600}


class Watched(MemoryStore):
    """Remembers what was claimed."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []
        self.claims = 0

    async def claim(self, queue: str, worker: str, limit: int, *more: Any, **named: Any) -> list[Claim]:
        self.limits.append(limit)
        self.claims += 1
        await asyncio.sleep(0.002)  # as long as a server takes
        return await super().claim(queue, worker, limit, *more, **named)


async def test_slow_jobs_are_not_hoarded() -> None:
    store = Watched()
    shop = Shop(lambda: store)
    release, running = asyncio.Event(), 0

    @shop.task
    async def hold() -> None:
        nonlocal running
        running += 1
        await release.wait()

    for _ in range(100):
        await shop.enqueue(hold)
    async with shop.working(concurrency=10):
        await until(lambda: running == 10)
        [queue] = await store.counts()
        assert queue.states[State.RUNNING] == 10, "no more are claimed than run"
        release.set()
        await until(lambda: running == 100)


async def test_at_full_speed_claims_come_in_hundreds_but_never_in_more_than_a_thousand() -> None:
    store = Watched()
    shop = Shop(lambda: store)

    @shop.task
    async def nothing(number: int) -> None: ...

    await store.enqueue([nothing.job(number) for number in range(10_000)])
    await shop.drain()
    assert max(store.limits) <= 1_100, "a thousand, and the free slots"
    assert max(store.limits) >= 300


async def test_a_fixed_prefetch_is_kept() -> None:
    store = Watched()
    shop = Shop(lambda: store)

    @shop.task
    async def nothing(number: int) -> None: ...

    await store.enqueue([nothing.job(number) for number in range(500)])
    await shop.drain(concurrency=10, prefetch=5)
    assert max(store.limits) == 15


async def test_a_queue_full_of_jobs_of_unknown_tasks_is_not_asked_all_the_time() -> None:
    store = Watched()
    shop = Shop(lambda: store)

    @shop.task
    async def known() -> None: ...

    await store.enqueue([NewJob(task="unknown") for _ in range(10)])
    async with shop.working():
        await asyncio.sleep(1.0)
        assert store.claims < 15
        job = await shop.enqueue(known)
        await until(lambda: _succeeded(shop, job), 2)


async def _succeeded(shop: Shop, job: Any) -> bool:
    return (await shop.job(job)).state is State.SUCCEEDED


async def test_an_idle_worker_asks_rarely_and_starts_a_new_job_at_once() -> None:
    store = Watched()
    shop = Shop(lambda: store)
    started = asyncio.Event()

    @shop.task
    async def note() -> None:
        started.set()

    async with shop.working(queues=["default", "other"]):
        await asyncio.sleep(0.5)
        assert store.claims <= 4
        loop = asyncio.get_running_loop()
        before = loop.time()
        await shop.enqueue(note, queue="other")
        await asyncio.wait_for(started.wait(), 5)
        assert loop.time() - before < 0.1


async def test_a_queue_that_comes_first_is_heard_while_another_is_busy_all_the_time(shop: Shop) -> None:
    started, over = asyncio.Event(), False

    @shop.task
    async def again() -> None:
        await asyncio.sleep(0.001)
        if not over:
            await shop.enqueue(again, queue="low")

    @shop.task
    async def urgent() -> None:
        started.set()

    async with shop.working(queues=["high", "low"]) as worker:
        await asyncio.sleep(0.1)  # both are found empty
        for _ in range(200):
            await shop.enqueue(again, queue="low")
        await until(lambda: worker.stats.succeeded > 500)
        await shop.enqueue(urgent, queue="high")
        await asyncio.wait_for(started.wait(), 2)
        over = True
        await until(lambda: worker.stats.succeeded == worker.stats.started)


async def test_a_drain_on_a_clock_that_stands_still_ends() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    shop = Shop(lambda: store)

    @shop.task(retry=Constant(60))
    async def flaky() -> None:
        if current().attempt == 1:
            raise ValueError

    job = await shop.enqueue(flaky)
    assert (await shop.drain()).retried == 1
    assert (await shop.drain()).started == 0, "its retry is not due"
    clock.now = (await shop.job(job)).run_at
    assert (await shop.drain()).succeeded == 1


# --- settings and starts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"queues": []},
        {"queues": "default"},
        {"queues": {"default": 0}},
        {"queues": ["\n"]},
        {"concurrency": 0},
        {"prefetch": -1},
        {"name": " "},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Shop().worker(**settings)


async def test_a_store_that_cannot_be_worked_with_is_the_callers_business() -> None:
    class Wrong(MemoryStore):
        async def setup(self) -> None:
            raise SchemaError("run dibs migrate up")

    wrong = Wrong()
    with pytest.raises(SchemaError):
        await Shop(lambda: wrong).worker().run()


async def test_a_worker_shows_itself_with_what_it_serves(shop: Shop) -> None:
    @shop.task
    async def nothing() -> None: ...

    async with shop.working(queues={"a": 2, "b": 1}, name="me"):
        await until(shop.store.workers)
        [info] = await shop.store.workers()
    assert info.name == "me"
    assert info.info["pid"] == os.getpid()
    assert info.info["queues"] == {"a": 2, "b": 1}
    assert info.info["tasks"] == ["nothing"]


async def test_a_worker_leaves_no_task_and_no_run_behind(shop: Shop) -> None:
    import gc

    from dibs.worker.run import Run

    @shop.task
    async def nothing() -> None: ...

    @shop.task(max_attempts=1)
    def bad() -> None:
        raise ValueError

    for _ in range(50):
        await shop.enqueue(nothing)
        await shop.enqueue(bad)
    await shop.drain()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Run)]
