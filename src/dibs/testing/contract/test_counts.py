"""Counts: every queue that has jobs or settings, by name, its jobs by state."""

from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import UNFINISHED, Counted, Filter, NewFlow, NewStep, Order, QueueCounts, State
from dibs.outcome import Cancelled, Failed, Retry, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    MICROSECOND,
    SECOND,
    add,
    add_one,
    end,
    finish,
    new,
    only,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def one(store: Store) -> QueueCounts:
    """The counts of the only queue."""
    [counts] = await store.counts()
    return counts


def states(**counted: int) -> dict[State, int]:
    """All six states, those not named at 0."""
    return {state: counted.get(state.value, 0) for state in State}


async def test_an_empty_store_has_no_queues(store: Store) -> None:
    assert await store.counts() == []


async def test_a_queue_counts_its_jobs_in_every_state(store: Store, lab: Lab) -> None:
    await add(store, 7)
    claims = await take(store, 5)
    await end(store, claims[0], Succeeded())
    await end(store, claims[1], Failed("x"))
    await end(store, claims[2], Cancelled())
    assert await store.counts() == [
        QueueCounts(
            queue="default",
            paused=False,
            order=Order.FIFO,
            states=states(queued=2, running=2, succeeded=1, failed=1, cancelled=1),
            scheduled=0,
            oldest_due=lab.now,
        )
    ]


async def test_queues_come_by_name_in_code_point_order(store: Store) -> None:
    names = ["b", "B", "a", "ab", "a b", "a-b", "Z", "é", "e", "日本", "_", "10", "9", "🦊"]
    for name in names:
        await add_one(store, queue=name)
    assert [counts.queue for counts in await store.counts()] == sorted(names)


async def test_each_queue_counts_only_its_own(store: Store) -> None:
    await add(store, 2, queue="a")
    await add(store, 3, queue="b")
    await take(store, 1, queue="b")
    counted = {counts.queue: counts.states for counts in await store.counts()}
    assert counted == {"a": states(queued=2), "b": states(queued=2, running=1)}


async def test_scheduled_counts_what_is_not_due_yet(store: Store, lab: Lab) -> None:
    await add_one(store)
    await add(store, 2, run_at=lab.now + SECOND)
    counts = await one(store)
    assert (counts.scheduled, counts.states) == (2, states(queued=3))
    await lab.set_clock(lab.now + SECOND - MICROSECOND)
    assert (await one(store)).scheduled == 2
    await lab.set_clock(lab.now + MICROSECOND)
    assert (await one(store)).scheduled == 0


async def test_a_retry_that_waits_is_scheduled(store: Store) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom", SECOND))
    counts = await one(store)
    assert (counts.scheduled, counts.states, counts.oldest_due) == (1, states(queued=1), None)


async def test_oldest_due_is_the_smallest_run_at_of_the_due(store: Store, lab: Lab) -> None:
    start = lab.now
    await add_one(store, priority=-1)
    await add_one(store, run_at=start - SECOND, priority=9)
    await add_one(store, run_at=start + SECOND)
    assert (await one(store)).oldest_due == start - SECOND
    await lab.advance(10)
    await take(store, 2)
    assert (await one(store)).oldest_due == start - SECOND
    await take(store, 1)
    assert (await one(store)).oldest_due is None


async def test_a_running_job_is_not_due_even_when_expired(store: Store, lab: Lab) -> None:
    await add_one(store)
    await take_one(store)
    await lab.advance(3600)
    counts = await one(store)
    assert (counts.oldest_due, counts.states) == (None, states(running=1))


async def test_a_queue_without_jobs_or_settings_is_not_listed(store: Store) -> None:
    job = await add_one(store, queue="gone")
    await store.delete(only(job))
    assert await store.counts() == []


@pytest.mark.parametrize("setting", ["pause", "resume", "configure"])
async def test_a_queue_with_settings_is_listed_without_jobs(store: Store, setting: str) -> None:
    if setting == "configure":
        await store.configure("mail", order=Order.LIFO)
    else:
        await getattr(store, setting)("mail")
    assert await one(store) == QueueCounts(
        queue="mail",
        paused=setting == "pause",
        order=Order.LIFO if setting == "configure" else Order.FIFO,
        states=states(),
        scheduled=0,
        oldest_due=None,
    )


