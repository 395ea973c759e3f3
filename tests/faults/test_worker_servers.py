"""A worker whose server is restarted under it goes on by itself: no job is lost, none has two owners."""

import asyncio
import signal
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from dibs.errors import StoreUnavailable
from dibs.job import State
from dibs.store import Store
from dibs.stores import open_store
from dibs.stores.schema import open_schema
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS
from tests.process.workers import Process, all_jobs, enqueue, faults, worker
from tests.servers import PostgresServer, RedisServer, find_postgres, find_redis
from tests.unit.working import until

JOBS = 300


async def restart_under_a_worker(store: Store, url: str, server: PostgresServer | RedisServer, folder: Path) -> None:
    """Jobs run while the server dies twice; more come when it is back."""
    ids = await enqueue(store, "hold", JOBS, 0.05)
    with worker(url, folder, "w", lease=3, concurrency=20) as process:
        for wanted in (JOBS // 3, JOBS * 2 // 3):
            await until(partial(_succeeded_at_least, store, wanted))
            noticed = _outages(process)
            await asyncio.to_thread(server.kill)
            # A server that is back before the worker has asked it anything was never away.
            await until(partial(_noticed_more, process, noticed))
            await asyncio.to_thread(server.start)
            ids += await _enqueue_again(store)
        await until(lambda: _succeeded_at_least(store, len(ids)), 40)
        process.send(signal.SIGTERM)
        process.stats()
        outages = _outages(process)
        assert 2 <= outages <= 8, process.said()
        # The worker may be stopped while a part of it has not got through again.
        assert outages - 1 <= process.said().count("is back after") <= outages, process.said()
        assert "a call of the store failed" not in process.said(), "everything that went wrong was an outage"
    assert await faults(store, folder, ids) == []


def _outages(process: Process) -> int:
    return process.said().count("trying again until it is back")


def _noticed_more(process: Process, outages: int) -> bool:
    return _outages(process) > outages


async def _succeeded_at_least(store: Store, count: int) -> bool:
    try:
        counts = await store.counts()
    except StoreUnavailable:
        return False
    return sum(each.states[State.SUCCEEDED] for each in counts) >= count


async def _enqueue_again(store: Store) -> list[UUID]:
    while True:
        try:
            return await enqueue(store, "hold", 50, 0.01)
        except StoreUnavailable:
            await asyncio.sleep(0.05)


@pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")
async def test_postgres_restarted_under_a_worker(tmp_path: Path) -> None:
    with PostgresServer(find_postgres()[-1], durable=True) as server:
        url = server.create_database("restarted")
        await open_schema(url).up()
        store = open_store(url)
        try:
            await restart_under_a_worker(store, url, server, tmp_path)
        finally:
            await store.close()


@pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")
async def test_redis_restarted_under_a_worker(tmp_path: Path) -> None:
    with RedisServer(find_redis()[-1], appendonly="yes", appendfsync="always") as server:
        store = open_store(server.url())
        await store.setup()
        try:
            await restart_under_a_worker(store, server.url(), server, tmp_path)
        finally:
            await store.close()


@pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")
async def test_every_job_of_a_worker_is_settled_when_it_is_stopped_on_postgres(tmp_path: Path) -> None:
    with PostgresServer(find_postgres()[-1]) as server:
        url = server.create_database("stopped")
        await open_schema(url).up()
        store = open_store(url)
        try:
            ids = await enqueue(store, "hold", 1_000, 0.001)
            with worker(url, tmp_path, "w", lease=30) as process:
                await until(lambda: _succeeded_at_least(store, 300))
                process.send(signal.SIGTERM)
                stats = process.stats()
            states = {job.state for job in await all_jobs(store)}
            assert states <= {State.SUCCEEDED, State.QUEUED}, "none is left running"
            assert stats.succeeded == stats.started
            assert await faults(store, tmp_path, ids, drained=False) == []
        finally:
            await store.close()
