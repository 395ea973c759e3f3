"""Workers: whoever was seen or holds a claim, by name."""

from datetime import timedelta

import pytest

from dibs.job import Retention, WorkerInfo
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    LEASE,
    MICROSECOND,
    add,
    beat,
    end,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

KEEP = Retention(succeeded=None, failed=None, cancelled=None)
DAY = timedelta(days=1)


async def test_an_empty_store_knows_no_workers(store: Store) -> None:
    assert await store.workers() == []


async def test_a_heartbeat_without_claims_makes_a_worker_seen(store: Store, lab: Lab) -> None:
    assert await store.heartbeat("ann", [], LEASE, {"host": "h", "pid": 7, "queues": ["a"]}) == []
    assert await store.workers() == [
        WorkerInfo(
            name="ann",
            seen_at=lab.now,
            running=0,
            info={"host": "h", "pid": 7, "queues": ["a"]},
        )
    ]


async def test_a_worker_is_seen_at_its_last_heartbeat(store: Store, lab: Lab) -> None:
    for _ in range(3):
        await lab.advance(1)
        await store.heartbeat("ann", [], LEASE)
    assert [one.seen_at for one in await store.workers()] == [lab.now]


async def test_info_is_kept_until_it_is_replaced(store: Store) -> None:
    seen = []
    for info in (None, {"a": 1, "b": 2}, None, {"c": {"d": [None]}}, None, {}):
        await store.heartbeat("ann", [], LEASE, info)
        seen += [one.info for one in await store.workers()]
    new = {"c": {"d": [None]}}
    assert seen == [{}, {"a": 1, "b": 2}, {"a": 1, "b": 2}, new, new, {}]


async def test_a_worker_that_holds_claims_is_known_without_a_heartbeat(store: Store) -> None:
    await add(store, 3)
    await take(store, 2, worker="ann")
    assert await store.workers() == [WorkerInfo(name="ann", seen_at=None, running=2, info={})]


async def test_a_heartbeat_that_lost_all_its_claims_still_makes_the_worker_seen(store: Store, lab: Lab) -> None:
    await add(store, 1)
    claim = await take_one(store)
    await end(store, claim, Succeeded())
    await beat(store, claim)
    assert await store.workers() == [WorkerInfo(name="ann", seen_at=lab.now, running=0, info={})]


async def test_a_worker_that_was_never_seen_is_forgotten_with_its_last_claim(store: Store) -> None:
    await add(store, 1)
    await end(store, await take_one(store), Succeeded())
    assert await store.workers() == []


async def test_running_counts_what_the_worker_holds_now(store: Store, lab: Lab) -> None:
    await add(store, 4)
    claims = await take(store, 3, worker="ann")
    await take(store, 1, worker="bob", lease=timedelta(hours=1))
    await end(store, claims[0], Succeeded())
    assert [(one.name, one.running) for one in await store.workers()] == [("ann", 2), ("bob", 1)]
    await lab.advance(60)
    assert [(one.name, one.running) for one in await store.workers()] == [("ann", 2), ("bob", 1)]
    await store.sweep()
    assert [(one.name, one.running) for one in await store.workers()] == [("bob", 1)]
    await store.delete(ALL, force=True)
    assert await store.workers() == []


async def test_workers_come_by_name_in_code_point_order(store: Store) -> None:
    names = ["b", "B", "a", "a.1", "a-1", "a 1", "é", "日本", "10", "9"]
    await add(store, 3)
    for name in names[:3]:
        await take_one(store, worker=name)
    for name in names[3:]:
        await store.heartbeat(name, [], LEASE)
    assert [one.name for one in await store.workers()] == sorted(names)


async def test_a_worker_that_is_seen_and_holds_is_listed_once(store: Store, lab: Lab) -> None:
    await add(store, 1)
    claim = await take_one(store)
    await beat(store, claim)
    assert await store.workers() == [WorkerInfo(name="ann", seen_at=lab.now, running=1, info={})]


async def test_a_worker_not_seen_for_a_day_is_forgotten_by_a_prune(store: Store, lab: Lab) -> None:
    await store.heartbeat("ann", [], LEASE)
    await lab.set_clock(lab.now + DAY - MICROSECOND)
    await store.heartbeat("bob", [], LEASE)
    await store.prune(KEEP)
    assert [one.name for one in await store.workers()] == ["ann", "bob"]
    await lab.set_clock(lab.now + MICROSECOND)
    assert [one.name for one in await store.workers()] == ["ann", "bob"]
    assert await store.prune(KEEP) == 0
    assert [one.name for one in await store.workers()] == ["bob"]


async def test_a_worker_that_holds_a_claim_is_not_forgotten(store: Store, lab: Lab) -> None:
    await add(store, 1)
    claim = await take_one(store)
    await store.heartbeat("ann", [claim], LEASE, {"v": 1})
    seen_at = lab.now
    await lab.set_clock(lab.now + 2 * DAY)
    await store.prune(KEEP)
    assert await store.workers() == [WorkerInfo(name="ann", seen_at=seen_at, running=1, info={"v": 1})]
