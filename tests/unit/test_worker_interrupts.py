"""Timeouts, cancels and lost leases reach a running handler; a stop lets it finish or gives it back."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from dibs.attempt import Attempt, current
from dibs.job import Filter, State
from dibs.retry import Constant
from dibs.worker import Stats
from tests.unit import handlers_for_processes as handlers
from tests.unit.working import STORES, Shop, opened_shop, until

HOUR = Constant(3600)


@pytest_asyncio.fixture(params=STORES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened_shop(request.param, tmp_path) as shop:
        yield shop


# --- timeouts -----------------------------------------------------------------------------------------------


async def test_an_async_handler_that_takes_too_long_is_cancelled_and_the_attempt_counts(shop: Shop) -> None:
    ended: list[str] = []

    @shop.task(timeout=0.05, retry=HOUR)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    job = await shop.run_one(slow)
    assert ended == ["cancelled"]
    assert (job.state, job.attempts) == (State.QUEUED, 1)
    assert job.errors[0].error == "TimeoutError: the handler took longer than 0.05 s"
    assert "await asyncio.sleep(60)" in job.errors[0].traceback, "it says where it was"


async def test_a_handler_that_swallows_its_timeout_has_timed_out_all_the_same(shop: Shop) -> None:
    @shop.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done, in a way"
        return ""

    job = await shop.run_one(stubborn)
    assert job.state is State.FAILED
    assert "took longer" in job.errors[0].error


async def test_a_thread_that_takes_too_long_is_told_and_keeps_its_lease_until_it_ends(shop: Shop) -> None:
    told: list[Attempt] = []

    @shop.task(timeout=0.05, max_attempts=1, lease=1)
    def slow() -> str:
        attempt = current()
        second_lease = attempt.locked_until + timedelta(seconds=1)
        while not attempt.cancelled or attempt.locked_until < second_lease:
            time.sleep(0.01)
        told.append(attempt)
        return "late"

    job_id = await shop.enqueue(slow)
    async with shop.working():
        await until(lambda: told, 10)
        job = await shop.job(job_id)
        assert job.state in (State.RUNNING, State.FAILED)
        assert job.epoch == 1, "nobody else had it, though the lease that it came with is over"
        await until(lambda: _ended(shop, job_id))
    job = await shop.job(job_id)
    assert (job.state, job.epoch) == (State.FAILED, 1)
    assert "took longer" in job.errors[0].error


async def _ended(shop: Shop, job: object) -> bool:
    return (await shop.job(job)).finished_at is not None  # type: ignore[arg-type]


async def test_a_timeout_can_be_named_in_fail_on(shop: Shop) -> None:
    @shop.task(timeout=0.05, fail_on=TimeoutError)
    async def slow() -> None:
        await asyncio.sleep(60)

    assert (await shop.run_one(slow)).state is State.FAILED


# --- cancels ------------------------------------------------------------------------------------------------


async def test_a_cancel_reaches_a_handler_on_the_loop(shop: Shop) -> None:
    started, seen = asyncio.Event(), list[Attempt]()

    @shop.task(lease=1)
    async def endless() -> None:
        started.set()
        seen.append(current())
        await asyncio.sleep(600)

    job_id = await shop.enqueue(endless)
    async with shop.working() as worker:
        await asyncio.wait_for(started.wait(), 30)
        await shop.store.cancel(Filter(ids=(job_id,)))
        await until(lambda: _ended(shop, job_id))
        assert worker.stats.cancelled == 1
    assert (await shop.job(job_id)).state is State.CANCELLED
    assert seen[0].cancelled
    assert not seen[0].lost


async def test_a_cancel_reaches_a_thread_as_a_flag(shop: Shop) -> None:
    started = threading.Event()

    @shop.task(lease=1)
    def endless() -> None:
        started.set()
        while not current().cancelled:
            time.sleep(0.01)
        raise RuntimeError("stopped")

    job_id = await shop.enqueue(endless)
    async with shop.working():
        await until(started.is_set)
        await shop.store.cancel(Filter(ids=(job_id,)))
        await until(lambda: _ended(shop, job_id))
    assert (await shop.job(job_id)).state is State.CANCELLED


async def test_a_cancel_kills_a_process(shop: Shop) -> None:
    task = shop.task(handlers.sleep, executor="process", lease=1)
    job_id = await shop.enqueue(task)
    async with shop.working(processes=1) as worker:
        await until(lambda: worker.stats.started == 1)
        await shop.store.cancel(Filter(ids=(job_id,)))
        await until(lambda: _ended(shop, job_id))
    assert (await shop.job(job_id)).state is State.CANCELLED


async def test_claims_that_wait_too_long_for_a_slot_are_given_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.worker.shift.STALE", 0.2)
    release, slow = asyncio.Event(), False

    @shop.task
    async def act() -> None:
        if slow:
            await release.wait()

    await shop.store.enqueue([act.job() for _ in range(10_000)])
    async with shop.working(concurrency=10) as worker:
        await until(lambda: worker.stats.started > 500)
        slow = True
        await until(lambda: _held(shop, 10))
        release.set()
        slow = False
        await until(lambda: worker.stats.succeeded == 10_000)


async def test_a_handler_that_finishes_in_spite_of_a_cancel_has_finished(shop: Shop) -> None:
    started = asyncio.Event()

    @shop.task(lease=1)
    async def careful() -> str:
        started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "it was too late to stop"
        return ""

    job_id = await shop.enqueue(careful)
    async with shop.working():
        await asyncio.wait_for(started.wait(), 30)
        await shop.store.cancel(Filter(ids=(job_id,)))
        await until(lambda: _ended(shop, job_id))
    assert (await shop.job(job_id)).result == "it was too late to stop"


# --- lost leases --------------------------------------------------------------------------------------------


async def test_a_lost_lease_cancels_its_handler_and_records_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    started, seen, lost = asyncio.Event(), list[Attempt](), list[Attempt]()

    @shop.task(lease=1)
    async def endless() -> None:
        started.set()
        seen.append(current())
        await asyncio.sleep(600)

    @shop.on("lost")
    def note(attempt: Attempt, outcome: object) -> None:
        lost.append(attempt)

    job_id = await shop.enqueue(endless)
    async with shop.working() as worker:
        await asyncio.wait_for(started.wait(), 30)
        await shop.store.cancel(Filter(ids=(job_id,)), force=True)
        await until(lambda: worker.stats.lost == 1)
    assert seen[0].lost
    assert seen[0].cancelled
    assert lost == seen
    assert worker.stats == Stats(started=1, lost=1)
    assert [r.levelno for r in caplog.records if str(job_id) in r.getMessage()] == [logging.WARNING], "said once"


async def test_the_lease_deadline_that_a_handler_sees_is_moved_on(shop: Shop) -> None:
    deadlines: list[timedelta] = []

    @shop.task(lease=1)
    async def watch() -> None:
        attempt = current()
        first = attempt.locked_until
        await until(lambda: attempt.locked_until != first)
        deadlines.append(attempt.locked_until - first)

    job = await shop.run_one(watch)
    assert job.state is State.SUCCEEDED
    assert timedelta(seconds=0.05) < deadlines[0] < timedelta(seconds=1)


async def test_a_task_with_a_longer_lease_has_it_soon_after_its_claim(shop: Shop) -> None:
    seen: list[timedelta] = []

    @shop.task(lease=1)
    async def short() -> None: ...

    @shop.task(lease=600)
    async def long() -> None:
        job = await shop.store.get(current().id)
        while (job.locked_until - job.started_at) < timedelta(seconds=500):  # type: ignore[union-attr, operator]
            await asyncio.sleep(0.01)
            job = await shop.store.get(current().id)
        seen.append(job.locked_until - job.started_at)  # type: ignore[union-attr, operator]

    await shop.run_one(long)
    assert seen[0] >= timedelta(seconds=600)


# --- stopping -----------------------------------------------------------------------------------------------


async def test_a_stop_gives_back_what_has_not_started_and_lets_the_rest_finish(shop: Shop) -> None:
    release, running = asyncio.Event(), 0

    @shop.task
    async def hold() -> None:
        nonlocal running
        running += 1
        await release.wait()

    ids = [await shop.enqueue(hold) for _ in range(6)]
    worker = shop.worker(concurrency=2, prefetch=3)
    going = asyncio.create_task(worker.run())
    await until(lambda: running == 2)
    await until(lambda: _held(shop, 5))
    worker.stop()
    await until(lambda: _held(shop, 2))
    release.set()
    stats = await asyncio.wait_for(going, 10)
    assert (stats.started, stats.succeeded, stats.released) == (2, 2, 3)
    jobs = [await shop.job(each) for each in ids]
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 2 + [State.QUEUED] * 4
    assert [job.attempts for job in jobs] == [1, 1, 0, 0, 0, 0], "what did not start is not counted"


async def _held(shop: Shop, count: int) -> bool:
    [queue] = await shop.store.counts()
    return queue.states[State.RUNNING] == count


async def test_when_the_grace_is_over_handlers_are_cancelled_and_released_uncounted(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dibs")
    started = asyncio.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(600)

    job_id = await shop.enqueue(endless)
    worker = shop.worker(grace=timedelta(seconds=0.1))
    going = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 30)
    worker.stop()
    stats = await asyncio.wait_for(going, 30)
    job = await shop.job(job_id)
    assert (job.state, job.attempts, stats.released) == (State.QUEUED, 0, 1)
    assert "stopping: 1 running, with 0.1 s to end; asked again, it ends them now" in caplog.text


async def test_a_second_stop_does_not_wait_for_the_grace_time(shop: Shop) -> None:
    started = asyncio.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(600)

    job_id = await shop.enqueue(endless)
    worker = shop.worker(grace=timedelta(hours=1))
    going = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 30)
    worker.stop()
    await until(lambda: worker._shift is not None and worker._shift._stopping.is_set())
    worker.stop()
    await asyncio.wait_for(going, 30)
    assert (await shop.job(job_id)).state is State.QUEUED


async def test_a_thread_that_heeds_its_flag_when_the_grace_is_over_is_released_uncounted(shop: Shop) -> None:
    started, pause = threading.Event(), threading.Event()

    @shop.task
    def patient() -> None:
        started.set()
        while not current().cancelled:
            pause.wait(0.01)
        raise RuntimeError("told to stop")

    job_id = await shop.enqueue(patient)
    worker = shop.worker(grace=timedelta(seconds=0.1))
    going = asyncio.create_task(worker.run())
    await until(started.is_set)
    worker.stop()
    await asyncio.wait_for(going, 20)
    job = await shop.job(job_id)
    assert (job.state, job.attempts) == (State.QUEUED, 0)


async def test_a_thread_that_does_not_end_is_not_given_back(shop: Shop) -> None:
    started, release, flags = threading.Event(), threading.Event(), list[Attempt]()

    @shop.task(lease=1)
    def endless() -> None:
        flags.append(current())
        started.set()
        release.wait(30)

    job_id = await shop.enqueue(endless)
    worker = shop.worker(grace=timedelta(seconds=0.1))
    going = asyncio.create_task(worker.run())
    try:
        await until(started.is_set)
        worker.stop()
        await asyncio.wait_for(going, 20)
        job = await shop.job(job_id)
        assert job.state is State.RUNNING, "somebody else would run it at the same time: its lease expires instead"
        assert flags[0].cancelled
        assert flags[0].lost
    finally:
        release.set()


async def test_a_handler_that_ignores_its_cancel_does_not_keep_the_worker(shop: Shop) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @shop.task(lease=1)
    async def stubborn() -> None:
        started.set()
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(600)
        finally:
            ended.set()

    job_id = await shop.enqueue(stubborn)
    worker = shop.worker()
    going = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 30)
    worker.stop(now=True)
    await asyncio.wait_for(going, 30)
    assert ended.is_set()
    assert worker.stats.lost == 1
    assert (await shop.job(job_id)).state is State.RUNNING


async def test_a_stop_before_the_start_counts(shop: Shop) -> None:
    @shop.task
    async def never() -> None: ...

    await shop.enqueue(never)
    worker = shop.worker()
    worker.stop()
    assert (await asyncio.wait_for(worker.run(), 30)).started == 0


async def test_cancelling_the_task_that_runs_the_worker_releases_what_it_held(shop: Shop) -> None:
    started = asyncio.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(600)

    job_id = await shop.enqueue(endless)
    going = asyncio.create_task(shop.worker().run())
    await asyncio.wait_for(started.wait(), 30)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    job = await shop.job(job_id)
    assert (job.state, job.attempts) == (State.QUEUED, 0)


async def test_a_stop_may_come_from_another_thread(shop: Shop) -> None:
    worker = shop.worker()
    going = asyncio.create_task(worker.run())
    await until(lambda: worker._shift is not None)
    threading.Thread(target=worker.stop).start()
    await asyncio.wait_for(going, 30)
