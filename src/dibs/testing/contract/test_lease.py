"""Leases: valid while ``locked_until > now``, expired from that instant on; nothing between."""

from datetime import timedelta

import pytest

from dibs.job import AttemptError, State
from dibs.outcome import Pulse, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    MICROSECOND,
    SECOND,
    add,
    add_one,
    beat,
    end,
    look,
    only,
    picture,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_lease_is_valid_until_the_instant_before_its_end(store: Store, lab: Lab) -> None:
    await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until - MICROSECOND)
    assert await take(store, worker="bob") == []
    assert await store.sweep() == 0
    assert await end(store, claim, Succeeded()) is Verdict.ACCEPTED


async def test_a_lease_is_expired_at_the_instant_of_its_end_for_a_claim(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    assert await taken(store, worker="bob") == [job]


async def test_a_lease_is_expired_at_the_instant_of_its_end_for_a_settle(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    before = await picture(store)
    assert await end(store, claim, Succeeded()) is Verdict.LOST
    assert await picture(store) == before
    assert await state(store, job) is State.RUNNING


async def test_a_lease_is_expired_at_the_instant_of_its_end_for_a_heartbeat(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    assert await beat(store, claim) is Pulse.LOST
    assert (await look(store, job)).locked_until == claim.locked_until


async def test_a_lease_is_expired_at_the_instant_of_its_end_for_a_sweep(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    assert await store.sweep() == 1
    assert await state(store, job) is State.QUEUED


async def test_an_expired_job_stays_running_until_somebody_reaches_it(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await take_one(store)
    before = await look(store, job)
    await lab.advance(3600)
    assert await look(store, job) == before


async def test_an_expired_job_is_claimed_again_with_the_next_epoch(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await take_one(store)
    await lab.advance(60)
    claim = await take_one(store, worker="bob")
    assert (claim.id, claim.epoch, claim.attempt, claim.worker) == (job, 2, 2, "bob")
    assert claim.locked_until == lab.now + LEASE
    after = await look(store, job)
    assert (after.epoch, after.attempts, after.worker) == (2, 2, "bob")
    assert (after.state, after.started_at) == (State.RUNNING, lab.now)


async def test_an_expired_attempt_is_kept_as_an_error(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    began = lab.now
    await take_one(store)
    await lab.advance(60)
    await take_one(store, worker="bob")
    assert (await look(store, job)).errors == (
        AttemptError(
            attempt=1,
            epoch=1,
            worker="ann",
            started_at=began,
            ended_at=lab.now,
            error="lease expired",
        ),
    )


async def test_an_expired_job_with_no_attempts_left_is_failed_by_a_claim(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    await take_one(store)
    await lab.advance(60)
    assert await take(store, worker="bob") == []
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.FAILED, lab.now)
    assert (after.attempts, after.epoch, after.worker) == (1, 1, "ann")
    assert after.locked_until is None
    assert [error.error for error in after.errors] == ["lease expired"]


async def test_an_expired_job_whose_cancel_was_asked_is_cancelled_by_a_claim(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await take_one(store)
    await store.cancel(only(job))
    await lab.advance(60)
    assert await take(store, worker="bob") == []
    after = await look(store, job)
    assert (after.state, after.finished_at, after.epoch) == (State.CANCELLED, lab.now, 1)
    assert [error.error for error in after.errors] == ["lease expired"]


async def test_exhausted_jobs_do_not_use_up_the_limit(store: Store, lab: Lab) -> None:
    spent = await add(store, 120, max_attempts=1)
    await take(store, 120)
    fresh = await add(store, 3)
    await lab.advance(60)
    assert await taken(store, 2) == fresh[:2]
    assert {await state(store, job) for job in spent} == {State.FAILED}


async def test_exhausted_jobs_behind_the_limit_are_not_touched(store: Store, lab: Lab) -> None:
    first = await add_one(store, priority=-1)
    spent = await add_one(store, max_attempts=1)
    await take(store)
    await lab.advance(60)
    assert await taken(store, 1) == [first]
    assert await state(store, spent) is State.RUNNING


async def test_an_expired_job_in_a_paused_queue_is_left_to_the_sweep(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    await take_one(store)
    await store.pause("default")
    await lab.advance(60)
    assert await take(store) == []
    assert await state(store, job) is State.RUNNING
    assert await store.sweep() == 1
    assert await state(store, job) is State.FAILED


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_job_that_dies_each_time_is_claimed_max_attempts_times(store: Store, lab: Lab, attempts: int) -> None:
    job = await add_one(store, max_attempts=attempts)
    epochs = []
    for n in range(attempts + 3):
        epochs += [claim.epoch for claim in await take(store, worker=f"w{n}")]
        await lab.advance(60)
    assert epochs == list(range(1, attempts + 1))
    assert await state(store, job) is State.FAILED


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_job_that_raises_each_time_is_claimed_max_attempts_times(store: Store, attempts: int) -> None:
    job = await add_one(store, max_attempts=attempts)
    numbers = []
    for _ in range(attempts + 3):
        for claim in await take(store):
            numbers.append(claim.attempt)
            await end(store, claim, Retry("boom"))
    assert numbers == list(range(1, attempts + 1))
    assert await state(store, job) is State.FAILED


async def test_leases_of_one_worker_end_each_at_its_own_time(store: Store, lab: Lab) -> None:
    short, long = await add(store, 2)
    await take_one(store, lease=SECOND)
    await take_one(store, lease=timedelta(minutes=5))
    await lab.advance(1)
    assert await taken(store, worker="bob") == [short]
    assert (await look(store, long)).worker == "ann"


async def test_the_same_worker_does_not_get_its_own_job_twice(store: Store) -> None:
    await add_one(store)
    await take_one(store, worker="ann")
    assert await take(store, worker="ann") == []


async def test_a_restarted_worker_of_the_same_name_is_fenced_by_the_epoch(store: Store, lab: Lab) -> None:
    await add_one(store)
    old = await take_one(store, worker="ann")
    await lab.advance(60)
    new = await take_one(store, worker="ann")
    before = await picture(store)
    assert await end(store, old, Succeeded("old")) is Verdict.LOST
    assert await picture(store) == before
    assert await beat(store, old, timedelta(hours=1)) is Pulse.LOST
    assert (await look(store, old.id)).locked_until == new.locked_until
    assert await end(store, new, Succeeded("new")) is Verdict.ACCEPTED


async def test_a_clock_that_steps_back_loses_no_queued_job(store: Store, lab: Lab) -> None:
    job, start = await add_one(store), lab.now
    assert await take(store, tasks=["other"]) == []
    await lab.set_clock(start - SECOND)
    assert await take(store) == []
    await lab.set_clock(start)
    assert await taken(store) == [job]


async def test_a_clock_that_steps_back_loses_no_expired_job(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    assert await take(store, tasks=["other"]) == []
    await lab.set_clock(claim.locked_until - SECOND)
    assert await take(store) == []
    assert await beat(store, claim) is Pulse.HELD
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == [job]
