"""Queues: pause, resume, and the order in which equals are handed out."""

from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Order, State
from dibs.outcome import Pulse, Released, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    SECOND,
    add,
    add_one,
    beat,
    end,
    picture,
    state,
    take,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(store: Store) -> None:
    jobs = await add(store, 2)
    await store.pause("default")
    assert await take(store) == []
    await store.resume("default")
    assert await taken(store) == jobs


async def test_every_handle_sees_the_pause(store: Store, lab: Lab) -> None:
    job, other = await add_one(store), await lab.open()
    assert await take(other, tasks=["warm up"]) == []
    await store.pause("default")
    assert await take(other) == []
    await other.resume("default")
    assert await taken(store) == [job]


async def test_a_pause_holds_only_its_own_queue(store: Store) -> None:
    await add_one(store, queue="a")
    job = await add_one(store, queue="b")
    await store.pause("a")
    assert await taken(store, queue="b") == [job]


async def test_a_queue_can_be_paused_before_it_has_jobs(store: Store) -> None:
    await store.pause("mail")
    job = await add_one(store, queue="mail")
    assert await take(store, queue="mail") == []
    await store.resume("mail")
    assert await taken(store, queue="mail") == [job]


async def test_running_jobs_of_a_paused_queue_go_on(store: Store, lab: Lab) -> None:
    jobs = await add(store, 2)
    first, second = await take(store)
    await store.pause("default")
    await lab.advance(20)
    assert await beat(store, first) is Pulse.HELD
    assert await end(store, first, Succeeded()) is Verdict.ACCEPTED
    assert await end(store, second, Retry("boom")) is Verdict.ACCEPTED
    assert [await state(store, job) for job in jobs] == [State.SUCCEEDED, State.QUEUED]
    assert await take(store) == []


async def test_pausing_and_resuming_twice_changes_nothing_more(store: Store) -> None:
    job = await add_one(store)
    for _ in range(2):
        await store.pause("default")
        assert [counts.paused for counts in await store.counts()] == [True]
    for _ in range(2):
        await store.resume("default")
        assert [counts.paused for counts in await store.counts()] == [False]
    assert await taken(store) == [job]


async def test_a_pause_keeps_the_order_and_an_order_keeps_the_pause(store: Store) -> None:
    await store.configure("mail", order=Order.LIFO)
    await store.pause("mail")
    [counts] = await store.counts()
    assert (counts.paused, counts.order) == (True, Order.LIFO)
    await store.configure("mail", order=Order.FIFO)
    [counts] = await store.counts()
    assert (counts.paused, counts.order) == (True, Order.FIFO)


# --- lifo -------------------------------------------------------------------------------------


async def test_a_lifo_queue_hands_out_the_newest_first(store: Store, lab: Lab) -> None:
    await store.configure("default", order=Order.LIFO)
    jobs = []
    for _ in range(5):
        jobs.append(await add_one(store))
        await lab.advance(1)
    assert await taken(store) == jobs[::-1]


async def test_a_lifo_queue_turns_a_bulk_call_round(store: Store) -> None:
    await store.configure("default", order=Order.LIFO)
    jobs = await add(store, 50)
    assert await taken(store, 20) == jobs[:29:-1]
    assert await taken(store) == jobs[29::-1]


async def test_priority_still_counts_first_in_a_lifo_queue(store: Store) -> None:
    await store.configure("default", order=Order.LIFO)
    low = await add(store, 2, priority=1)
    high = await add(store, 2, priority=-1)
    assert await taken(store) == [*high[::-1], *low[::-1]]


async def test_future_jobs_do_not_hide_due_ones_in_a_lifo_queue(store: Store, lab: Lab) -> None:
    await store.configure("default", order=Order.LIFO)
    due = await add(store, 2)
    await add(store, 300, run_at=lab.now + SECOND)
    assert await taken(store, 10) == due[::-1]


async def test_expired_and_released_jobs_keep_their_place_in_a_lifo_queue(store: Store, lab: Lab) -> None:
    await store.configure("default", order=Order.LIFO)
    jobs = await add(store, 4)
    dead, given = await take(store, 2)
    await end(store, given, Released())
    await lab.advance(60)
    assert [dead.id, given.id] == jobs[:1:-1]
    assert await taken(store) == jobs[::-1]


async def test_the_order_can_be_changed_while_jobs_wait(store: Store) -> None:
    jobs = await add(store, 6)
    assert await taken(store, 1) == jobs[:1]
    await store.configure("default", order=Order.LIFO)
    assert await taken(store, 2) == [jobs[5], jobs[4]]
    await store.configure("default", order=Order.FIFO)
    assert await taken(store) == jobs[1:4]


async def test_another_handle_follows_the_new_order(store: Store, lab: Lab) -> None:
    jobs, other = await add(store, 4), await lab.open()
    assert await taken(other, 1) == jobs[:1]
    await store.configure("default", order=Order.LIFO)
    assert await taken(other, 1) == jobs[3:]


async def test_an_order_holds_only_for_its_own_queue(store: Store) -> None:
    await store.configure("a", order=Order.LIFO)
    for queue in ("a", "b"):
        await add(store, 2, queue=queue)
    newest, oldest = await taken(store, queue="a")
    assert newest > oldest
    oldest, newest = await taken(store, queue="b")
    assert newest > oldest


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " a", "a\n", "q" * 201, None, 5], ids=ascii)
async def test_a_bad_name_is_refused_and_nothing_is_listed(store: Store, name: Any) -> None:
    for call in (store.pause, store.resume):
        with pytest.raises(Refused):
            await call(name)
    with pytest.raises(Refused):
        await store.configure(name, order=Order.LIFO)
    assert await picture(store) == ([], [], [])


@pytest.mark.parametrize("order", ["sideways", "", None, 1, "FIFO"], ids=repr)
async def test_an_unknown_order_is_refused_and_nothing_is_listed(store: Store, order: Any) -> None:
    with pytest.raises(Refused):
        await store.configure("mail", order=order)
    assert await picture(store) == ([], [], [])
