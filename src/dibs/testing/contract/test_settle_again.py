"""Settle, sent again: accepted twice and counted once, until something else happened to the job."""

from datetime import timedelta
from typing import Any

import pytest

from dibs.job import Settlement
from dibs.outcome import Cancelled, Failed, Outcome, Released, Retry, Snoozed, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    OUTCOMES,
    add_one,
    end,
    finish,
    look,
    named,
    only,
    picture,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

ACCEPTED, LOST = Verdict.ACCEPTED, Verdict.LOST
each_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=named)


@each_outcome
@pytest.mark.parametrize("later", [0, 3600])
async def test_a_settle_sent_twice_is_accepted_twice_and_counted_once(
    store: Store, lab: Lab, outcome: Outcome, later: int
) -> None:
    await add_one(store)
    claim = await take_one(store)
    assert await end(store, claim, outcome) is ACCEPTED
    await lab.advance(later)
    before = await picture(store)
    for _ in range(2):
        assert await end(store, claim, outcome) is ACCEPTED
    assert await picture(store) == before


async def test_a_retry_that_failed_the_job_can_be_sent_twice(store: Store) -> None:
    await add_one(store, max_attempts=1)
    claim = await take_one(store)
    assert await end(store, claim, Retry("boom")) is ACCEPTED
    before = await picture(store)
    assert await end(store, claim, Retry("boom")) is ACCEPTED
    assert await picture(store) == before


async def test_a_retry_that_ended_cancelled_can_be_sent_twice(store: Store) -> None:
    await add_one(store)
    claim = await take_one(store)
    await store.cancel(only(claim.id))
    assert await end(store, claim, Retry("boom")) is ACCEPTED
    before = await picture(store)
    assert await end(store, claim, Retry("boom")) is ACCEPTED
    assert await picture(store) == before


async def test_a_result_that_could_not_be_stored_can_be_sent_twice(store: Store) -> None:
    await add_one(store)
    claim = await take_one(store)
    assert await end(store, claim, Succeeded(float("nan"))) is ACCEPTED
    before = await picture(store)
    assert await end(store, claim, Succeeded(float("nan"))) is ACCEPTED
    assert await picture(store) == before


@each_outcome
async def test_a_settle_sent_again_another_way_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    before = await picture(store)
    for other in OUTCOMES:
        if type(other) is not type(outcome):
            assert await end(store, claim, other) is LOST
    assert await picture(store) == before


@each_outcome
async def test_a_settle_sent_again_by_another_worker_or_epoch_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    before = await picture(store)
    assert await store.settle([Settlement(claim.id, 1, "bob", outcome)]) == [LOST]
    assert await store.settle([Settlement(claim.id, 0, "ann", outcome)]) == [LOST]
    assert await store.settle([Settlement(claim.id, 2, "ann", outcome)]) == [LOST]
    assert await picture(store) == before


@each_outcome
async def test_a_settle_sent_again_after_a_delete_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    await store.delete(only(claim.id))
    assert await end(store, claim, outcome) is LOST
    assert await store.get(claim.id) is None


@pytest.mark.parametrize("outcome", [Succeeded(1), Failed("x"), Cancelled()], ids=named)
async def test_a_settle_sent_again_after_a_requeue_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    await store.requeue(only(claim.id))
    before = await picture(store)
    assert await end(store, claim, outcome) is LOST
    assert await picture(store) == before


RETURNING: list[Any] = [Retry("boom"), Released(), Snoozed(timedelta(0))]


@pytest.mark.parametrize("outcome", RETURNING, ids=named)
async def test_a_settle_sent_again_after_the_next_claim_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    await take_one(store)
    before = await picture(store)
    assert await end(store, claim, outcome) is LOST
    assert await picture(store) == before


@pytest.mark.parametrize("outcome", RETURNING, ids=named)
async def test_a_settle_sent_again_after_a_cancel_is_lost(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    await store.cancel(only(claim.id))
    before = await picture(store)
    assert await end(store, claim, outcome) is LOST
    assert await picture(store) == before


async def test_a_settle_sent_again_while_the_next_owner_runs_is_lost_for_the_same_worker(
    store: Store, lab: Lab
) -> None:
    await add_one(store)
    first = await take_one(store, worker="ann")
    await end(store, first, Retry("boom"))
    second = await take_one(store, worker="ann")
    assert await end(store, first, Retry("boom")) is LOST
    assert await end(store, second, Retry("boom")) is ACCEPTED
    assert len((await look(store, first.id)).errors) == 2


async def test_a_settled_retry_does_not_block_the_next_claim(store: Store) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom"))
    assert await taken(store, lease=LEASE) == [job]
