"""Order: priority, then run_at, then id; strict FIFO among equals, however they came in."""

from datetime import timedelta
from uuid import UUID

import pytest

from dibs.ids import new_id
from dibs.job import Priority
from dibs.outcome import Released, Retry, Snoozed
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
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
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def _one_by_one(store: Store, count: int) -> list[UUID]:
    return [(await take_one(store)).id for _ in range(count)]


async def test_jobs_of_one_bulk_call_are_claimed_in_their_order(store: Store) -> None:
    jobs = await add(store, 500)
    assert await taken(store, 500) == jobs


async def test_jobs_of_one_bulk_call_are_claimed_in_their_order_one_by_one(store: Store) -> None:
    jobs = await add(store, 50)
    assert await _one_by_one(store, 50) == jobs


async def test_jobs_enqueued_one_by_one_at_one_instant_are_fifo(store: Store) -> None:
    jobs = [await add_one(store) for _ in range(30)]
    assert await taken(store) == jobs


async def test_jobs_enqueued_one_after_another_are_fifo(store: Store, lab: Lab) -> None:
    jobs = []
    for _ in range(10):
        jobs.append(await add_one(store))
        await lab.advance(0.000001)
    assert await taken(store) == jobs


async def test_a_claim_of_many_is_in_order_whatever_order_they_were_stored_in(store: Store, lab: Lab) -> None:
    ages = [7 * n % 50 for n in range(50)]
    answers = await store.enqueue([new(run_at=lab.now - age * SECOND) for age in ages])
    jobs = {age: answer.id for age, answer in zip(ages, answers, strict=True)}
    assert await taken(store, 20) == [jobs[age] for age in range(49, 29, -1)]
    assert await taken(store, 50) == [jobs[age] for age in range(29, -1, -1)]


async def test_bulk_and_single_enqueues_share_one_order(store: Store, lab: Lab) -> None:
    jobs = await add(store, 5)
    jobs.append(await add_one(store))
    await lab.advance(1)
    jobs += await add(store, 5)
    assert await taken(store) == jobs


async def test_batches_of_any_size_follow_the_same_order(store: Store) -> None:
    jobs = await add(store, 100)
    got = [one for size in (1, 7, 30, 2, 60) for one in await taken(store, size)]
    assert got == jobs


async def test_handles_take_turns_in_one_order(store: Store, lab: Lab) -> None:
    jobs, other = await add(store, 20), await lab.open()
    got = []
    for n in range(10):
        got += await taken(other if n % 2 else store, 2, worker=f"w{n % 2}")
    assert got == jobs


async def test_a_smaller_priority_runs_first(store: Store) -> None:
    priorities = [0, 32767, -1, 100, -32768, 1, -100, 10, 9]
    jobs = {one: await add_one(store, priority=one) for one in priorities}
    assert await taken(store) == [jobs[one] for one in sorted(priorities)]


async def test_the_named_priorities_are_in_order(store: Store) -> None:
    low, normal, high = [await add_one(store, priority=one) for one in (Priority.LOW, Priority.NORMAL, Priority.HIGH)]
    assert await taken(store) == [high, normal, low]


async def test_an_earlier_run_at_runs_first(store: Store, lab: Lab) -> None:
    offsets = [0, -1, -3600, 10, 1]
    jobs = {n: await add_one(store, run_at=lab.now + n * SECOND) for n in offsets}
    await lab.advance(60)
    assert await taken(store) == [jobs[n] for n in sorted(offsets)]


async def test_one_microsecond_decides(store: Store, lab: Lab) -> None:
    jobs = [await add_one(store, run_at=lab.now + n * MICROSECOND) for n in (3, 1, 2, 0)]
    await lab.advance(1)
    assert await taken(store) == [jobs[3], jobs[1], jobs[2], jobs[0]]


async def test_run_at_beyond_the_precision_of_a_float_still_decides(store: Store, lab: Lab) -> None:
    far = lab.now + timedelta(days=365 * 300)
    jobs = [await add_one(store, run_at=far + n * MICROSECOND) for n in (2, 1, 0)]
    await lab.set_clock(far + SECOND)
    assert await taken(store) == jobs[::-1]


async def test_times_before_2001_sort_as_numbers_not_as_text(store: Store, lab: Lab) -> None:
    # 999,999,999 seconds since 1970 has fewer digits than 1,000,000,000.
    turn = lab.now.fromtimestamp(1_000_000_000, lab.now.tzinfo)
    late, early = [await add_one(store, run_at=turn + n * SECOND) for n in (1, -1)]
    first = await add_one(store, run_at=lab.now.fromtimestamp(0, lab.now.tzinfo))
    assert await taken(store) == [first, early, late]


