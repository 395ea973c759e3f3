"""Keys, limits and expiry on Redis: what the layout promises besides what the contract asks of every store."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dibs.job import Filter, NewJob, OnConflict, Retention, State
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.store import Store
from dibs.stores.redis import RedisStore
from dibs.stores.redis.scripts import Script
from dibs.testing.labs.redis import RedisLab
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.servers import RedisServer

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
AT_ONCE = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))
EACH = Scope(queue="default", each_key=True)

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
def url(request: pytest.FixtureRequest, redis_database: DatabaseFactory) -> str:
    """An empty database on each kind of server."""
    return redis_database(request.param)


@pytest.fixture(params=["script", "watch"])
async def lab(request: pytest.FixtureRequest, url: str) -> AsyncIterator[RedisLab]:
    """Each way of claiming, on a clock that the test owns."""
    made = RedisLab(url, request.param)
    await made.start()
    yield made
    await made.stop()


def redis(store: Store) -> RedisStore:
    assert isinstance(store, RedisStore)
    return store


async def ask(store: RedisStore, *command: Any) -> Any:
    """One command, on a key of the store."""
    name, key, *args = command
    [answer] = await store._link.exchange((name, store._link.root + key.encode(), *args))
    return answer


async def all_keys(store: RedisStore) -> set[str]:
    root = store._link.root
    [found] = await store._link.exchange(("KEYS", root + b"*"))
    return {key[len(root) :].decode() for key in found}


# --- plain jobs pay nothing ---------------------------------------------------------------------


async def test_the_record_of_a_plain_job_is_never_longer(lab: RedisLab) -> None:
    store = redis(await lab.open())
    [plain, other] = await store.enqueue([NewJob(task="t"), NewJob(task="t", limit_key="k")])

    async def width(job: Any) -> int:
        return len(msgspec.msgpack.decode(await ask(store, "GET", f"j:{job.id.hex}")))

    assert [await width(plain), await width(other)] == [19, 23]
    claims = await store.claim("default", "w", 2, LEASE)
    assert [await width(plain), await width(other)] == [19, 23]
    await store.settle([claim.settled(Succeeded()) for claim in claims])
    assert [await width(plain), await width(other)] == [19, 23]


async def test_a_queue_without_limits_is_not_asked_for_any(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url())
    await store.enqueue([NewJob(task="t")])
    await store.limit(Scope(task="other"), Limit(concurrency=1))
    await store.limit(Scope(task="other"), None)
    await store._link.exchange(("CONFIG", "RESETSTAT"))
    assert len(await store.claim("default", "w", 1, LEASE)) == 1
    [stats] = await store._link.exchange(("INFO", "commandstats"))
    assert b"cmdstat_zcount" not in stats
    assert b"cmdstat_hget:" not in stats
    await store.close()


# --- held back ----------------------------------------------------------------------------------


async def test_jobs_of_a_full_key_are_set_aside_once_and_found_when_there_is_room(lab: RedisLab) -> None:
    store = redis(await lab.open())
    await store.limit(EACH, Limit(concurrency=1))
    busy = await store.enqueue([NewJob(task="t", limit_key="busy", args={"n": n}) for n in range(300)])
    [first] = await store.claim("default", "w", 1, LEASE)
    await store.enqueue([NewJob(task="t", limit_key=f"free{n}") for n in range(3)])
    assert {claim.task for claim in await store.claim("default", "w", 3, LEASE)} == {"t"}
    assert await ask(store, "ZCARD", "o:default\tt\tbusy") == 299
    assert await ask(store, "ZCARD", "o:default\tt") == 0
    [counts] = await store.counts()
    assert counts.states[State.QUEUED] == 299
    await store.settle([first.settled(Succeeded())])
    [second] = await store.claim("default", "w", 5, LEASE)
    assert second.id == busy[1].id


async def test_jobs_that_were_set_aside_are_free_when_the_limit_is_taken_away(lab: RedisLab) -> None:
    store = redis(await lab.open())
    await store.limit(EACH, Limit(concurrency=0))
    made = await store.enqueue([NewJob(task="t", limit_key="k", priority=5 - n) for n in range(5)])
    assert await store.claim("default", "w", 5, LEASE) == []
    await store.limit(EACH, None)
    claims = await store.claim("default", "w", 5, LEASE)
    assert [claim.id for claim in claims] == [one.id for one in reversed(made)]
    assert not any(key.startswith("o:") for key in await all_keys(store))


async def test_a_job_that_was_set_aside_leaves_nothing_there_when_it_moves(lab: RedisLab) -> None:
    store = redis(await lab.open())
    await store.limit(EACH, Limit(concurrency=0))
    [job] = await store.enqueue([NewJob(task="t", key="same", limit_key="k")])
    assert await store.claim("default", "w", 1, LEASE) == []
    await store.reschedule(Filter(ids=(job.id,)), lab.now + SECOND)
    assert await ask(store, "ZCARD", "o:default\tt\tk") == 0
    await lab.advance(1)
    assert await store.claim("default", "w", 1, LEASE) == []
    again = NewJob(task="u", key="same", on_conflict=OnConflict.REPLACE)
    assert [one.changed for one in await store.enqueue([again])] == [True]
    assert await ask(store, "ZCARD", "o:default\tt\tk") == 0
    assert [claim.task for claim in await store.claim("default", "w", 2, LEASE)] == ["u"]


async def test_a_claim_does_not_read_through_the_jobs_of_a_full_task(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url())
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    await store.enqueue([NewJob(task="full") for _ in range(3_000)])
    await store.enqueue([NewJob(task="free", priority=9)])
    await store._link.exchange(("CONFIG", "RESETSTAT"))
    [claim] = await store.claim("default", "w", 1, LEASE)
    assert claim.task == "free"
    [stats] = await store._link.exchange(("INFO", "commandstats"))
    calls = sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in stats.split() if b"calls=" in line)
    assert calls < 40
    await store.close()


# --- counting -----------------------------------------------------------------------------------


async def test_jobs_that_ran_before_their_task_had_a_limit_are_counted_in_short_steps(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(url)
    for queue in ("a", "b"):
        await store.enqueue([NewJob(task="t", queue=queue) for _ in range(1_500)])
        assert len(await store.claim(queue, "w", 1_500, LEASE)) == 1_500
    call, names = store._link.call, list[str]()

    async def noted(script: Script, *args: Any, **how: Any) -> Any:
        names.append(script.name)
        return await call(script, *args, **how)

    monkeypatch.setattr(store._link, "call", noted)
    await store.limit(Scope(task="t"), Limit(concurrency=3_001))
    assert names.count("fill") > 1
    assert (names[0], names[-1]) == ("limit", "limit")
    await store.enqueue([NewJob(task="t") for _ in range(3)])
    assert len(await store.claim("default", "w", 3, LEASE)) == 1
    [use] = await store.limits()
    assert use.running == 3_001
    await store.close()


async def test_a_limit_whose_setting_was_broken_off_limits_nothing_and_is_not_shown(url: str) -> None:
    store = RedisStore(url)
    await store._link.call(store._scripts["limit"], "t:t", 0, b"\x95\x00\x00\x00\x00\x00", 0, 1)
    assert await store.limits() == []
    await store.enqueue([NewJob(task="t")])
    assert len(await store.claim("default", "w", 1, LEASE)) == 1
    await store.limit(Scope(task="t"), Limit(concurrency=1))
    [use] = await store.limits()
    assert use.running == 1
    await store.close()


# --- memory comes back --------------------------------------------------------------------------


async def test_nothing_is_left_of_jobs_with_windows_limits_and_expiry_after_retention(lab: RedisLab) -> None:
    store = redis(await lab.open())
    await store.limit(EACH, Limit(concurrency=2, rate=Rate(3, SECOND)))
    await store.limit(Scope(task="t"), Limit(concurrency=5))
    await store.limit(Scope(queue="default"), Limit(rate=Rate(9, SECOND)))
    for n in range(8):
        extras: dict[str, Any] = {"limit_key": f"k{n % 2}", "expires_at": lab.now + 20 * SECOND}
        await store.enqueue([NewJob(task="t", key=f"key{n}", unique_for=1_000_000 * SECOND, **extras)])
    claims = await store.claim("default", "w", 8, LEASE)
    assert len(claims) == 4
    await store.settle([claim.settled(Succeeded()) for claim in claims[:2]])
    await store.cancel(Filter(ids=(claims[2].id,)))
    await store.heartbeat("w", claims[2:], LEASE)
    await lab.advance(200_000)
    assert await store.sweep() == 6
    for scope in (EACH, Scope(task="t"), Scope(queue="default")):
        await store.limit(scope, None)
    for _ in range(2):
        await store.prune(AT_ONCE)
    assert await all_keys(store) - {"clock", "layout"} == set()


async def test_buckets_of_keys_that_are_full_again_are_forgotten_by_claims(url: str) -> None:
    lab = RedisLab(url)
    await lab.start()
    store = redis(await lab.open())
    await store.limit(EACH, Limit(rate=Rate(1, SECOND)))
    for n in range(30):
        await store.enqueue([NewJob(task="t", limit_key=f"k{n}")])
        assert len(await store.claim("default", "w", 1, LEASE)) == 1
        await lab.advance(0.5)
    assert await ask(store, "ZCARD", "rates:default") <= 3
    await lab.stop()


# --- calling workers ----------------------------------------------------------------------------


async def test_a_cancel_that_nobody_heard_is_noticed_by_the_next_wait(url: str) -> None:
    here, there = RedisStore(url), RedisStore(url)
    await there.enqueue([NewJob(task="t")])
    [claim] = await here.claim("default", "w", 1, LEASE)
    await there.cancel(Filter(ids=(claim.id,)))
    assert await asyncio.wait_for(here.wait([], timedelta(seconds=60), "w"), 10) == frozenset()
    await here.close()
    await there.close()


async def test_a_watching_claim_respects_a_limit_that_is_set_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = RedisStore(url, claim="watch"), RedisStore(url)
    await store.enqueue([NewJob(task="t") for _ in range(3)])
    assert store._watch is not None
    candidates = store._watch._candidates

    async def limited(*args: Any) -> Any:
        found = await candidates(*args)
        await other.limit(Scope(queue="default"), Limit(concurrency=1))
        return found

    monkeypatch.setattr(store._watch, "_candidates", limited)
    assert len(await store.claim("default", "w", 3, LEASE)) == 1
    await store.close()
    await other.close()
