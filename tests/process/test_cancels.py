"""A cancel reaches a handler in another process by a wake-up of its store: its heartbeat is hours away."""

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from dibs.job import Filter, State
from dibs.store import Store
from dibs.stores import open_store
from dibs.stores.schema import open_schema
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.process.workers import all_jobs, enqueue, worker
from tests.unit.working import until

DAY = 24 * 3600.0

Place = Callable[[Path, DatabaseFactory, DatabaseFactory], Awaitable[str]]


async def _sqlite(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    return f"sqlite:///{folder}/jobs.db"


async def _postgres(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    url = postgres(POSTGRES_LABELS[-1])
    await open_schema(url).up()
    return url


async def _redis(folder: Path, postgres: DatabaseFactory, redis: DatabaseFactory) -> str:
    return redis(REDIS_LABELS[-1])


@pytest.mark.parametrize(
    "place",
    [
        _sqlite,
        pytest.param(_postgres, marks=pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")),
        pytest.param(_redis, marks=pytest.mark.skipif(not REDIS_LABELS, reason="no Redis found")),
    ],
    ids=lambda place: place.__name__.strip("_"),
)
async def test_a_cancel_does_not_wait_for_the_heartbeat(
    place: Place, tmp_path: Path, postgres_database: DatabaseFactory, redis_database: DatabaseFactory
) -> None:
    url = await place(tmp_path, postgres_database, redis_database)
    store = open_store(url)
    await store.setup()
    try:
        ids = await enqueue(store, "hold", 3, 3_600)
        with worker(url, tmp_path, "w", lease=DAY) as process:
            await until(lambda: _count(store, State.RUNNING, 3), 30)
            for number, job in enumerate(ids, 1):
                await store.cancel(Filter(ids=(job,)))
                await until(partial(_count, store, State.CANCELLED, number), 30)
            process.send(signal.SIGTERM)
            assert process.stats().cancelled == 3
    finally:
        await store.close()


async def _count(store: Store, state: State, count: int) -> bool:
    return sum(job.state is state for job in await all_jobs(store)) == count
