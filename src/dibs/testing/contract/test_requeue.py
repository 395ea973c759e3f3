"""Requeue: an operator sends a finished job back; its attempts begin again, its epoch goes on."""

import pytest

from dibs.job import Filter, State
from dibs.outcome import Cancelled, Failed, Outcome, Pulse, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    SECOND,
    add,
    add_one,
    beat,
    changed,
    end,
    finish,
    look,
    named,
    new,
    only,
    picture,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

FINAL: list[Outcome] = [Succeeded({"r": 1}), Failed("boom"), Cancelled()]


@pytest.mark.parametrize("outcome", FINAL, ids=named)
async def test_any_finished_job_can_be_sent_back(store: Store, lab: Lab, outcome: Outcome) -> None:
    job = await add_one(store, args={"a": 1}, priority=4, max_attempts=3, key="k", meta={"m": 1})
    created = lab.now
    await finish(store, job, outcome)
    before = await look(store, job)
    await lab.advance(10)
    assert await store.requeue(only(job)) == changed(1)
    after = await look(store, job)
    assert (after.state, after.attempts, after.epoch) == (State.QUEUED, 0, 1)
    assert (after.run_at, after.created_at) == (lab.now, created)
    assert (after.finished_at, after.started_at, after.locked_until) == (None, None, None)
    assert (after.worker, after.result, after.cancel_asked) == (None, None, False)
    assert after.errors == before.errors
    assert (after.args, after.priority, after.max_attempts) == ({"a": 1}, 4, 3)
    assert (after.key, after.meta) == ("k", {"m": 1})


async def test_a_job_whose_expired_lease_was_seen_stands_in_its_new_place_once(store: Store, lab: Lab) -> None:
    jobs = await add(store, 2, max_attempts=1)
    urgent = await add_one(store, priority=-1, max_attempts=2)
    await take(store, limit=3, lease=SECOND)
    await lab.advance(1)
    assert await taken(store, limit=1) == [urgent]  # on its way, the claim has seen the leases of the others too
    await store.cancel(only(jobs[1]), force=True)
    await store.requeue(only(jobs[1]))
    assert await taken(store, limit=3) == [jobs[1]]
    assert [await state(store, job) for job in jobs] == [State.FAILED, State.RUNNING]


async def test_a_cancelled_queued_job_can_be_sent_back(store: Store) -> None:
    job = await add_one(store)
    await store.cancel(only(job))
    assert await store.requeue(only(job)) == changed(1)
    claim = await take_one(store)
    assert (claim.id, claim.epoch, claim.attempt) == (job, 1, 1)
    assert await beat(store, claim) is Pulse.HELD


async def test_the_epoch_goes_on_rising(store: Store) -> None:
    job = await add_one(store, max_attempts=1)
    for epoch in range(1, 6):
        claim = await take_one(store)
        assert (claim.epoch, claim.attempt) == (epoch, 1)
        await end(store, claim, Failed("boom"))
        await store.requeue(only(job))
    assert [error.epoch for error in (await look(store, job)).errors] == [1, 2, 3, 4, 5]


async def test_a_requeued_job_has_all_its_attempts_again(store: Store) -> None:
    job = await add_one(store, max_attempts=2)
    for _ in range(2):
        await finish(store, job, Retry("boom"))
    assert await state(store, job) is State.FAILED
    await store.requeue(only(job))
    for _ in range(2):
        await finish(store, job, Retry("boom"))
    assert await state(store, job) is State.FAILED
    assert len((await look(store, job)).errors) == 4


async def test_an_old_owner_cannot_touch_a_requeued_job(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    old = await take_one(store)
    await store.cancel(only(job), force=True)
    await store.requeue(only(job))
    before = await look(store, job)
    assert await end(store, old, Succeeded("late")) is Verdict.LOST
    assert await beat(store, old) is Pulse.LOST
    assert await look(store, job) == before
    owner = await take_one(store)
    assert owner.epoch == 2
    assert await end(store, old, Succeeded("late")) is Verdict.LOST
    assert await end(store, owner, Succeeded("mine")) is Verdict.ACCEPTED


async def test_unfinished_jobs_are_not_requeued(store: Store, lab: Lab) -> None:
    await add(store, 2)
    await take_one(store)
    await add_one(store, run_at=lab.now + SECOND)
    before = await picture(store)
    assert await store.requeue(ALL) == changed(0)
    assert await picture(store) == before


async def test_an_expired_running_job_is_not_requeued(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    await take_one(store)
    await lab.advance(60)
    assert await store.requeue(only(job)) == changed(0)
    assert await state(store, job) is State.RUNNING


async def test_a_requeue_by_filter_reaches_only_what_matches(store: Store) -> None:
    good, bad = await add(store, 2)
    await finish(store, good, Succeeded(1))
    await finish(store, bad, Failed("boom"))
    assert await store.requeue(Filter(states=(State.FAILED,))) == changed(1)
    assert await taken(store) == [bad]
    assert (await look(store, good)).result == 1


# --- keys -------------------------------------------------------------------------------------


async def test_a_job_whose_key_is_busy_stays_finished_and_uncounted(store: Store) -> None:
    old = await add_one(store, key="k")
    await finish(store, old, Succeeded("done"))
    owner = await add_one(store, key="k")
    before = await picture(store)
    assert await store.requeue(only(old)) == changed(0)
    assert await picture(store) == before
    assert await taken(store) == [owner]


async def test_of_two_jobs_with_one_key_the_newest_is_requeued(store: Store) -> None:
    old = await add_one(store, key="k")
    await finish(store, old)
    newer = await add_one(store, key="k")
    await finish(store, newer)
    assert await store.requeue(ALL) == changed(1)
    assert await state(store, old) is State.SUCCEEDED
    assert await state(store, newer) is State.QUEUED


async def test_a_requeued_job_has_its_key_again(store: Store) -> None:
    job = await add_one(store, key="k")
    await finish(store, job)
    await store.requeue(only(job))
    [answer] = await store.enqueue([new(key="k")])
    assert (answer.id, answer.created) == (job, False)


async def test_a_busy_key_does_not_hold_back_the_others(store: Store) -> None:
    old, plain = await add_one(store, key="k"), await add_one(store)
    for _ in range(2):
        await end(store, await take_one(store), Succeeded())
    await add_one(store, key="k")
    assert await store.requeue(only(old, plain)) == changed(1)
    assert await state(store, plain) is State.QUEUED


async def test_a_dry_run_counts_jobs_with_busy_keys_too(store: Store) -> None:
    old = await add_one(store, key="k")
    await finish(store, old)
    await add_one(store, key="k")
    assert await store.requeue(ALL, dry_run=True) == changed(1)


async def test_a_requeued_job_goes_to_its_own_queue_paused_or_not(store: Store) -> None:
    job = await add_one(store, queue="mail")
    await finish(store, job, queue="mail")
    await store.pause("mail")
    await store.requeue(only(job))
    assert await take(store, queue="mail") == []
    await store.resume("mail")
    assert await taken(store, queue="mail") == [job]
