"""Sweep: what a claim does to expired jobs, where nobody claims."""

from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import AttemptError, State
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    SECOND,
    add,
    add_one,
    beat,
    end,
    every_job,
    finish,
    look,
    only,
    picture,
    state,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_sweep_of_an_empty_store_finds_nothing(store: Store) -> None:
    assert await store.sweep() == 0


async def test_a_sweep_changes_nothing_that_has_not_expired(store: Store, lab: Lab) -> None:
    done, *_ = await add(store, 3)
    await finish(store, done)
    await take_one(store)
    await add_one(store, run_at=lab.now + SECOND)
    await lab.set_clock(lab.now + LEASE - SECOND)
    before = await picture(store)
    assert await store.sweep() == 0
    assert await picture(store) == before


async def test_an_expired_job_goes_back_to_queued(store: Store, lab: Lab) -> None:
    job, began = await add_one(store), lab.now
    await take_one(store)
    await lab.advance(60)
    assert await store.sweep() == 1
    after = await look(store, job)
    assert (after.state, after.locked_until, after.run_at) == (State.QUEUED, None, began)
    assert (after.attempts, after.epoch, after.worker) == (1, 1, "ann")
    assert (after.started_at, after.finished_at) == (began, None)
    assert after.errors == (
        AttemptError(
            attempt=1,
            epoch=1,
            worker="ann",
            started_at=began,
            ended_at=lab.now,
            error="lease expired",
        ),
    )


async def test_an_exhausted_job_is_failed(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    await take_one(store)
    await lab.advance(60)
    assert await store.sweep() == 1
    after = await look(store, job)
    assert (after.state, after.finished_at, after.locked_until) == (State.FAILED, lab.now, None)
    assert [error.error for error in after.errors] == ["lease expired"]


async def test_a_job_whose_cancel_was_asked_is_cancelled(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await take_one(store)
    await store.cancel(only(job))
    await lab.advance(60)
    assert await store.sweep() == 1
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.CANCELLED, lab.now)
    assert [error.error for error in after.errors] == ["lease expired"]


async def test_a_sweep_reaches_every_queue_also_paused_ones(store: Store, lab: Lab) -> None:
    for name in ("a", "b", "c"):
        await add_one(store, queue=name)
        await take_one(store, queue=name)
    await store.pause("b")
    await lab.advance(60)
    assert await store.sweep() == 3
    assert {job.state for job in await every_job(store)} == {State.QUEUED}


async def test_a_sweep_takes_at_most_its_limit_the_longest_expired_first(store: Store, lab: Lab) -> None:
    jobs = await add(store, 5)
    for n in (5, 3, 1, 4, 2):
        await take_one(store, lease=n * SECOND)
    await lab.advance(60)
    order = [jobs[n] for n in (2, 4, 1, 3, 0)]
    for done, count in ((2, 2), (4, 2), (5, 1)):
        assert await store.sweep(2) == count
        assert [await state(store, job) for job in order] == ([State.QUEUED] * done + [State.RUNNING] * (5 - done))
    assert await store.sweep(2) == 0


async def test_a_sweep_is_made_if_none_was_within_the_time(store: Store, lab: Lab) -> None:
    await add(store, 3)
    await take(store, lease=30 * SECOND)
    assert await store.sweep(not_within=10 * SECOND) == 0
    await lab.advance(31)
    assert await store.sweep(2, not_within=10 * SECOND) == 2
    assert await store.sweep(2, not_within=10 * SECOND) == 1, "the last one has not looked at all"


async def test_a_sweep_that_is_not_spared_is_made_at_any_time(store: Store, lab: Lab) -> None:
    await add(store, 2)
    for seconds in (1, 2):
        await take_one(store, lease=seconds * SECOND)
    for _ in range(2):
        await lab.advance(1)
        assert await store.sweep() == 1


async def test_a_second_sweep_finds_nothing(store: Store, lab: Lab) -> None:
    await add(store, 3, max_attempts=2)
    await take(store)
    await lab.advance(60)
    assert await store.sweep() == 3
    before = await picture(store)
    assert await store.sweep() == 0
    assert await picture(store) == before


async def test_the_late_owner_of_a_swept_job_is_lost(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(60)
    await store.sweep()
    before = await look(store, job)
    assert await end(store, claim, Succeeded()) is Verdict.LOST
    assert await beat(store, claim) is Pulse.LOST
    assert await look(store, job) == before


async def test_a_swept_job_is_claimed_again_until_its_attempts_are_used_up(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=3)
    numbers = []
    while claims := await take(store):
        numbers += [(claim.attempt, claim.epoch) for claim in claims]
        await lab.advance(60)
        assert await store.sweep() == 1
    assert numbers == [(1, 1), (2, 2), (3, 3)]
    assert await state(store, job) is State.FAILED


async def test_a_released_lease_is_not_swept(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job)
    await store.requeue(only(job))
    await lab.advance(60)
    assert await store.sweep() == 0


@pytest.mark.parametrize("limit", [0, -1, 10_001, True])
async def test_a_sweep_takes_1_to_10000(store: Store, limit: Any) -> None:
    with pytest.raises(Refused):
        await store.sweep(limit)


@pytest.mark.parametrize("not_within", [5, 0 * SECOND, -SECOND])
async def test_a_sweep_is_spared_for_some_time(store: Store, not_within: Any) -> None:
    with pytest.raises(Refused, match="not_within"):
        await store.sweep(not_within=not_within)