async def test_counts_follow_every_verb(store: Store, lab: Lab) -> None:
    jobs = await add(store, 3)
    await take(store, 1)
    assert (await one(store)).states == states(queued=2, running=1)
    await lab.advance(60)
    await store.sweep()
    assert (await one(store)).states == states(queued=3)
    await store.cancel(only(jobs[0]))
    assert (await one(store)).states == states(queued=2, cancelled=1)
    await store.requeue(ALL)
    assert (await one(store)).states == states(queued=3)
    await store.delete(only(jobs[1]))
    assert (await one(store)).states == states(queued=2)


# --- not to the end -----------------------------------------------------------------------------------------


async def busy_shop(store: Store, lab: Lab) -> None:
    """Several queues and priorities, and jobs in every state."""
    for queue, count in (("a", 3), ("b", 9)):
        for priority in (-1, 0, 7):
            await add(store, count, queue=queue, priority=priority)
            await add(store, count, queue=queue, priority=priority, run_at=lab.now + SECOND)
        claims = await take(store, 3 * count - 2, queue=queue)
        await end(store, claims[0], Succeeded())
        await end(store, claims[1], Failed("x"))
        await end(store, claims[2], Cancelled())
    await store.pause("b")
    await store.configure("quiet", order=Order.LIFO)
    steps = (NewStep(name="one", job=new(queue="a")), NewStep(name="two", job=new(queue="a"), needs=("one",)))
    await store.start(NewFlow(name="f", steps=steps))


async def test_counting_no_more_than_there_are_counts_all(store: Store, lab: Lab) -> None:
    await busy_shop(store, lab)
    assert await store.counts(most=1_000) == await store.counts()


@pytest.mark.parametrize("most", [1, 2, 5, 20])
async def test_what_is_not_counted_to_the_end_is_named_and_is_no_more_than_there_is(
    store: Store, lab: Lab, most: int
) -> None:
    await busy_shop(store, lab)
    whole = {counts.queue: counts for counts in await store.counts()}
    for some in await store.counts(most=most):
        every = whole.pop(some.queue)
        assert (some.paused, some.order, some.oldest_due) == (every.paused, every.order, every.oldest_due)
        for state in State:
            if state in some.more:
                assert some.states[state] <= every.states[state]
            else:
                assert some.states[state] == every.states[state]
        assert some.scheduled == every.scheduled if State.QUEUED not in some.more else some.scheduled <= every.scheduled
    assert not any(counts.states[state] for counts in whole.values() for state in UNFINISHED)


@pytest.mark.parametrize("most", [0, -1, 1_000_001, True, 1.5, "all"])
async def test_how_many_to_count_is_1_to_a_million(store: Store, most: Any) -> None:
    with pytest.raises(Refused):
        await store.counts(most=most)
    with pytest.raises(Refused):
        await store.find(Filter(), most=most)
    with pytest.raises(Refused):
        await store.count(Filter(), most=most)


SOME: list[dict[str, Any]] = [
    {},
    {"queues": ("b",)},
    {"states": (State.QUEUED,)},
    {"states": (State.WAITING, State.CANCELLED, State.FAILED), "queues": ("a",)},
    {"states": ()},
    {"tasks": ("send",), "states": (State.RUNNING, State.SUCCEEDED)},
    {"tasks": ("nobody",)},
]


async def test_as_many_match_as_are_found(store: Store, lab: Lab) -> None:
    await busy_shop(store, lab)
    for which in SOME:
        found = await store.find(Filter(**which), limit=1_000)
        assert await store.count(Filter(**which)) == Counted(len(found.jobs)), which
        assert await store.count(Filter(**which), most=1_000) == Counted(len(found.jobs)), which


async def test_who_stops_counting_says_so_and_counted_no_more_than_there_are(store: Store, lab: Lab) -> None:
    await busy_shop(store, lab)
    for which in SOME:
        every = (await store.count(Filter(**which))).count
        for most in (1, 2, 20):
            some = await store.count(Filter(**which), most=most)
            assert some.count == every if some.complete else some.count <= every, (which, most)
