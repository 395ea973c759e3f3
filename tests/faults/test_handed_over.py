"""Jobs come one by one to workers that wait, so they are handed over; now and then a worker is killed just then."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from dibs.job import State
from dibs.store import Store
from dibs.stores import open_store
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.process.workers import Process, enqueue, faults
from tests.unit.working import until

FULL = os.environ.get("DIBS_FAULTS") == "full"
JOBS = 5_000 if FULL else 200
KILLS = 50 if FULL else 5


@pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")
async def test_postgres_loses_nothing_on_the_way(tmp_path: Path, migrated_database: DatabaseFactory) -> None:
    await kill_those_who_are_handed_jobs(migrated_database(POSTGRES_LABELS[-1]), tmp_path)


@pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")
async def test_redis_loses_nothing_on_the_way(tmp_path: Path, redis_database: DatabaseFactory) -> None:
    await kill_those_who_are_handed_jobs(redis_database(REDIS_LABELS[-1]), tmp_path)


async def kill_those_who_are_handed_jobs(url: str, folder: Path) -> None:
    """Each job comes when the one before has ended or its worker is dead; all end, each by one owner at a time."""
    store, random, names, ids = open_store(url), Random(5), iter(range(1_000)), list[UUID]()
    await store.setup()
    with ExitStack() as stack:

        def start() -> Process:
            process = Process(url, folder, f"w{next(names)}", lease=1, concurrency=2)
            stack.callback(process.close)
            return process

        crew = [start() for _ in range(2)]
        for process in crew:
            process.wait_until_ready()
        for n in range(JOBS):
            [sent] = await enqueue(store, "hold", 1, 0, max_attempts=100)
            ids.append(sent)
            if n % (JOBS // KILLS) == JOBS // KILLS - 1:
                victim = crew.pop(random.randrange(len(crew)))
                victim.send(signal.SIGKILL)
                victim.end()
                crew.append(start())
            else:
                await until(lambda job=sent: _has_succeeded(store, job))  # type: ignore[misc]
        for sent in ids:
            await until(lambda job=sent: _has_succeeded(store, job))  # type: ignore[misc]
        for process in crew:
            process.wait_until_ready()
            process.send(signal.SIGTERM)
            process.stats()
    assert await faults(store, folder, ids) == []
    await store.close()


async def _has_succeeded(store: Store, job: UUID) -> bool:
    found = await store.get(job)
    return found is not None and found.state is State.SUCCEEDED
