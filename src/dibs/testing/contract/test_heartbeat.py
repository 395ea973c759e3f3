"""Heartbeat: renews what is held, says what is lost, never shortens a lease or revives a job."""

from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Claim
from dibs.outcome import Outcome, Pulse, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    OUTCOMES,
    SECOND,
    add,
    add_one,
    beat,
    end,
    look,
    named,
    only,
    picture,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_heartbeat_renews_the_lease_from_now(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(20)
    before = await look(store, job)
    assert await beat(store, claim) is Pulse.HELD
    after = await look(store, job)
    assert after.locked_until == lab.now + LEASE
    assert (after.epoch, after.attempts, after.started_at) == (1, 1, before.started_at)
    assert (after.state, after.worker, after.errors) == (before.state, "ann", ())


async def test_a_renewed_job_is_not_given_away_at_its_first_end(store: Store, lab: Lab) -> None:
    await add_one(store)
    claim = await take_one(store)
    await lab.advance(20)
    await beat(store, claim)
    await lab.set_clock(claim.locked_until)
    assert await take(store, worker="bob") == []
    assert await store.sweep() == 0
    assert await end(store, claim, Succeeded()) is Verdict.ACCEPTED


async def test_a_renewed_lease_ends_too(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(20)
    await beat(store, claim)
    await lab.advance(LEASE.total_seconds())
    assert await beat(store, claim) is Pulse.LOST
    assert await taken(store, worker="bob") == [job]


async def test_a_job_can_be_held_for_many_leases(store: Store, lab: Lab) -> None:
    await add_one(store)
    claim = await take_one(store)
    for _ in range(10):
        await lab.set_clock(lab.now + LEASE - SECOND)
        assert await beat(store, claim) is Pulse.HELD
        assert await take(store, worker="bob") == []
    assert await end(store, claim, Succeeded()) is Verdict.ACCEPTED


async def test_a_heartbeat_never_shortens_a_lease(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store, lease=timedelta(hours=1))
    await lab.advance(1)
    assert await beat(store, claim, SECOND) is Pulse.HELD
    assert (await look(store, job)).locked_until == claim.locked_until


async def test_a_heartbeat_never_revives_an_expired_job(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(LEASE.total_seconds())
    before = await look(store, job)
    assert await beat(store, claim) is Pulse.LOST
    assert await look(store, job) == before
    assert await taken(store, worker="bob") == [job]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
async def test_a_settled_claim_is_lost_and_nothing_changes(store: Store, outcome: Outcome) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await end(store, claim, outcome)
    before = await look(store, job)
    assert await beat(store, claim) is Pulse.LOST
    assert await look(store, job) == before


async def test_a_claim_that_somebody_else_has_now_is_lost(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(60)
    await take_one(store, worker="bob")
    before = await look(store, job)
    assert await beat(store, claim, timedelta(hours=1)) is Pulse.LOST
    assert await look(store, job) == before


async def test_another_worker_cannot_renew_a_claim(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await lab.advance(1)
    before = await look(store, job)
    assert await store.heartbeat("bob", [claim], LEASE) == [Pulse.LOST]
    assert await look(store, job) == before


async def test_a_deleted_job_is_lost(store: Store) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await store.delete(only(job), force=True)
    assert await beat(store, claim) is Pulse.LOST
    assert await store.get(job) is None


async def test_each_claim_answers_for_itself_in_order(store: Store, lab: Lab) -> None:
    jobs = await add(store, 5)
    claims = await take(store)
    await end(store, claims[0], Succeeded())
    await store.cancel(only(jobs[2]))
    await store.cancel(only(jobs[3]), force=True)
    await lab.advance(1)
    pulses = await store.heartbeat("ann", claims[::-1], LEASE)
    assert pulses[::-1] == [Pulse.LOST, Pulse.HELD, Pulse.CANCEL, Pulse.LOST, Pulse.HELD]
    assert (await look(store, jobs[4])).locked_until == lab.now + LEASE


async def test_one_heartbeat_can_hold_claims_of_many_queues(store: Store, lab: Lab) -> None:
    claims: list[Claim] = []
    for n in range(5):
        await add_one(store, queue=f"q{n}")
        claims.append(await take_one(store, queue=f"q{n}"))
    await lab.advance(1)
    assert await store.heartbeat("ann", claims, LEASE) == [Pulse.HELD] * 5
    for claim in claims:
        assert (await look(store, claim.id)).locked_until == lab.now + LEASE


async def test_a_claim_that_comes_twice_answers_twice(store: Store) -> None:
    await add(store, 2)
    one, two = await take(store)
    pulses = await store.heartbeat("ann", [one, two, one], LEASE)
    assert pulses == [Pulse.HELD] * 3


async def test_a_thousand_claims_are_renewed_in_one_call(store: Store, lab: Lab) -> None:
    await add(store, 1_000)
    claims = await take(store, 1_000)
    await lab.advance(1)
    assert await store.heartbeat("ann", claims, LEASE) == [Pulse.HELD] * 1_000
    await lab.set_clock(claims[0].locked_until)
    assert await store.sweep() == 0


BAD_BEATS: list[dict[str, Any]] = [
    {"worker": ""},
    {"worker": "a\0"},
    {"lease": timedelta(0)},
    {"lease": timedelta(hours=25)},
    {"info": {"x": float("nan")}},
    {"info": {"x": "\0"}},
    {"info": {"x": object}},
    {"info": {1: "x"}},
]


@pytest.mark.parametrize("bad", BAD_BEATS, ids=lambda bad: ascii(bad)[:40])
async def test_a_heartbeat_that_breaks_a_rule_changes_nothing(store: Store, lab: Lab, bad: dict[str, Any]) -> None:
    await add_one(store)
    claim = await take_one(store)
    await store.heartbeat("ann", [], LEASE, {"v": 1})
    await lab.advance(1)
    before = await picture(store)
    given: dict[str, Any] = {"worker": "ann", "claims": [claim], "lease": LEASE, **bad}
    with pytest.raises(Refused):
        await store.heartbeat(**given)
    assert await picture(store) == before


async def test_more_than_ten_thousand_claims_are_refused(store: Store) -> None:
    await add_one(store)
    claim = await take_one(store)
    with pytest.raises(Refused, match="10,000"):
        await store.heartbeat("ann", [claim] * 10_001, LEASE)
    assert (await look(store, claim.id)).locked_until == claim.locked_until
