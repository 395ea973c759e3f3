"""How many jobs a worker claims, from which queue, how often it asks, and what it says about itself."""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dibs.attempt import current
from dibs.errors import ConfigurationError, SchemaError
from dibs.job import Claim, NewJob, State
from dibs.retry import Constant
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.worker.run import Run
from tests.unit.flying import Flight, flown
from tests.unit.working import STORES, Shop, opened_shop, until

NOW = Constant(0)
HOUR = Constant(3600)


@pytest_asyncio.fixture(params=STORES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened_shop(request.param, tmp_path) as shop:
        yield shop


# --- how many, and in which order ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_no_more_handlers_run_at_once_than_concurrency_allows(shop: Shop, kind: str) -> None:
    lock, running, most = threading.Lock(), 0, 0
    full = threading.Event()  # the first ones wait for as many as may run

    def enter(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)
            if running == 7:
                full.set()

    @shop.task
    async def on_loop() -> None:
        enter(1)
        await until(full.is_set)
        await asyncio.sleep(0.001)
        enter(-1)

    @shop.task
    def in_thread() -> None:
        enter(1)
        full.wait(30)
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
        self.asked: list[int] = []
        self.claims = 0
        self.waited_for = asyncio.Event()

    async def claim(self, queue: str, worker: str, limit: int, *more: Any, **named: Any) -> list[Claim]:
        self.asked.append(limit)
        self.claims += 1
        await asyncio.sleep(0.002)  # as long as a server takes
        return await super().claim(queue, worker, limit, *more, **named)

    async def wait(self, queues: Sequence[str], *more: Any, **named: Any) -> frozenset[str]:
        if queues:
            self.waited_for.set()
        return await super().wait(queues, *more, **named)


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
    assert max(store.asked) <= 1_100, "a thousand, and the free slots"
    assert max(store.asked) >= 300


async def test_a_fixed_prefetch_is_kept() -> None:
    store = Watched()
    shop = Shop(lambda: store)

    @shop.task
    async def nothing(number: int) -> None: ...

    await store.enqueue([nothing.job(number) for number in range(500)])
    await shop.drain(concurrency=10, prefetch=5)
    assert max(store.asked) == 15


@flown
async def test_a_queue_full_of_jobs_of_unknown_tasks_is_not_asked_all_the_time(flight: Flight) -> None:
    store = Watched()
    shop = Shop(lambda: store)

    @shop.task
    async def known() -> None: ...

    await store.enqueue([NewJob(task="unknown") for _ in range(10)])
    async with shop.working():
        await flight.fly(10)
        assert 10 < store.claims < 100
        job = await shop.enqueue(known)
        await until(lambda: _succeeded(shop, job), 30)


async def _succeeded(shop: Shop, job: Any) -> bool:
    return (await shop.job(job)).state is State.SUCCEEDED


@flown
async def test_an_idle_worker_asks_rarely_and_starts_a_new_job_at_once(flight: Flight) -> None:
    store = Watched()
    shop = Shop(lambda: store)
    started = asyncio.Event()

    @shop.task
    async def note() -> None:
        started.set()

    async with shop.working(queues=["default", "other"]):
        await flight.fly(60)
        assert 10 <= store.claims <= 20, "each queue once at first, and then every 7.5 to 10 seconds"
        await shop.enqueue(note, queue="other")
        await asyncio.wait_for(started.wait(), 6)  # the fallback alone would take 7.5 s or more


async def test_who_was_idle_claims_one_job_first_and_then_all_that_came_with_it() -> None:
    store = Watched()
    shop = Shop(lambda: store)
    ran: list[int] = []

    @shop.task
    async def note(number: int) -> None:
        ran.append(number)

    async with shop.working(concurrency=10):
        await store.waited_for.wait()
        asked = len(store.asked)
        await store.enqueue([note.job(number) for number in range(5)])
        await until(lambda: len(ran) == 5)
    assert store.asked[asked] == 1
    assert all(limit >= 9 for limit in store.asked[asked + 1 :])
    assert ran == list(range(5))


async def test_who_was_idle_claims_a_whole_batch() -> None:
    store = Watched()
    shop = Shop(lambda: store)
    calls: list[list[int]] = []

    @shop.task(batch=5)
    async def store_all(numbers: list[int]) -> None:
        calls.append(numbers)

    async with shop.working(concurrency=10):
        await store.waited_for.wait()
        await store.enqueue([store_all.job(number) for number in range(5)])
        await until(lambda: calls)
    assert calls == [[0, 1, 2, 3, 4]]


async def test_a_queue_that_comes_first_is_heard_while_another_is_busy_all_the_time(shop: Shop) -> None:
    started, over, asked = asyncio.Event(), False, set[str]()
    shop.open_store = partial(_noting_claims, shop.open_store, asked)

    @shop.task
    async def again() -> None:
        await asyncio.sleep(0.001)
        if not over:
            await shop.enqueue(again, queue="low")

    @shop.task
    async def urgent() -> None:
        started.set()

    async with shop.working(queues=["high", "low"]) as worker:
        await until(lambda: asked == {"high", "low"})  # both are found empty
        for _ in range(200):
            await shop.enqueue(again, queue="low")
        await until(lambda: worker.stats.succeeded > 500)
        await shop.enqueue(urgent, queue="high")
        await asyncio.wait_for(started.wait(), 6)
        over = True
        await until(lambda: worker.stats.succeeded == worker.stats.started)


def _noting_claims(open_store: Callable[[], Store], asked: set[str]) -> Store:
    """A store that remembers which queues it was asked for and had nothing in."""
    store = open_store()
    claim = store.claim

    async def noting(queue: str, *more: Any, **named: Any) -> list[Claim]:
        claims = await claim(queue, *more, **named)
        if not claims:
            asked.add(queue)
        return claims

    store.claim = noting  # type: ignore[method-assign]
    return store


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
    known = _runs()  # of other tests: an error that is raised and kept keeps what its traceback leads to

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
    # A thread that has just handed in what came of its call may not have come to let go of it.
    await until(lambda: not [run for run in _runs() if not any(run is one for one in known)])


def _runs() -> list[Run]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Run)]
