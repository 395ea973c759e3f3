"""Waiting for work on Redis: calls arrive, are few, and are not relied upon."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.job import NewJob
from dibs.stores.redis import RedisStore
from dibs.stores.redis import waiting as waiting_module
from tests.conftest import REDIS_LABELS
from tests.servers import RedisServer, find_redis

LONG = timedelta(seconds=20)

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
async def stores(
    request: pytest.FixtureRequest,
) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two handles on an empty server of their own: channels belong to the whole server."""
    [found] = [one for one in find_redis() if one.label == request.param]
    with RedisServer(found) as server:
        pair = RedisStore(server.url()), RedisStore(server.url())
        yield pair
        for store in pair:
            await store.close()


async def _asleep(store: RedisStore) -> None:
    """Until somebody waits for a queue, and listens."""
    root = store._link.root
    while True:
        sleeping, listening = await store._link.exchange(
            ("SCARD", root + b"sleeping"), ("PUBSUB", "NUMSUB", root + b"wake")
        )
        if sleeping and listening[1]:
            return
        await asyncio.sleep(0.005)


async def test_a_waiter_is_called(stores: tuple[RedisStore, RedisStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """It never looks by itself here: without the call, the wait would end empty."""
    monkeypatch.setattr(waiting_module, "_POLL", 3600.0)
    here, there = stores
    waiting = asyncio.create_task(here.wait(["q", "other"], LONG))
    await _asleep(there)
    await there.enqueue([NewJob(task="t", queue="q")])
    assert await waiting == {"q"}


async def test_many_jobs_make_one_call(stores: tuple[RedisStore, RedisStore]) -> None:
    here, there = stores
    waiting = asyncio.create_task(here.wait(["q"], LONG))
    await _asleep(there)
    root = there._link.root
    for _ in range(5):
        await there.enqueue([NewJob(task="t", queue="q") for _ in range(3)])
    [marked] = await there._link.exchange(("SISMEMBER", root + b"sleeping", "q"))
    assert not marked
    assert await waiting == {"q"}


async def test_a_call_for_due_work_is_answered_without_a_look(
    stores: tuple[RedisStore, RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = stores
    waiting, call = asyncio.create_task(here.wait(["q"], LONG)), here._link.call
    called_for: list[str] = []

    async def look(*args: Any) -> Any:
        called_for.extend(queue for waiter in here._waiting._waiters for queue in waiter.due)
        return await call(*args)

    await _asleep(there)
    monkeypatch.setattr(here._link, "call", look)
    await there.enqueue([NewJob(task="t", queue="q")])
    assert await waiting == {"q"}
    assert called_for == [], "it looked although it had been called"


async def test_nobody_is_told_of_work_that_is_not_due_or_whose_queue_is_paused(
    stores: tuple[RedisStore, RedisStore],
) -> None:
    here, there = stores
    await there.pause("held")
    waiting = asyncio.create_task(here.wait(["later", "held", "q"], LONG))
    for queue, run_at in (("later", datetime.now(UTC) + timedelta(hours=1)), ("held", None)):
        await _asleep(there)
        await there.enqueue([NewJob(task="t", queue=queue, run_at=run_at)])
    await _asleep(there)
    assert not waiting.done()
    await there.enqueue([NewJob(task="t", queue="q")])
    assert await waiting == {"q"}


async def test_a_job_that_becomes_due_needs_no_call(stores: tuple[RedisStore, RedisStore]) -> None:
    here, there = stores
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    await there.enqueue([NewJob(task="t", queue="q", run_at=soon)])
    assert await here.wait(["q"], LONG) == {"q"}
    assert len(await here.claim("q", "w", 1, timedelta(seconds=5))) == 1


async def test_without_the_listening_connection_work_is_still_noticed(
    stores: tuple[RedisStore, RedisStore],
) -> None:
    here, there = stores
    waiting = asyncio.create_task(here.wait(["q"], LONG))
    await _asleep(there)
    await there._link.exchange(("CLIENT", "KILL", "TYPE", "pubsub"))
    await there.enqueue([NewJob(task="t", queue="q")])
    assert await asyncio.wait_for(waiting, 15) == {"q"}
    await _listening_again(there)


async def _listening_again(store: RedisStore) -> None:
    while True:
        [listening] = await store._link.exchange(("PUBSUB", "NUMSUB", store._link.root + b"wake"))
        if listening[1]:
            return
        await asyncio.sleep(0.02)


async def test_a_wait_that_is_cancelled_leaves_the_store_usable(
    stores: tuple[RedisStore, RedisStore],
) -> None:
    here, there = stores
    for _ in range(5):
        waiting = asyncio.create_task(here.wait(["q"], LONG))
        await _asleep(there)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert here._waiting._waiters == set()
    await here.enqueue([NewJob(task="t", queue="q")])
    assert await here.wait(["q"], LONG) == {"q"}


async def test_a_wait_ends_empty_after_its_time(stores: tuple[RedisStore, RedisStore]) -> None:
    assert await stores[0].wait(["q"], timedelta(milliseconds=50)) == frozenset()
    assert await stores[0].wait([], timedelta(milliseconds=10)) == frozenset()


async def test_who_may_not_listen_looks_by_itself_and_tries_again(
    stores: tuple[RedisStore, RedisStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting_module, "_POLL", 0.01)
    here, there = stores
    await there._link.exchange(("ACL", "SETUSER", "default", "resetchannels"), ("CONFIG", "RESETSTAT"))
    waiting = asyncio.create_task(here.wait(["q"], LONG))
    while True:
        [told] = await there._link.exchange(("INFO", "commandstats"))
        tries = re.search(rb"cmdstat_subscribe:.*rejected_calls=(\d+)", told)
        if tries and int(tries[1]) >= 2:
            break
        await asyncio.sleep(0.005)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert [record for record in caplog.records if record.name == "asyncio"] == []
