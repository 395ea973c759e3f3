"""A cancel reaches a running handler by a wake-up, long before a heartbeat is due; and waiting for it costs little."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from dibs.attempt import current
from dibs.job import Filter, State
from dibs.stores.memory import MemoryStore
from dibs.testing.flaky import FlakyStore
from dibs.worker import Stats, cancels
from tests.unit.working import Shop, until

DAY = timedelta(hours=24)
"""A lease that is renewed after eight hours: no heartbeat brings the news."""


class Listening(MemoryStore):
    """Counts the waits for cancels; they may end at once, for nothing."""

    def __init__(self, *, restless: bool = False) -> None:
        super().__init__()
        self.restless = restless
        self.waits: list[float] = []
        self.beats = 0

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        if worker is not None:
            self.waits.append(time.monotonic())
            if self.restless:
                return frozenset()
        return await super().wait(queues, timeout, worker)

    async def heartbeat(self, worker, claims, *more, **named):  # type: ignore[no-untyped-def]
        self.beats += bool(claims)
        return await super().heartbeat(worker, claims, *more, **named)


async def test_a_cancel_reaches_a_handler_whose_heartbeat_is_hours_away() -> None:
    shop = Shop()

    @shop.task
    async def hold() -> None:
        await asyncio.Event().wait()

    job = await shop.enqueue(hold)
    async with shop.working(lease=DAY) as worker:
        await until(lambda: worker.stats.started == 1)
        await shop.store.cancel(Filter(ids=(job,)))
        await until(lambda: worker.stats.cancelled == 1)
    assert (await shop.job(job)).state is State.CANCELLED


async def test_one_that_was_asked_before_anybody_waited_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store need not wake a wait that began after the cancel: the beat behind its beginning closes that gap."""

    class Forgetful(MemoryStore):
        async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
            self._asked.clear()
            return await super().wait(queues, timeout, worker)

    store, asked = Forgetful(), asyncio.Event()
    shop = Shop(lambda: store)

    @shop.task
    async def hold() -> None:
        await store.cancel(Filter(ids=(current().id,)))
        asked.set()
        await asyncio.Event().wait()

    await shop.enqueue(hold)
    async with shop.working(lease=DAY) as worker:
        await asked.wait()
        await until(lambda: worker.stats.cancelled == 1)


async def test_one_after_the_other_reaches_its_handler() -> None:
    shop = Shop()

    @shop.task
    async def hold() -> None:
        await asyncio.Event().wait()

    jobs = [await shop.enqueue(hold) for _ in range(4)]
    async with shop.working(lease=DAY) as worker:
        await until(lambda: worker.stats.started == 4)
        for number, job in enumerate(jobs, 1):
            await shop.store.cancel(Filter(ids=(job,)))
            await until(partial(_cancelled, worker.stats, number))


def _cancelled(stats: Stats, count: int) -> bool:
    return stats.cancelled == count


async def test_a_thread_learns_of_it_as_soon() -> None:
    shop = Shop()

    @shop.task
    def hold() -> None:
        attempt = current()
        while not attempt.cancelled:
            time.sleep(0.005)
        raise RuntimeError("stopped")

    job = await shop.enqueue(hold)
    async with shop.working(lease=DAY) as worker:
        await until(lambda: worker.stats.started == 1)
        await shop.store.cancel(Filter(ids=(job,)))
        await until(lambda: worker.stats.cancelled == 1)


async def test_nobody_waits_while_nothing_is_held_nor_for_quick_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancels, "PATIENCE", 5.0)
    store = Listening()
    shop = Shop(lambda: store)

    @shop.task
    async def quick() -> None: ...

    async with shop.working(lease=DAY) as worker:
        for _ in range(50):
            await shop.enqueue(quick)
        await until(lambda: worker.stats.succeeded == 50)
    assert (store.waits, store.beats) == ([], 0)


async def test_a_store_that_wakes_for_nothing_is_left_alone_ever_longer() -> None:
    store = Listening(restless=True)
    shop, release = Shop(lambda: store), asyncio.Event()

    @shop.task
    async def hold() -> None:
        await release.wait()

    await shop.enqueue(hold)
    async with shop.working(lease=DAY):
        await until(lambda: len(store.waits) >= 7)
        release.set()
    least = sum(cancels.FIRST_PAUSE * 2**n / 2 for n in range(6))
    assert store.waits[6] - store.waits[0] >= least


async def test_a_store_that_is_away_for_a_while_does_not_end_it() -> None:
    store = FlakyStore(MemoryStore())
    shop = Shop(lambda: store)

    @shop.task
    async def hold() -> None:
        await asyncio.Event().wait()

    job = await shop.enqueue(hold)
    store.fail_next("wait", times=4)
    async with shop.working(lease=DAY) as worker:
        await until(lambda: worker.stats.started == 1)
        await shop.store.cancel(Filter(ids=(job,)))
        await until(lambda: worker.stats.cancelled == 1)


async def test_where_the_loop_is_blocked_the_heartbeat_brings_the_news() -> None:
    shop, seen = Shop(), list[bool]()

    @shop.task
    async def block() -> None:
        attempt, end = current(), time.monotonic() + 10
        shop.store._asked.clear()  # type: ignore[attr-defined]
        await shop.store.cancel(Filter(ids=(attempt.id,)))
        while not attempt.cancelled and time.monotonic() < end:
            time.sleep(0.005)
        seen.append(attempt.cancelled)

    await shop.enqueue(block)
    await shop.drain(lease=timedelta(seconds=1))
    assert seen == [True]
