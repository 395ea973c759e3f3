"""Ageing: a due job is worth one priority more for every such time that it has waited."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Job, Order
from dibs.outcome import Retry, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    MICROSECOND,
    SECOND,
    add,
    add_one,
    end,
    every_job,
    new,
    only,
    picture,
    take,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

AGEING = 10 * SECOND


def aged(jobs: list[Job], ageing: timedelta = AGEING) -> list[Any]:
    """The ids in the order in which they are to be claimed."""
    epoch = jobs[0].created_at  # far-off times and priorities must not leave what a datetime holds
    places = sorted(((job.run_at - epoch) + job.priority * ageing, job.id) for job in jobs)
    return [job for _, job in places]


async def test_a_priority_is_worth_so_much_waiting_to_the_microsecond(store: Store, lab: Lab) -> None:
    await store.configure("default", ageing=AGEING)
    began = lab.now
    moments: list[tuple[int, datetime]] = [
        (0, began),
        (1, began - AGEING),  # as much as the first, and a later id
        (1, began - AGEING - MICROSECOND),
        (-1, began + AGEING),
        (-1, began + AGEING - MICROSECOND),
        (3, began - 4 * AGEING),
        (-2, began),
    ]
    answers = await store.enqueue([new(priority=priority, run_at=run_at) for priority, run_at in moments])
    jobs = [answer.id for answer in answers]
    await lab.set_clock(began + AGEING)
    assert await taken(store) == [jobs[n] for n in (6, 5, 2, 4, 0, 1, 3)]


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_many_jobs_come_in_their_order(store: Store, lab: Lab, limit: int) -> None:
    await store.configure("default", ageing=AGEING)
    random = Random(limit)
    offsets = [n * AGEING / 2 for n in range(-12, 1)]
    await store.enqueue(
        [new(priority=random.randint(-3, 3), run_at=lab.now + random.choice(offsets)) for _ in range(60)]
    )
    expected, got = aged(await every_job(store)), []
    while claims := await taken(store, limit):
        got += claims
    assert got == expected


@pytest.mark.parametrize("ageing", [timedelta(milliseconds=1), timedelta(days=1)])
async def test_extreme_priorities_and_times_are_counted_exactly(store: Store, lab: Lab, ageing: timedelta) -> None:
    await store.configure("default", ageing=ageing)
    early = datetime(1970, 1, 1, tzinfo=lab.now.tzinfo)
    far = lab.now.replace(year=2200)
    await lab.set_clock(far)
    moments = (early, early + MICROSECOND, lab.now, far - MICROSECOND, far)
    priorities = (-32768, -32767, 0, 32767)
    await store.enqueue([new(priority=priority, run_at=run_at) for priority in priorities for run_at in moments])
    assert await taken(store) == aged(await every_job(store), ageing)


async def test_a_flood_of_urgent_jobs_does_not_stop_the_others_for_ever(store: Store, lab: Lab) -> None:
    await store.configure("default", ageing=AGEING)
    low = await add_one(store, priority=3)
    urgent, got = await add(store, 20, priority=-2), []
    while low not in got:
        claims = await take(store, 3)
        await store.settle([claim.settled(Succeeded()) for claim in claims])
        got += [claim.id for claim in claims]
        assert len(got) < 100, "there are more of them all the time, and they are all that is run"
        await lab.advance(5)
        urgent += await add(store, 4, priority=-2)
    before_it = 20 + 9 * 4  # what came within the first 50 seconds: ten for each of the five priorities
    assert got[: before_it + 1] == [*urgent[:before_it], low]


async def test_a_future_job_never_hides_a_due_one(store: Store, lab: Lab) -> None:
    await store.configure("default", ageing=timedelta(days=1))
    await store.enqueue([new(priority=-n, run_at=lab.now + SECOND) for n in range(1, 121)])
    due = await add_one(store, priority=5)
    assert await taken(store, 10) == [due]
    await lab.advance(1)
    assert len(await taken(store, 200)) == 120


async def test_what_comes_back_stands_in_its_place(store: Store, lab: Lab) -> None:
    await store.configure("default", ageing=AGEING)
    held, retried, low, lower = [await add_one(store, priority=priority) for priority in (0, 0, 1, 2)]
    claims = await take(store, 2, worker="dead")
    assert [claim.id for claim in claims] == [held, retried]
    await lab.advance(15)
    await end(store, claims[1], Retry("boom"))
    await lab.advance(LEASE.total_seconds())
    await store.reprioritise(only(lower), -1)
    urgent = await add_one(store, priority=-4)
    assert await taken(store) == [lower, held, urgent, low, retried]


async def test_only_the_named_tasks_are_looked_at(store: Store, lab: Lab) -> None:
    await store.configure("default", ageing=AGEING)
    await add(store, 30, task="other", priority=-9)
    low = await add_one(store, priority=5)
    await lab.advance(10)
    high = await add_one(store, priority=1)
    assert await taken(store, tasks=["send"]) == [high, low]


async def test_ageing_is_of_one_queue_and_can_be_changed(store: Store, lab: Lab) -> None:
    jobs = {name: [await add_one(store, queue=name, priority=n) for n in (3, 2)] for name in ("a", "b", "c")}
    await lab.advance(60)
    for name, there in jobs.items():
        there.append(await add_one(store, queue=name, priority=0))
    await store.configure("a", ageing=AGEING)
    await store.configure("b", ageing=AGEING)
    assert [queue.ageing for queue in await store.counts()] == [AGEING, AGEING, None]
    await store.configure("b", order=Order.LIFO)
    await store.configure("a", ageing=timedelta(hours=1))
    assert [(queue.order, queue.ageing) for queue in await store.counts()][:2] == [
        (Order.FIFO, timedelta(hours=1)),
        (Order.LIFO, None),
    ]
    await store.configure("a", ageing=AGEING)
    old, older, fresh = jobs["a"]
    assert await taken(store, queue="a", limit=1) == [older]
    await store.configure("a")
    assert await taken(store, queue="a", limit=1) == [fresh]
    assert await taken(store, queue="a") == [old]
    assert await taken(store, queue="c") == jobs["c"][::-1]


async def test_bad_ageing_is_refused(store: Store) -> None:
    bad: tuple[Any, ...] = (timedelta(0), -SECOND, timedelta(microseconds=999), timedelta(days=1, microseconds=1), 5)
    await store.configure("default", ageing=AGEING)
    before = await picture(store)
    for ageing in bad:
        with pytest.raises(Refused):
            await store.configure("default", ageing=ageing)
    with pytest.raises(Refused):
        await store.configure("default", order=Order.LIFO, ageing=SECOND)
    assert await picture(store) == before
