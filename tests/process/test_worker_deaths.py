"""Workers that are killed, stopped, frozen or kept busy: each job has one owner at a time, and none is lost."""

import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from dibs.job import State
from dibs.store import Store
from dibs.stores import open_store
from tests.process.worker_main import steps, stops
from tests.process.workers import all_jobs, enqueue, faults, wait_for, worker
from tests.unit.working import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.setup()
    yield store
    await store.close()


async def finished(store: Store) -> bool:
    return all(job.finished_at is not None for job in await all_jobs(store))


async def test_kill_nine_with_a_hundred_running_jobs_and_all_run_again_none_twice_at_once(
    store: Store, url: str, tmp_path: Path
) -> None:
    ids = await enqueue(store, "hold", 100, 0.5)
    with worker(url, tmp_path, "first") as first:
        wait_for(lambda: len(steps(tmp_path, "first")) == 100)
        first.send(signal.SIGKILL)
        first.end()
        killed_at = time.monotonic()
        with worker(url, tmp_path, "second") as second:
            await until(lambda: finished(store), 20)
            second.send(signal.SIGTERM)
            stats = second.stats()
    again = steps(tmp_path, "second")
    assert Counter(step.job for step in again) == Counter(map(str, ids)), "each once more"
    assert {step.epoch for step in again} == {2}
    assert min(step.at for step in again) > killed_at
    assert stats.succeeded == 100
    assert await faults(store, tmp_path, ids) == []


async def test_a_job_whose_workers_die_has_exactly_as_many_attempts_as_allowed(
    store: Store, url: str, tmp_path: Path
) -> None:
    [job_id] = await enqueue(store, "hold", 1, 600, max_attempts=2)
    for name in ("first", "second"):
        with worker(url, tmp_path, name) as process:
            wait_for(lambda: len(steps(tmp_path, name)) == 1)  # noqa: B023 (called at once)
            process.send(signal.SIGKILL)
            process.end()
    with worker(url, tmp_path, "third"):
        await until(lambda: finished(store))
    job = await store.get(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.epoch) == (State.FAILED, 2, 2)
    assert [error.error for error in job.errors] == ["lease expired"] * 2
    assert steps(tmp_path, "third") == []


async def test_sigterm_with_200_in_flight_stops_claiming_gives_back_and_finishes(
    store: Store, url: str, tmp_path: Path
) -> None:
    ids = await enqueue(store, "hold", 400, 1.0)
    with worker(url, tmp_path, "w", concurrency=200, prefetch=100, lease=30) as process:
        wait_for(lambda: len(steps(tmp_path)) == 200)
        process.send(signal.SIGTERM)
        stats = process.stats()
    assert (stats.started, stats.succeeded) == (200, 200)
    jobs = await all_jobs(store)
    states = Counter(job.state for job in jobs)
    assert states == {State.SUCCEEDED: 200, State.QUEUED: 200}
    assert {job.attempts for job in jobs if job.state is State.QUEUED} == {0}, "given back uncounted"
    assert stats.released == sum(job.epoch for job in jobs if job.state is State.QUEUED) > 0
    assert await faults(store, tmp_path, ids, drained=False) == []


async def test_a_second_sigterm_ends_it_now_and_gives_everything_back(store: Store, url: str, tmp_path: Path) -> None:
    await enqueue(store, "hold", 200, 600)
    with worker(url, tmp_path, "w", concurrency=200, grace=600, lease=30) as process:
        wait_for(lambda: len(steps(tmp_path)) == 200)
        process.send(signal.SIGTERM)
        wait_for(lambda: stops(tmp_path, "w") == 1)  # two signals at once are one
        process.send(signal.SIGTERM)
        stats = process.stats()
    assert stats.released == 200
    assert {(job.state, job.attempts) for job in await all_jobs(store)} == {(State.QUEUED, 0)}


async def test_sigterm_is_heard_while_a_handler_blocks_the_loop(store: Store, url: str, tmp_path: Path) -> None:
    await enqueue(store, "burn", 1, 600)
    with worker(url, tmp_path, "w", grace=600) as process:
        wait_for(lambda: len(steps(tmp_path)) == 1)
        for heard in (1, 2):
            process.send(signal.SIGTERM)
            wait_for(lambda: stops(tmp_path, "w") == heard)  # noqa: B023 (called at once)
        process.send(signal.SIGTERM)
        assert process.end(10) == 128 + signal.SIGTERM


async def _leased_until(store: Store, job_id: UUID, moment: datetime) -> bool:
    """Whether the lease lasts until then: the store's clock is less than a lease before it."""
    job = await store.get(job_id)
    assert job is not None
    return job.locked_until is not None and job.locked_until >= moment


async def test_a_worker_frozen_past_three_leases_does_nothing_more_when_it_wakes(
    store: Store, url: str, tmp_path: Path
) -> None:
    [job_id] = await enqueue(store, "tick", 1, 6.0)
    with worker(url, tmp_path, "frozen", lease=1) as frozen:
        wait_for(lambda: len(steps(tmp_path, "frozen")) > 5)
        frozen.send(signal.SIGSTOP)
        lost_at = (await all_jobs(store))[0].locked_until
        assert lost_at is not None
        with worker(url, tmp_path, "other", lease=1) as other:
            wait_for(lambda: len(steps(tmp_path, "other")) > 5)
            await until(lambda: _leased_until(store, job_id, lost_at + timedelta(seconds=3)))
            before = len(steps(tmp_path, "frozen"))
            frozen.send(signal.SIGCONT)
            await until(lambda: finished(store), 20)
            frozen.send(signal.SIGTERM)
            other.send(signal.SIGTERM)
            lost, done = frozen.stats(), other.stats()
    after = steps(tmp_path, "frozen")[before:]
    assert after == [], "cancelled before its next side effect"
    assert (lost.started, lost.lost, lost.succeeded) == (1, 1, 0)
    assert done.succeeded == 1
    job = await store.get(job_id)
    assert job is not None
    assert (job.state, job.epoch, job.worker) == (State.SUCCEEDED, 2, "other")
    assert await faults(store, tmp_path, [job_id]) == []


async def test_a_handler_that_burns_cpu_for_ten_leases_keeps_its_lease(store: Store, url: str, tmp_path: Path) -> None:
    [job_id] = await enqueue(store, "burn", 1, 10.5)
    with worker(url, tmp_path, "burning", lease=1) as burning:
        wait_for(lambda: len(steps(tmp_path, "burning")) == 1)
        with worker(url, tmp_path, "waiting", lease=1) as waiting:
            await until(lambda: finished(store), 30)
            burning.send(signal.SIGTERM)
            waiting.send(signal.SIGTERM)
            assert burning.stats().succeeded == 1
            assert waiting.stats().started == 0
    job = await store.get(job_id)
    assert job is not None
    assert (job.epoch, job.worker) == (1, "burning")


async def test_a_thread_that_outlasts_the_grace_time_does_not_keep_the_process(
    store: Store, url: str, tmp_path: Path
) -> None:
    [job_id] = await enqueue(store, "work", 1, 60)
    with worker(url, tmp_path, "w", grace=0.2) as process:
        wait_for(lambda: len(steps(tmp_path)) == 1)
        process.send(signal.SIGTERM)
        stats = process.stats(10)
    assert (stats.released, stats.lost) == (0, 1)
    with worker(url, tmp_path, "next", concurrency=1):
        wait_for(lambda: len(steps(tmp_path, "next")) == 1)
    assert [step.epoch for step in steps(tmp_path, "next")] == [2]
    assert str(job_id) == steps(tmp_path, "next")[0].job
