"""A schedule with a tick every second, three workers in processes of their own, and one of them is killed."""

import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from dibs.app import App
from dibs.job import Job, NewJob, State
from dibs.store import Store
from dibs.stores import open_store
from dibs.stores.schema import open_schema
from dibs.timetable import HANDLED, handled
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.process.workers import Process, all_jobs, faults, worker
from tests.unit.working import until

BEFORE, AFTER = 3, 5
"""Ticks before the kill, and behind it."""


def _tick(job: Job) -> datetime:
    return datetime.fromisoformat(job.meta["schedule"]["tick"])


async def _succeeded(store: Store, count: int) -> bool:
    return sum(job.state is State.SUCCEEDED for job in await all_jobs(store)) >= count


async def each_tick_once(url: str, folder: Path) -> None:
    store = open_store(url)
    await store.setup()
    app = App(store=store)
    await app.schedules.add("seconds", NewJob(task="hold", args={"seconds": 0.05}), every=1, missed="all")
    with ExitStack() as stack:
        crew: list[Process] = [stack.enter_context(worker(url, folder, f"w{n}", lease=1)) for n in range(3)]
        await until(partial(_succeeded, store, BEFORE), 60)
        crew[0].send(signal.SIGKILL)
        crew[0].end()
        await until(partial(_succeeded, store, BEFORE + AFTER), 60)
        await app.schedules.pause("seconds")
        paused_at = (await store.kept([])).now
        # One that saw the schedule before the pause may still be enqueueing: wait until a tick was passed over.
        await until(partial(_passed_over, store, paused_at + timedelta(seconds=1)), 60)
        for process in crew[1:]:
            process.send(signal.SIGTERM)
            process.stats()
    jobs = sorted(await all_jobs(store), key=_tick)
    ticks = [_tick(job) for job in jobs]
    assert ticks == [ticks[0] + number * timedelta(seconds=1) for number in range(len(ticks))], (
        "none missing, none twice"
    )
    assert len(ticks) >= BEFORE + AFTER
    assert ticks[-1] <= paused_at + timedelta(seconds=1)
    assert all(job.created_at >= _tick(job) for job in jobs), "none before its time, by the clock of the store"
    assert [job.state for job in jobs] == [State.SUCCEEDED] * len(jobs)
    assert await faults(store, folder, [job.id for job in jobs]) == []
    await store.close()


async def _passed_over(store: Store, moment: datetime) -> bool:
    done = handled(await store.kept([HANDLED]))["seconds"]
    return done.until > moment and all(job.state is State.SUCCEEDED for job in await all_jobs(store))


async def _sqlite(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    return f"sqlite:///{folder}/jobs.db"


async def _postgres(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    url = postgres(POSTGRES_LABELS[-1])
    await open_schema(url).up()
    return url


async def _redis(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    return redis(REDIS_LABELS[-1])


Place = Callable[[Path, DatabaseFactory, DatabaseFactory], Awaitable[str]]


@pytest.mark.parametrize(
    "place",
    [
        _sqlite,
        pytest.param(_postgres, marks=pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")),
        pytest.param(_redis, marks=pytest.mark.skipif(not REDIS_LABELS, reason="no Redis found")),
    ],
    ids=lambda place: place.__name__.strip("_"),
)
async def test_each_tick_is_run_once_although_a_worker_is_killed(
    place: Place, tmp_path: Path, postgres_database: DatabaseFactory, redis_database: DatabaseFactory
) -> None:
    await each_tick_once(await place(tmp_path, postgres_database, redis_database), tmp_path)
