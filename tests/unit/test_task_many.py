"""Enqueueing many jobs as a stream."""

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dibs import App, Filter, Refused, State
from dibs.job import Enqueued
from dibs.stores.memory import MemoryStore


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_many_takes_jobs_tuples_and_dicts_from_any_iterable(app: App) -> None:
    @app.task
    def send(to: str, size: int = 1) -> None: ...

    assert await send.enqueue_many([send.job("a", size=2), ("b", 3), {"to": "c"}]) == 3
    found = (await (await app.store()).find(Filter())).jobs
    assert [job.args for job in reversed(found)] == [{"to": "a", "size": 2}, {"to": "b", "size": 3}, {"to": "c"}]


async def test_many_goes_in_chunks_and_tells_how_far_it_is(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    async def numbers() -> AsyncIterator[tuple[int]]:
        for n in range(25):
            yield (n,)

    told: list[int] = []
    assert await send.enqueue_many(numbers(), chunk=10, progress=told.append) == 25
    assert told == [10, 20, 25]


async def test_many_counts_what_was_created_and_gives_a_handle_for_each_call(app: App) -> None:
    @app.task(key="{n}")
    def send(n: int) -> None: ...

    assert await send.enqueue_many((n % 3,) for n in range(9)) == 3
    handles = [handle async for handle in send.enqueue_many((n,) for n in range(5))]
    assert [handle.created for handle in handles] == [False, False, False, True, True]


async def test_a_call_that_does_not_fit_stops_many_after_the_chunks_before_it(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    @app.task
    def other() -> None: ...

    bad: Any
    for bad, message in (("x", "takes task.job"), (("x",), "send: n: expected int"), (other.job(), "another task")):
        with pytest.raises(Refused, match=message):
            await send.enqueue_many([(1,), (2,), (3,), bad], chunk=2)
    [counts] = await (await app.store()).counts()
    assert counts.states[State.QUEUED] == 3 * 2


async def test_what_a_store_refuses_of_many_is_named_too(app: App) -> None:
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(Refused, match="send: to must not hold NUL"):
        await send.enqueue_many([("a",), ("b\0",)])


async def test_many_that_nobody_awaits_says_so(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    forgotten = send.enqueue_many([(1,)])
    with pytest.warns(RuntimeWarning, match="never awaited"):
        del forgotten
    sending = send.enqueue_many([(1,)])
    await sending
    with pytest.raises(RuntimeError, match="sent already"):
        await sending


async def test_a_hundred_thousand_jobs_from_a_generator_need_little_memory() -> None:
    class Counting(MemoryStore):
        """Keeps nothing, so that only what the sender keeps is measured."""

        count = 0

        async def enqueue(self, jobs: Any) -> list[Enqueued]:
            self.count += len(jobs)
            return [Enqueued(job.id, created=True) for job in jobs]

    store = Counting()
    app = App(store=store)

    @app.task
    def send(n: int) -> None: ...

    tracemalloc.start()
    try:
        assert await send.enqueue_many(send.job(n) for n in range(100_000)) == store.count == 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000
