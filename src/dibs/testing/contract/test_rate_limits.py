"""Rates: a bucket of so many starts, refilled evenly. Counted in whole microseconds, so every number is exact."""

from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Filter, Retention, State
from dibs.limits import STARTS
from dibs.outcome import Released, Retry, Snoozed, Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.store import Store
from dibs.testing.contract.helpers import (
    EACH_KEY,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    TASK,
    add,
    add_one,
    end,
    look,
    new,
    only,
    state,
    take,
    take_one,
    taken,
    use,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

THREE_IN_TEN = Rate(3, 10 * SECOND)
RUNNING = Filter(states=(State.RUNNING,))
APART = timedelta(microseconds=3_333_334)
"""A third of ten seconds, rounded up: a rate is never exceeded."""


def per(count: int, span: timedelta) -> Limit:
    return Limit(rate=Rate(count, span))


# --- the arithmetic ---------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [QUEUE, EACH_KEY, TASK], ids=["queue", "each_key", "task"])
async def test_a_full_bucket_at_once_and_then_one_by_one(store: Store, lab: Lab, scope: Scope) -> None:
    await store.limit(scope, Limit(rate=THREE_IN_TEN))
    jobs, began = await add(store, 8, limit_key="k"), lab.now
    starts: list[timedelta] = []
    assert (await use(store, scope, jobs[0])).next_start is None
    while len(starts) < len(jobs):
        starts += [lab.now - began] * len(await taken(store, 5))
        found = await use(store, scope, jobs[0])
        assert found.next_start is not None
        await lab.set_clock(found.next_start - MICROSECOND)
        assert await taken(store) == []
        assert (await use(store, scope, jobs[0])).next_start == found.next_start
        await lab.set_clock(found.next_start)
        assert (await use(store, scope, jobs[0])).next_start is None
    assert starts == [n * APART for n in (0, 0, 0, 1, 2, 3, 4, 5)]


async def test_a_bucket_fills_up_and_does_not_overflow(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, per(4, 8 * SECOND))
    await add(store, 30)
    story = ((0, 4), (2, 1), (3, 1), (1, 1), (0, 0), (4, 2), (1_000, 4), (6, 3), (8, 4), (100_000, 4))
    for seconds, expected in story:
        await lab.advance(seconds)
        assert len(await taken(store)) == expected, (seconds, expected)
        await store.cancel(RUNNING, force=True)


async def test_fast_and_slow_rates_are_exact(store: Store, lab: Lab) -> None:
    rates = ((1, timedelta(days=1), timedelta(days=1)), (1_000, timedelta(milliseconds=1), MICROSECOND))
    for count, span, apart in (*rates, (7, SECOND, timedelta(microseconds=142_858))):
        queue = f"q{count}"
        await store.limit(Scope(queue=queue), per(count, span))
        await add(store, count + 3, queue=queue)
        assert len(await taken(store, count + 3, queue=queue, lease=timedelta(hours=24))) == count
        assert (await use(store, Scope(queue=queue))).next_start == lab.now + apart
        await lab.set_clock(lab.now + apart - MICROSECOND)
        assert await taken(store, 5, queue=queue) == []
        await lab.set_clock(lab.now + MICROSECOND)
        assert len(await taken(store, 5, queue=queue)) == 1


# --- what is charged --------------------------------------------------------------------------


async def test_every_start_is_charged_whatever_becomes_of_it(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, per(6, timedelta(hours=6)))
    outcomes = (Succeeded(), Released(), Retry("boom"), Snoozed(timedelta(0)), Released())
    job = await add_one(store)
    for outcome in outcomes[1:]:
        await end(store, await take_one(store), outcome)
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == [job], "the sixth: an expired lease that is claimed again"
    assert (await look(store, job)).epoch == 6
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == []
    await store.sweep()
    assert await taken(store) == []
    await store.delete(only(job), force=True)
    await add_one(store)
    assert await taken(store) == []
    await lab.advance(3_600)
    assert len(await taken(store)) == 1


async def test_ends_are_not_charged(store: Store, lab: Lab) -> None:
    used_up, asked = await add_one(store, max_attempts=1), await add_one(store)
    await take(store)
    await store.cancel(only(asked))
    over = await add_one(store, expires_at=lab.now + SECOND)
    live = await add(store, 2)
    await lab.advance(LEASE.total_seconds())
    for scope in (QUEUE, TASK):
        await store.limit(scope, per(1, timedelta(days=1)))
    assert await taken(store) == live[:1]
    assert [await state(store, job) for job in (used_up, asked, over)] == [State.FAILED] + [State.CANCELLED] * 2


async def test_a_job_that_one_limit_holds_back_is_charged_by_none(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, per(3, timedelta(hours=3)))
    await store.limit(EACH_KEY, per(1, timedelta(hours=1)))
    await store.limit(TASK, Limit(concurrency=1))
    keys: tuple[tuple[str, str | None], ...] = (
        ("send", "a"),
        ("send", "a"),
        ("send", "b"),
        ("other", "a"),
        ("other", "b"),
        ("other", None),
        ("other", "c"),
    )
    jobs = [new(task, limit_key=key) for task, key in keys]
    await store.enqueue(jobs)
    got = await taken(store)
    assert [n for n, job in enumerate(jobs) if job.id in got] == [0, 4, 5], "b's start was not used by the third"
    assert (await use(store, EACH_KEY, jobs[6].id)).next_start is None
    await lab.advance(3_600)
    assert await taken(store) == [jobs[0].id], "its lease ended, and a may start again"


async def test_rate_and_concurrency_of_one_limit_both_count(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, Limit(concurrency=2, rate=Rate(3, 30 * SECOND)))
    jobs = await add(store, 9)
    claims = await take(store)
    assert [claim.id for claim in claims] == jobs[:2]
    assert (await use(store)).next_start is None, "there is a start left; it waits for a slot"
    await end(store, claims[0], Succeeded())
    assert await taken(store) == jobs[2:3]
    await end(store, claims[1], Succeeded())
    assert await taken(store) == []
    assert (await use(store)).next_start == lab.now + 10 * SECOND
    await lab.advance(10)
    assert await taken(store) == jobs[3:4]


async def test_those_behind_a_job_that_must_wait_are_looked_at(store: Store, lab: Lab) -> None:
    await store.limit(EACH_KEY, per(1, timedelta(hours=1)))
    await store.limit(Scope(task="slow"), per(1, timedelta(hours=1)))
    held = await add(store, 300, limit_key="a")
    slow = await add(store, 300, task="slow")
    free = [await add_one(store, limit_key="b"), await add_one(store)]
    claims = await take(store, 5)
    assert [claim.id for claim in claims] == [held[0], slow[0], *free]
    await store.settle([claim.settled(Succeeded()) for claim in claims])
    assert await taken(store, 5) == []
    await lab.advance(3_600)
    assert await taken(store, 5) == [held[1], slow[1]]


async def test_a_task_has_one_rate_in_all_queues_and_a_key_one_in_each(store: Store) -> None:
    await store.limit(TASK, per(3, timedelta(hours=1)))
    for queue in ("a", "b"):
        await store.limit(Scope(queue=queue, each_key=True), per(1, timedelta(hours=1)))
        await add(store, 5, queue=queue)
        await add(store, 2, queue=queue, task="other", limit_key="k")
    got = [await take(store, 3, queue="a"), await take(store, queue="b"), await take(store, queue="a")]
    assert [[claim.task for claim in claims] for claims in got] == [["send"] * 3, ["other"], ["other"]]


# --- changed at run time ----------------------------------------------------------------------


async def test_the_same_rate_goes_on_and_another_begins_anew(store: Store, lab: Lab) -> None:
    one, other = Rate(2, timedelta(hours=2)), Rate(2, timedelta(hours=1))
    for scope in (QUEUE, EACH_KEY):
        await add(store, 20, limit_key="k")

        async def starts(limit: Limit | None, rank: int, scope: Scope = scope) -> int:
            """How many start now that this is set."""
            await store.limit(scope, limit, rank=rank)
            claims = await take(store, 3)
            await store.settle([claim.settled(Succeeded()) for claim in claims])
            return len(claims)

        assert await starts(Limit(rate=one), 3) == 2
        assert await starts(Limit(rate=one), 3) == 0
        assert await starts(Limit(rate=one, concurrency=5), 4) == 0, "the same rate"
        assert await starts(Limit(rate=other), 3) == 0, "too low a rank"
        assert await starts(Limit(rate=other), 4) == 2
        assert await starts(Limit(rate=one), 4) == 2
        assert await starts(Limit(concurrency=5), 4) == 3, "no rate"
        assert await starts(Limit(rate=one), 4) == 2
        assert await starts(None, 0) == 3
        assert await starts(Limit(rate=one), 0) == 2, "a limit that was taken away is forgotten"
        await store.limit(scope, None)


async def test_what_started_before_there_was_a_rate_is_not_charged(store: Store) -> None:
    jobs = await add(store, 5)
    assert await taken(store, 2) == jobs[:2]
    await store.limit(QUEUE, per(2, timedelta(hours=1)))
    assert await taken(store) == jobs[2:4]


async def test_pruning_does_not_fill_a_bucket(store: Store, lab: Lab) -> None:
    await store.limit(EACH_KEY, per(2, 20 * SECOND))
    for key in ("a", "b"):
        await add(store, 5, limit_key=key)
    assert len(await taken(store)) == 4
    await lab.advance(10)
    await store.prune(Retention())
    await store.sweep()
    assert len(await taken(store)) == 2
    await lab.advance(20)
    await store.prune(Retention())
    await store.sweep()
    await store.cancel(RUNNING, force=True)
    assert len(await taken(store)) == 4


# --- refused ----------------------------------------------------------------------------------

BAD: tuple[Any, ...] = (
    5,
    (1, SECOND),
    Rate(0, SECOND),
    Rate(-1, SECOND),
    Rate(STARTS[1] + 1, timedelta(days=1)),
    Rate(1.5, SECOND),  # type: ignore[arg-type]
    Rate(1, timedelta(0)),
    Rate(1, timedelta(microseconds=999)),
    Rate(1, timedelta(days=1, microseconds=1)),
    Rate(1, 5),  # type: ignore[arg-type]
    Rate(1_001, timedelta(milliseconds=1)),
)


async def test_bad_rates_are_refused(store: Store) -> None:
    await store.limit(QUEUE, per(*STARTS[1:], SECOND))
    before = await store.limits()
    for rate in BAD:
        with pytest.raises(Refused):
            await store.limit(QUEUE, Limit(concurrency=1, rate=rate))
    assert await store.limits() == before
