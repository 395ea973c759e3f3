"""Cancel: what has not started ends at once; what is running is asked."""

from datetime import timedelta

import pytest

from dibs.job import Filter, State
from dibs.outcome import (
    Cancelled,
    Failed,
    Outcome,
    Pulse,
    Released,
    Retry,
    Snoozed,
    Succeeded,
    Verdict,
)
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    LEASE,
    OUTCOMES,
    SECOND,
    add,
    add_one,
    beat,
    changed,
    end,
    finish,
    look,
    named,
    only,
    picture,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_queued_job_is_cancelled_at_once(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await lab.advance(1)
    assert await store.cancel(only(job)) == changed(1)
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.CANCELLED, lab.now)
    assert (after.attempts, after.epoch, after.worker, after.errors) == (0, 0, None, ())
    assert after.cancel_asked
    assert await take(store) == []


async def test_a_scheduled_job_is_cancelled_at_once(store: Store, lab: Lab) -> None:
    job = await add_one(store, run_at=lab.now + SECOND)
    assert await store.cancel(only(job)) == changed(1)
    await lab.advance(1)
    assert await take(store) == []
    assert await state(store, job) is State.CANCELLED


async def test_a_running_job_is_asked_and_goes_on(store: Store) -> None:
    job = await add_one(store)
    await take_one(store)
    before = await look(store, job)
    assert await store.cancel(only(job)) == changed(1)
    after = await look(store, job)
    assert after.cancel_asked
    assert not before.cancel_asked
    assert (after.state, after.locked_until, after.epoch) == (
        State.RUNNING,
        before.locked_until,
        before.epoch,
    )
    assert after.finished_at is None


async def test_the_worker_learns_of_a_cancel_at_its_heartbeat(store: Store, lab: Lab) -> None:
    jobs = await add(store, 3)
    claims = await take(store)
    await store.cancel(only(jobs[1]))
    await lab.advance(1)
    pulses = await store.heartbeat("ann", claims, LEASE)
    assert pulses == [Pulse.HELD, Pulse.CANCEL, Pulse.HELD]
    assert (await look(store, jobs[1])).locked_until == lab.now + LEASE


async def test_an_asked_worker_still_holds_its_lease(store: Store) -> None:
    job = await add_one(store)
    await take_one(store)
    await store.cancel(only(job))
    assert await take(store, worker="bob") == []


ENDINGS: list[tuple[Outcome, State]] = [
    (Succeeded("done"), State.SUCCEEDED),
    (Failed("boom"), State.FAILED),
    (Cancelled(), State.CANCELLED),
    (Retry("boom", 5 * SECOND), State.CANCELLED),
    (Released(), State.CANCELLED),
    (Snoozed(5 * SECOND), State.CANCELLED),
]


@pytest.mark.parametrize(("outcome", "ending"), ENDINGS, ids=[named(one) for one, _ in ENDINGS])
async def test_an_asked_job_ends_unless_its_handler_ended_it(
    store: Store, lab: Lab, outcome: Outcome, ending: State
) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await store.cancel(only(job))
    await lab.advance(1)
    assert await end(store, claim, outcome) is Verdict.ACCEPTED
    after = await look(store, job)
    assert (after.state, after.finished_at, after.locked_until) == (ending, lab.now, None)
    await lab.advance(3600)
    assert await take(store) == []


async def test_the_error_of_an_asked_retry_is_kept(store: Store) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await store.cancel(only(job))
    await end(store, claim, Retry("boom"))
    assert [error.error for error in (await look(store, job)).errors] == ["boom"]


async def test_a_last_retry_of_an_asked_job_ends_cancelled_not_failed(store: Store) -> None:
    job = await add_one(store, max_attempts=1)
    claim = await take_one(store)
    await store.cancel(only(job))
    await end(store, claim, Retry("boom"))
    assert await state(store, job) is State.CANCELLED


async def test_an_expired_exhausted_asked_job_ends_cancelled_not_failed(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    await take_one(store)
    await store.cancel(only(job))
    await lab.advance(60)
    assert await store.sweep() == 1
    assert await state(store, job) is State.CANCELLED


async def test_an_expired_job_that_is_asked_is_not_revived(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(60)
    assert await store.cancel(only(job)) == changed(1)
    assert await state(store, job) is State.RUNNING
    assert await beat(store, claim) is Pulse.LOST
    assert await take(store, worker="bob") == []
    assert await state(store, job) is State.CANCELLED


# --- by force ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
async def test_force_cancels_a_running_job_and_fences_its_owner_out(store: Store, lab: Lab, outcome: Outcome) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(1)
    assert await store.cancel(only(job), force=True) == changed(1)
    after = await look(store, job)
    assert (after.state, after.finished_at, after.locked_until) == (
        State.CANCELLED,
        lab.now,
        None,
    )
    assert (after.worker, after.epoch, after.attempts) == ("ann", 1, 1)
    assert await end(store, claim, outcome) is Verdict.LOST
    assert await beat(store, claim) is Pulse.LOST
    assert await look(store, job) == after


async def test_force_cancels_a_job_that_was_asked_before(store: Store) -> None:
    job = await add_one(store)
    await take_one(store)
    await store.cancel(only(job))
    assert await store.cancel(only(job), force=True) == changed(1)
    assert await state(store, job) is State.CANCELLED


async def test_force_cancels_queued_jobs_too(store: Store) -> None:
    jobs = await add(store, 2)
    await take_one(store)
    assert await store.cancel(ALL, force=True) == changed(2)
    assert [await state(store, job) for job in jobs] == [State.CANCELLED] * 2


async def test_an_expired_job_can_be_cancelled_by_force(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await take_one(store)
    await lab.advance(60)
    assert await store.cancel(only(job), force=True) == changed(1)
    assert await state(store, job) is State.CANCELLED
    assert await store.sweep() == 0


# --- finished ---------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("outcome", [Succeeded(1), Failed("x"), Cancelled()], ids=named)
async def test_a_finished_job_is_never_cancelled(store: Store, lab: Lab, outcome: Outcome, force: bool) -> None:
    job = await add_one(store)
    await finish(store, job, outcome)
    await lab.advance(1)
    before = await picture(store)
    assert await store.cancel(only(job), force=force) == changed(0)
    assert await picture(store) == before


async def test_cancelling_twice_changes_nothing_more(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await store.cancel(only(job))
    await lab.advance(1)
    before = await picture(store)
    assert await store.cancel(only(job)) == changed(0)
    assert await picture(store) == before


async def test_a_cancel_by_filter_reaches_only_what_matches(store: Store) -> None:
    mail, files = await add_one(store, queue="mail"), await add_one(store, queue="files")
    assert await store.cancel(Filter(queues=("mail",))) == changed(1)
    assert await state(store, mail) is State.CANCELLED
    assert await taken(store, queue="files") == [files]


async def test_a_retrying_job_is_cancelled_at_once(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom", timedelta(hours=1)))
    assert await store.cancel(only(job)) == changed(1)
    after = await look(store, job)
    assert (after.state, after.attempts, after.worker) == (State.CANCELLED, 1, "ann")
    assert len(after.errors) == 1
