"""Settle: only the owner finishes, and once; each item answers for itself."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import AttemptError, Settlement, State
from dibs.outcome import (
    Cancelled,
    Failed,
    Outcome,
    Released,
    Retry,
    Snoozed,
    Succeeded,
    Verdict,
)
from dibs.store import Store
from dibs.testing.contract.helpers import (
    OUTCOMES,
    SECOND,
    add,
    add_one,
    end,
    finish,
    look,
    named,
    only,
    picture,
    state,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

ACCEPTED, LOST = Verdict.ACCEPTED, Verdict.LOST
each_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=named)


# --- the six endings --------------------------------------------------------------------------


async def test_a_succeeded_job_keeps_its_result(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(2)
    assert await end(store, claim, Succeeded({"rows": [1, 2.5, None, "ü"]})) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.SUCCEEDED, lab.now)
    assert after.result == {"rows": [1, 2.5, None, "ü"]}
    assert (after.worker, after.epoch, after.attempts) == ("ann", 1, 1)
    assert (after.locked_until, after.errors) == (None, ())
    assert after.started_at == lab.now - 2 * SECOND


async def test_a_result_may_be_nothing(store: Store) -> None:
    job = await add_one(store)
    await finish(store, job, Succeeded())
    after = await look(store, job)
    assert (after.state, after.result) == (State.SUCCEEDED, None)


async def test_a_failed_job_keeps_its_error(store: Store, lab: Lab) -> None:
    job, began = await add_one(store), lab.now
    claim = await take_one(store)
    await lab.advance(2)
    assert await end(store, claim, Failed("boom", "Traceback…")) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.finished_at, after.result) == (State.FAILED, lab.now, None)
    assert after.errors == (
        AttemptError(
            attempt=1,
            epoch=1,
            worker="ann",
            started_at=began,
            ended_at=lab.now,
            error="boom",
            traceback="Traceback…",
        ),
    )


async def test_failed_is_for_good_whatever_attempts_are_left(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=5)
    await finish(store, job, Failed("boom"))
    await lab.advance(100_000)
    assert await take(store) == []


async def test_a_retry_is_due_again_after_its_delay(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(1)
    assert await end(store, claim, Retry("boom", 5 * SECOND)) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.run_at) == (State.QUEUED, lab.now + 5 * SECOND)
    assert (after.attempts, after.epoch, after.worker) == (1, 1, "ann")
    assert (after.locked_until, after.finished_at) == (None, None)
    assert [error.error for error in after.errors] == ["boom"]
    await lab.advance(4.999999)
    assert await take(store) == []
    await lab.advance(0.000001)
    again = await take_one(store)
    assert (again.id, again.attempt, again.epoch) == (job, 2, 2)


async def test_a_retry_with_no_attempts_left_is_failed(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    claim = await take_one(store)
    assert await end(store, claim, Retry("boom", 5 * SECOND, "tb")) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.FAILED, lab.now)
    assert [(error.error, error.traceback) for error in after.errors] == [("boom", "tb")]
    assert after.run_at == lab.now


async def test_a_cancelled_job_ends_cancelled(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job, Cancelled())
    after = await look(store, job)
    assert (after.state, after.finished_at) == (State.CANCELLED, lab.now)
    assert (after.errors, after.locked_until) == ((), None)


async def test_a_released_job_gets_its_attempt_back_but_not_its_epoch(store: Store, lab: Lab) -> None:
    job, began = await add_one(store, max_attempts=1), lab.now
    claim = await take_one(store)
    await lab.advance(1)
    assert await end(store, claim, Released()) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.attempts, after.epoch) == (State.QUEUED, 0, 1)
    assert (after.run_at, after.locked_until, after.errors) == (began, None, ())
    again = await take_one(store)
    assert (again.attempt, again.epoch) == (1, 2)


async def test_a_job_can_be_released_more_often_than_it_has_attempts(store: Store) -> None:
    job = await add_one(store, max_attempts=1)
    for epoch in range(1, 8):
        claim = await take_one(store)
        assert (claim.epoch, claim.attempt) == (epoch, 1)
        assert await end(store, claim, Released()) is ACCEPTED
    assert (await look(store, job)).attempts == 0


async def test_a_snoozed_job_gets_its_attempt_back_and_is_due_later(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=1)
    claim = await take_one(store)
    assert await end(store, claim, Snoozed(5 * SECOND)) is ACCEPTED
    after = await look(store, job)
    assert (after.state, after.attempts, after.epoch) == (State.QUEUED, 0, 1)
    assert (after.run_at, after.locked_until) == (lab.now + 5 * SECOND, None)
    assert await take(store) == []
    await lab.advance(5)
    assert (await take_one(store)).attempt == 1


@pytest.mark.parametrize("outcome", [Retry("boom", -SECOND), Snoozed(-SECOND)], ids=named)
async def test_a_negative_delay_is_none(store: Store, lab: Lab, outcome: Outcome) -> None:
    job = await add_one(store)
    await lab.advance(1)
    await finish(store, job, outcome)
    assert (await look(store, job)).run_at == lab.now


async def test_a_delay_is_cut_at_ten_years(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom", timedelta.max))
    assert (await look(store, job)).run_at == lab.now + timedelta(days=3650)


async def test_a_delay_keeps_its_microseconds(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom", timedelta(microseconds=1_234_567)))
    assert (await look(store, job)).run_at == lab.now + timedelta(microseconds=1_234_567)


# --- errors -----------------------------------------------------------------------------------


async def test_each_attempt_keeps_its_own_error(store: Store, lab: Lab) -> None:
    job, start = await add_one(store), lab.now
    for n in range(3):
        claim = await take_one(store, worker=f"w{n}")
        await lab.advance(1)
        await end(store, claim, Retry(f"boom {n}", timedelta(0), f"tb {n}"))
    assert (await look(store, job)).errors == tuple(
        AttemptError(
            attempt=n + 1,
            epoch=n + 1,
            worker=f"w{n}",
            started_at=start + n * SECOND,
            ended_at=start + (n + 1) * SECOND,
            error=f"boom {n}",
            traceback=f"tb {n}",
        )
        for n in range(3)
    )


async def test_a_job_keeps_its_last_ten_errors(store: Store) -> None:
    job = await add_one(store, max_attempts=50)
    for n in range(13):
        await finish(store, job, Retry(f"boom {n}"))
    errors = (await look(store, job)).errors
    assert [error.error for error in errors] == [f"boom {n}" for n in range(3, 13)]
    assert [error.attempt for error in errors] == list(range(4, 14))


async def test_expired_attempts_and_raised_errors_share_the_last_ten(store: Store, lab: Lab) -> None:
    job = await add_one(store, max_attempts=50)
    for n in range(12):
        claim = await take_one(store)
        if n % 2:
            await end(store, claim, Retry(f"boom {n}"))
        else:
            await lab.advance(60)
    errors = [error.error for error in (await look(store, job)).errors]
    assert errors == [f"boom {n}" if n % 2 else "lease expired" for n in range(2, 12)]


async def test_errors_stay_when_the_job_succeeds_in_the_end(store: Store) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom"))
    await finish(store, job, Succeeded(1))
    assert [error.error for error in (await look(store, job)).errors] == ["boom"]


# --- the fence --------------------------------------------------------------------------------


@each_outcome
async def test_a_settle_with_another_epoch_changes_nothing_and_is_told_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    before = await picture(store)
    for epoch in (claim.epoch - 1, claim.epoch + 1):
        assert await store.settle([Settlement(claim.id, epoch, "ann", outcome)]) == [LOST]
    assert await picture(store) == before


@each_outcome
async def test_a_settle_by_another_worker_changes_nothing_and_is_told_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    before = await picture(store)
    for worker in ("bob", "Ann", "ann2", "an"):
        assert await store.settle([Settlement(claim.id, 1, worker, outcome)]) == [LOST]
    assert await picture(store) == before


@each_outcome
async def test_a_late_settle_changes_nothing_and_is_told_lost(store: Store, lab: Lab, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await lab.set_clock(claim.locked_until)
    before = await picture(store)
    assert await end(store, claim, outcome) is LOST
    assert await picture(store) == before


@each_outcome
async def test_a_settle_after_somebody_else_claimed_changes_nothing(store: Store, lab: Lab, outcome: Outcome) -> None:
    await add_one(store)
    late = await take_one(store)
    await lab.advance(60)
    owner = await take_one(store, worker="bob")
    before = await picture(store)
    assert await end(store, late, outcome) is LOST
    assert await picture(store) == before
    assert await end(store, owner, outcome) is ACCEPTED


@each_outcome
async def test_a_settle_after_the_owner_finished_changes_nothing(store: Store, lab: Lab, outcome: Outcome) -> None:
    await add_one(store)
    late = await take_one(store)
    await lab.advance(60)
    await end(store, await take_one(store, worker="bob"), outcome)
    before = await picture(store)
    assert await end(store, late, outcome) is LOST
    assert await picture(store) == before


async def test_a_settle_of_a_job_that_is_not_running_is_lost(store: Store) -> None:
    job = await add_one(store)
    before = await picture(store)
    for epoch in (0, 1):
        assert await store.settle([Settlement(job, epoch, "ann", Succeeded())]) == [LOST]
    assert await picture(store) == before


async def test_a_settle_of_an_unknown_job_is_lost(store: Store) -> None:
    for job in (new_id(), uuid4()):
        assert await store.settle([Settlement(job, 1, "ann", Succeeded())]) == [LOST]
    assert await picture(store) == ([], [], [])


async def test_an_empty_settle_answers_nothing(store: Store) -> None:
    assert await store.settle([]) == []


@pytest.mark.parametrize("results", [[*range(6)], [None] * 6, [{"as": "all"}] * 6], ids=["each", "none", "same"])
async def test_each_item_of_a_settle_answers_for_itself(store: Store, lab: Lab, results: list[object]) -> None:
    jobs = await add(store, 6)
    claims = await take(store)
    await store.delete(only(jobs[1]), force=True)
    await store.cancel(only(jobs[3]), force=True)
    items = [claim.settled(Succeeded(result)) for claim, result in zip(claims, results, strict=True)]
    items.insert(4, Settlement(new_id(), 1, "ann", items[0].outcome))
    items[-1] = Settlement(jobs[5], 9, "ann", items[0].outcome)
    verdicts = [ACCEPTED, LOST, ACCEPTED, LOST, LOST, ACCEPTED, LOST]
    assert await store.settle(items) == verdicts
    assert await store.settle(items) == verdicts  # sent again
    assert [(await look(store, jobs[n])).result for n in (0, 2, 4)] == [results[n] for n in (0, 2, 4)]
    assert await state(store, jobs[3]) is State.CANCELLED
    assert await state(store, jobs[5]) is State.RUNNING


async def test_a_success_that_is_late_stays_lost_among_others_like_it(store: Store, lab: Lab) -> None:
    early, late = await add(store, 2)
    short = await take_one(store, lease=SECOND)
    claims = [short, *await take(store)]
    await lab.advance(1)
    assert await store.settle([claim.settled(Succeeded()) for claim in claims]) == [LOST, ACCEPTED]
    assert [await state(store, early), await state(store, late)] == [State.RUNNING, State.SUCCEEDED]


async def test_a_success_of_an_older_claim_stays_lost_among_others_like_it(store: Store, lab: Lab) -> None:
    await add(store, 2)
    old = await take_one(store, lease=SECOND)
    await lab.advance(1)
    new, other = await take(store)
    assert new.id == old.id and new.epoch == 2
    assert await store.settle([claim.settled(Succeeded()) for claim in (old, other)]) == [LOST, ACCEPTED]
    assert await state(store, old.id) is State.RUNNING


async def test_one_settle_can_hold_every_kind_of_outcome(store: Store, lab: Lab) -> None:
    jobs = await add(store, len(OUTCOMES))
    claims = await take(store)
    items = [claim.settled(outcome) for claim, outcome in zip(claims, OUTCOMES, strict=True)]
    assert await store.settle(items[::-1]) == [ACCEPTED] * len(OUTCOMES)
    assert [await state(store, job) for job in jobs] == [
        State.SUCCEEDED,
        State.QUEUED,
        State.FAILED,
        State.CANCELLED,
        State.QUEUED,
        State.QUEUED,
    ]


async def test_one_settle_can_hold_jobs_of_many_queues(store: Store) -> None:
    for n in range(5):
        await add_one(store, queue=f"q{n}")
    claims = [await take_one(store, queue=f"q{n}", worker=f"w{n}") for n in range(5)]
    assert await store.settle([claim.settled(Succeeded()) for claim in claims]) == [ACCEPTED] * 5


async def test_ten_thousand_claims_can_be_settled_at_once(store: Store) -> None:
    await add(store, 10_000)
    claims = await take(store, 10_000)
    verdicts = await store.settle([claim.settled(Succeeded()) for claim in claims])
    assert verdicts == [ACCEPTED] * 10_000
    [queue] = await store.counts()
    assert queue.states[State.SUCCEEDED] == 10_000


async def test_more_than_ten_thousand_settlements_are_refused(store: Store) -> None:
    await add_one(store)
    claim = await take_one(store)
    others = [Settlement(claim.id, n, "ann", Succeeded()) for n in range(2, 10_002)]
    with pytest.raises(Refused, match="10,000"):
        await store.settle([claim.settled(Succeeded()), *others])
    assert await state(store, claim.id) is State.RUNNING


async def test_one_claim_twice_in_one_settle_is_refused(store: Store) -> None:
    await add_one(store)
    claim = await take_one(store)
    before = await picture(store)
    with pytest.raises(Refused):
        await store.settle([claim.settled(Succeeded()), claim.settled(Retry("boom"))])
    assert await picture(store) == before


async def test_the_true_claim_of_a_job_is_accepted_beside_a_stale_one(store: Store, lab: Lab) -> None:
    await add_one(store)
    stale = await take_one(store)
    await lab.advance(60)
    owner = await take_one(store)
    items = [stale.settled(Failed("late")), owner.settled(Succeeded("mine"))]
    assert await store.settle(items) == [LOST, ACCEPTED]
    assert (await look(store, owner.id)).result == "mine"


async def test_concurrent_settles_of_one_claim_record_one_ending(store: Store, lab: Lab) -> None:
    await add_one(store)
    claim = await take_one(store)
    handles = [await lab.open() for _ in range(5)]
    endings: list[Outcome] = [Succeeded(1), Failed("boom"), Cancelled(), Released(), Retry("boom")]
    verdicts = await asyncio.gather(
        *(end(handle, claim, ending) for handle, ending in zip(handles, endings, strict=True))
    )
    assert sorted(verdicts) == [ACCEPTED, LOST, LOST, LOST, LOST]
