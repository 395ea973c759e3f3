"""Handlers that never wait share an asyncio task for a moment: nobody may notice."""

import asyncio
import gc
import time
from contextvars import ContextVar
from typing import Any

import pytest

from dibs.attempt import current
from dibs.job import State
from dibs.task import Task
from dibs.worker import collect_less_often
from dibs.worker.run import Run
from dibs.worker.running import TURN
from tests.unit.working import Shop, until

JOBS = 60


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_they_share_tasks_and_nothing_else(shop: Shop) -> None:
    left_behind: ContextVar[int | None] = ContextVar("left_behind", default=None)
    found: list[int | None] = []
    ids: list[str] = []
    tasks: set[asyncio.Task[object] | None] = set()

    @shop.task
    async def brief(number: int) -> int:
        found.append(left_behind.get())
        left_behind.set(number)
        ids.append(str(current().id))
        tasks.add(asyncio.current_task())
        return number

    jobs = [await shop.enqueue(brief, number) for number in range(JOBS)]
    await shop.drain(concurrency=10)
    assert len(tasks) < JOBS / 2
    assert found == [None] * JOBS
    assert ids == [str(each) for each in jobs]
    assert [(await shop.job(each)).result for each in jobs] == list(range(JOBS))


async def test_one_that_waits_after_all_has_the_task_to_itself(shop: Shop) -> None:
    told: ContextVar[int] = ContextVar("told")
    release = asyncio.Event()
    waiting: dict[int, asyncio.Task[object] | None] = {}
    ended: list[int] = []

    @shop.task
    async def now_and_then(number: int) -> None:
        told.set(number)
        if number % 7 == 3:
            waiting[number] = asyncio.current_task()
            await release.wait()
            assert asyncio.current_task() is waiting[number]
            assert current().args == {"number": number}
        assert told.get() == number
        ended.append(number)

    jobs = [await shop.enqueue(now_and_then, number) for number in range(JOBS)]
    those = [number for number in range(JOBS) if number % 7 == 3]
    async with shop.working(concurrency=20):
        await until(lambda: len(ended) + len(waiting) == JOBS)
        names = {task.get_name() for task in waiting.values() if task is not None}
        assert sorted(waiting) == those
        assert len(set(waiting.values())) == len(those)
        assert names == {"now_and_then"}
        release.set()
        await until(lambda: len(ended) == JOBS)
    assert {(await shop.job(each)).state for each in jobs} == {State.SUCCEEDED}


async def test_a_timeout_ends_the_one_that_waits_and_no_other(shop: Shop) -> None:
    @shop.task(timeout=0.02, max_attempts=1)
    async def stuck_at_times(number: int) -> int:
        if number == 5:
            await asyncio.Event().wait()
        return number

    jobs = [await shop.enqueue(stuck_at_times, number) for number in range(10)]
    await shop.drain()
    states = [(await shop.job(each)).state for each in jobs]
    assert states == [State.FAILED if number == 5 else State.SUCCEEDED for number in range(10)]


async def test_a_cancel_of_its_own_task_stays_with_the_one_that_asked(shop: Shop) -> None:
    after: list[int] = []

    @shop.task
    async def gives_up(number: int) -> None:
        if number == 8:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return
        if number == 9:
            await asyncio.sleep(0)
        after.append(number)

    for number in range(20):
        await shop.enqueue(gives_up, number)
    stats = await shop.drain(concurrency=5)
    assert sorted(after) == [number for number in range(20) if number != 8]
    assert stats.succeeded == 20


async def test_attempts_whose_task_is_cancelled_before_it_began_begin_in_another(shop: Shop) -> None:
    ran: list[int] = []
    cancelled: list[str] = []

    @shop.task
    async def ruthless(number: int) -> None:
        ran.append(number)
        for task in asyncio.all_tasks():
            if task.get_name() == "dibs attempts" and task is not asyncio.current_task():
                cancelled.append(task.get_name())
                task.cancel()

    @shop.task
    async def waits(number: int) -> None:
        ran.append(number)
        await asyncio.sleep(0)
        await ruthless.function(-1)

    await store_some(shop, ruthless, range(10))
    await shop.enqueue(waits, 10)
    await store_some(shop, ruthless, range(11, 30))
    stats = await shop.drain(concurrency=5)
    assert cancelled
    assert sorted(number for number in ran if number >= 0) == list(range(30))
    assert stats.succeeded == 30


async def store_some(shop: Shop, task: Task[..., Any], numbers: range) -> None:
    for number in numbers:
        await shop.enqueue(task, number)


async def test_others_have_their_turn_between_handlers_that_burn_the_processor(shop: Shop) -> None:
    turns: list[str] = []
    over = asyncio.Event()

    async def another() -> None:
        while not over.is_set():
            turns.append(".")
            await asyncio.sleep(0)

    @shop.task
    async def burns() -> None:
        end = time.monotonic() + TURN * 2
        while time.monotonic() < end:
            pass
        turns.append("h")

    for _ in range(20):
        await shop.enqueue(burns)
    beside = asyncio.create_task(another())
    await shop.drain(concurrency=5)
    over.set()
    await beside
    assert turns.count("h") == 20
    begun_together = [len(each) for each in "".join(turns).split(".") if each]
    assert begun_together == [5] + [1] * 15  # nothing is known of the first five


async def test_a_lease_that_is_over_before_its_turn_begins_nothing(shop: Shop) -> None:
    begun: list[int] = []

    @shop.task
    async def last_moment(number: int) -> None:
        begun.append(number)
        if number == 5:
            for run in runs:
                run.until = 0.0

    @shop.on("started")
    def starts(run: Run, _: None) -> None:
        runs.append(run)

    runs: list[Run] = []
    for number in range(10):
        await shop.enqueue(last_moment, number)
    worker = shop.worker(concurrency=5)
    going = asyncio.create_task(worker.run())
    await until(lambda: worker.stats.lost == 4)
    worker.stop(now=True)
    await going
    assert begun == list(range(6))


async def test_no_run_is_left_to_be_found_as_garbage(shop: Shop) -> None:
    @shop.task(batch=5)
    async def together(numbers: list[int]) -> None:
        assert len(current().batch) == len(numbers)

    @shop.task
    async def alone(number: int) -> None: ...

    for number in range(10):
        await shop.enqueue(together, number)
        await shop.enqueue(alone, number)
    gc.collect()
    gc.disable()
    try:
        await shop.drain()
        assert not [each for each in gc.get_objects() if isinstance(each, Run)]
    finally:
        gc.enable()


def test_a_worker_process_looks_for_garbage_less_often_unless_told_otherwise() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 11, 12)
        collect_less_often()
        assert gc.get_threshold() == (5_000, 11, 12)
        for own in ((0, 11, 12), (50_000, 11, 12)):
            gc.set_threshold(*own)
            collect_less_often()
            assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)