async def test_priority_counts_before_run_at(store: Store, lab: Lab) -> None:
    old = await add_one(store, run_at=lab.now - timedelta(days=1))
    urgent = await add_one(store, priority=-1)
    assert await taken(store) == [urgent, old]


async def test_equal_priority_and_run_at_are_ordered_by_id(store: Store) -> None:
    ids = [new_id() for _ in range(20)]
    for one in ids[::-1]:
        await store.enqueue([new(id=one)])
    assert await taken(store) == ids


async def test_a_given_run_at_counts_like_a_created_time(store: Store, lab: Lab) -> None:
    later = await add_one(store, run_at=lab.now + SECOND)
    await lab.advance(1)
    now = await add_one(store)
    assert await taken(store) == [later, now]


# --- future jobs ------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 10])
async def test_a_future_job_of_smaller_priority_never_hides_a_due_one(store: Store, lab: Lab, limit: int) -> None:
    await add(store, 300, priority=-5, run_at=lab.now + SECOND)
    due = await add_one(store, priority=5)
    assert await taken(store, limit) == [due]


async def test_future_jobs_of_many_priorities_never_hide_a_due_one(store: Store, lab: Lab) -> None:
    await store.enqueue([new(priority=n, run_at=lab.now + SECOND) for n in range(-150, 150)])
    due = await add_one(store, priority=32767)
    assert await taken(store, 10) == [due]


async def test_a_future_job_takes_its_place_when_it_becomes_due(store: Store, lab: Lab) -> None:
    plain = await add_one(store)
    urgent = await add_one(store, priority=-5, run_at=lab.now + SECOND)
    assert await taken(store, 1) == [plain]
    assert await taken(store, 1) == []
    another = await add_one(store)
    await lab.advance(1)
    assert await taken(store) == [urgent, another]


# --- coming back ------------------------------------------------------------------------------


async def test_a_released_job_keeps_its_place(store: Store, lab: Lab) -> None:
    first, second = await add(store, 2)
    claim = await take_one(store)
    await lab.advance(1)
    await end(store, claim, Released())
    assert await taken(store) == [first, second]


async def test_a_retry_goes_behind_what_was_due_before_it(store: Store, lab: Lab) -> None:
    first, second = await add(store, 2)
    claim = await take_one(store)
    await lab.advance(1)
    await end(store, claim, Retry("boom"))
    assert await taken(store) == [second, first]


async def test_a_snoozed_job_stands_at_its_new_run_at(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await end(store, claim, Snoozed(2 * SECOND))
    before = await add_one(store, run_at=lab.now + SECOND)
    after = await add_one(store, run_at=lab.now + 3 * SECOND)
    await lab.advance(3)
    assert await taken(store) == [before, job, after]


async def test_an_expired_job_keeps_its_place(store: Store, lab: Lab) -> None:
    jobs = await add(store, 3)
    await take_one(store, worker="dead")
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == jobs


async def test_an_expired_job_does_not_go_before_a_more_urgent_one(store: Store, lab: Lab) -> None:
    plain = await add_one(store)
    await take_one(store, worker="dead")
    urgent = await add_one(store, priority=-1)
    await lab.advance(LEASE.total_seconds())
    assert await taken(store, 1) == [urgent]
    assert await taken(store, 1) == [plain]


async def test_an_expired_job_stands_at_its_run_at_not_at_its_lease(store: Store, lab: Lab) -> None:
    old, other = await add(store, 2)
    await take_one(store, worker="dead")
    await lab.advance(5)
    young = await add_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == [old, other, young]


async def test_a_swept_job_keeps_its_place(store: Store, lab: Lab) -> None:
    jobs = await add(store, 3)
    await take(store, 2, worker="dead")
    await lab.advance(LEASE.total_seconds())
    assert await store.sweep() == 2
    assert await taken(store) == jobs


async def test_a_requeued_job_stands_where_it_was_sent_back(store: Store, lab: Lab) -> None:
    old = await add_one(store)
    await finish(store, old)
    await lab.advance(1)
    before = await add_one(store)
    await lab.advance(1)
    await store.requeue(only(old))
    await lab.advance(1)
    after = await add_one(store)
    assert await taken(store) == [before, old, after]


async def test_reprioritised_and_rescheduled_jobs_take_their_new_places(store: Store, lab: Lab) -> None:
    a, b, c, d = await add(store, 4)
    await store.reprioritise(only(d), -1)
    await store.reprioritise(only(a), 1)
    await store.reschedule(only(c), lab.now - SECOND)
    assert await taken(store) == [d, c, b, a]


async def test_queues_do_not_mix(store: Store) -> None:
    mail, files = await add(store, 5, queue="mail"), await add(store, 5, queue="files")
    assert await taken(store, queue="files") == files
    assert await taken(store, queue="mail") == mail
