"""Enqueueing many jobs as a stream."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from dibs import App, Filter, Refused, State
from dibs.job import Enqueued, NewJob
from dibs.sending import Sending
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


class Slow(MemoryStore):
    """Stores nothing before it is let, as a server might."""

    embedded = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.go = asyncio.Event()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self.asked.append(len(jobs))
        await self.go.wait()
        return await super().enqueue(jobs)


def pulled(count: int, seen: list[int]) -> Iterator[tuple[int]]:
    for number in range(count):
        seen.append(number)
        yield (number,)


async def test_the_next_chunk_of_many_is_made_while_one_is_stored_and_no_more() -> None:
    store, seen = Slow(), list[int]()
    app = App(store=store)

    @app.task
    def send(n: int) -> None: ...

    sending = asyncio.ensure_future(_awaited(send.enqueue_many(pulled(10, seen), chunk=3)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert (store.asked, seen) == ([3], [0, 1, 2, 3, 4, 5])
    store.go.set()
    assert await sending == 10
    assert store.asked == [3, 3, 3, 1]


async def _awaited(many: Sending[Any]) -> int:
    return await many


async def test_many_that_is_left_in_the_middle_sends_no_more_and_leaves_nothing_running() -> None:
    store, seen = Slow(), list[int]()
    store.go.set()
    app = App(store=store)

    @app.task
    def send(n: int) -> None: ...

    before = asyncio.all_tasks()
    async with aclosing(aiter(send.enqueue_many(pulled(10, seen), chunk=3))) as handles:  # type: ignore[type-var]
        async for handle in handles:
            assert handle.created
            store.go.clear()
            break
    assert asyncio.all_tasks() == before
    assert store.asked == [3]
    sending = asyncio.ensure_future(_awaited(send.enqueue_many(pulled(10, seen), chunk=3)))
    await asyncio.sleep(0.01)
    sending.cancel()
    await asyncio.wait([sending])
    assert asyncio.all_tasks() == before
    assert store.asked == [3, 3]


async def test_many_gives_the_handles_of_a_stream_although_its_next_call_does_not_come(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    async def stream() -> AsyncIterator[tuple[int]]:
        yield (1,)
        yield (2,)
        await asyncio.sleep(3600)

    async for handle in send.enqueue_many(stream(), chunk=2):
        assert handle.created
        break


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


def test_what_cannot_be_iterated_over_is_refused() -> None:
    app = App("memory://")

    @app.task
    def send(n: int) -> None: ...

    with pytest.raises(Refused, match="an iterable of calls, not int"):
        send.enqueue_many(3)  # type: ignore[arg-type]


async def test_a_hundred_thousand_jobs_from_a_generator_need_little_memory() -> None:
    class Counting(MemoryStore):
        """Keeps nothing, so that only what the sender keeps is measured."""

        stored = 0

        async def enqueue(self, jobs: Any) -> list[Enqueued]:
            self.stored += len(jobs)
            return [Enqueued(job.id, created=True) for job in jobs]

    store = Counting()
    app = App(store=store)

    @app.task
    def send(n: int) -> None: ...

    tracemalloc.start()
    try:
        assert await send.enqueue_many(send.job(n) for n in range(100_000)) == store.stored == 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000
