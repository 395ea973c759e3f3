"""Expiry: from ``expires_at`` on no attempt is started; a job that is not running by then ends cancelled."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from dibs.errors import Refused
from dibs.job import FlowState, OnFailure, State
from dibs.outcome import Outcome, Pulse, Released, Retry, Snoozed, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    CANCELLED,
    QUEUED,
    SUCCEEDED,
    WAITING,
    begin,
    chain,
    flow_of,
    flow_state,
    run_steps,
    shown,
    states,
    step,
    steps_of,
)
from dibs.testing.contract.helpers import (
    LEASE,
    MICROSECOND,
    SECOND,
    add,
    add_one,
    beat,
    changed,
    end,
    enqueue_one,
    every_job,
    finish,
    look,
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


# --- a claim ----------------------------------------------------------------------------------


async def test_a_job_is_started_until_its_time_comes_to_the_microsecond(store: Store, lab: Lab) -> None:
    when = lab.now + 10 * SECOND
    just, late = await add(store, 2, expires_at=when)
    await lab.set_clock(when - MICROSECOND)
    assert (await look(store, just)).expires_at == when
    assert await taken(store, 1) == [just]
    await lab.set_clock(when)
    assert await taken(store) == []
    assert [await state(store, job) for job in (just, late)] == [State.RUNNING, State.CANCELLED]


async def test_a_job_whose_time_has_come_ends_without_a_trace_of_an_attempt(store: Store, lab: Lab) -> None:
    job = await add_one(store, expires_at=lab.now + SECOND)
    before = await look(store, job)
    await lab.advance(5)
    assert await taken(store) == []
    assert await look(store, job) == replace(before, state=State.CANCELLED, finished_at=lab.now)
    after = await picture(store)
    assert await taken(store) == []
    assert await store.sweep() == 0
    assert await picture(store) == after


async def test_jobs_that_ended_do_not_use_up_the_limit(store: Store, lab: Lab) -> None:
    await add(store, 3, expires_at=lab.now + SECOND)
    jobs = await add(store, 3)
    await lab.advance(1)
    assert await taken(store, 2) == jobs[:2]


async def test_only_what_a_claim_passes_ends(store: Store, lab: Lab) -> None:
    when = lab.now + SECOND
    front, live, behind, unknown, elsewhere, paused = [
        (await enqueue_one(store, job)).id
        for job in (
            new(expires_at=when),
            new(),
            new(expires_at=when),
            new("unknown", expires_at=when, priority=-1),
            new(queue="elsewhere", expires_at=when),
            new(queue="paused", expires_at=when),
        )
    ]
    future = await add_one(store, priority=-1, run_at=lab.now, expires_at=when)
    await store.reschedule(only(future), lab.now + 60 * SECOND)
    await store.pause("paused")
    await lab.advance(1)
    assert await taken(store, 1, tasks=["send"]) == [live]
    assert await taken(store, queue="paused") == []
    assert [job.id for job in await every_job(store) if job.state is State.CANCELLED] == [front]
    assert await taken(store) == []
    left = [job.id for job in await every_job(store) if job.state is State.QUEUED]
    assert left == [future, paused, elsewhere]
    assert [await state(store, job) for job in (behind, unknown)] == [State.CANCELLED] * 2


async def test_a_running_job_is_not_disturbed(store: Store, lab: Lab) -> None:
    job = await add_one(store, expires_at=lab.now + SECOND)
    claim = await take_one(store)
    await lab.advance(5)
    assert await beat(store, claim) is Pulse.HELD
    assert await taken(store) == []
    assert await store.sweep() == 0
    assert await end(store, claim, Succeeded(1)) is Verdict.ACCEPTED
    assert (await look(store, job)).result == 1


@pytest.mark.parametrize("way", ["claim", "sweep"])
async def test_a_job_that_comes_back_too_late_ends(store: Store, lab: Lab, way: str) -> None:
    outcomes: tuple[Outcome, ...] = (Retry("boom"), Retry("boom", 9 * SECOND), Released(), Snoozed(9 * SECOND))
    jobs = await add(store, 4, expires_at=lab.now + 5 * SECOND)
    claims = await take(store)
    await lab.advance(1)
    items = [claim.settled(outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    assert await store.settle(items) == [Verdict.ACCEPTED] * 4
    assert {job.state for job in await every_job(store)} == {State.QUEUED}
    await lab.advance(20)
    if way == "claim":
        assert await taken(store) == []
    else:
        assert await store.sweep() == 4
    found = [await look(store, job) for job in jobs]
    assert {(job.state, job.finished_at, job.cancel_asked) for job in found} == {(CANCELLED, lab.now, False)}
    assert [len(job.errors) for job in found] == [1, 1, 0, 0]
    assert await store.settle(items) == [Verdict.LOST] * 4, "sent again, too late"


# --- expired leases ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["claim", "sweep"])
async def test_an_expired_lease_is_judged_in_one_order(store: Store, lab: Lab, way: str) -> None:
    """A cancel that was asked comes first, then the attempts, then the time."""
    combinations = list(product((True, False), repeat=3))
    jobs = []
    for asked, used_up, over in combinations:
        expires_at = lab.now + (10 * SECOND if over else timedelta(days=1))
        job = await add_one(store, max_attempts=1 if used_up else 2, expires_at=expires_at)
        await take_one(store, worker="dead")
        if asked:
            await store.cancel(only(job))
        jobs.append(job)
    await lab.advance(LEASE.total_seconds())
    if way == "claim":
        assert await taken(store, worker="heir") == jobs[-1:]
    else:
        assert await store.sweep() == len(jobs)
    for job, (asked, used_up, over) in zip(jobs, combinations, strict=True):
        found = await look(store, job)
        again = State.RUNNING if way == "claim" else State.QUEUED
        expected = CANCELLED if asked else State.FAILED if used_up else CANCELLED if over else again
        assert (found.state, found.cancel_asked) == (expected, asked)
        assert [(error.error, error.worker) for error in found.errors] == [("lease expired", "dead")]
        assert found.finished_at == (None if expected is again else lab.now)


# --- a sweep ----------------------------------------------------------------------------------


async def test_a_sweep_ends_queued_jobs_wherever_they_are(store: Store, lab: Lab) -> None:
    when = lab.now + 5 * SECOND
    due, future, paused, live = [
        (await enqueue_one(store, new(queue=queue, expires_at=expires_at))).id
        for queue, expires_at in (("a", when), ("b", when), ("c", when), ("a", when + MICROSECOND))
    ]
    await store.reschedule(only(future), when + 60 * SECOND)
    await store.pause("c")
    await lab.set_clock(when - MICROSECOND)
    assert await store.sweep() == 0
    await lab.set_clock(when)
    assert await store.sweep() == 3
    assert [await state(store, job) for job in (due, future, paused, live)] == [CANCELLED] * 3 + [QUEUED]
    assert await store.sweep() == 0


async def test_a_sweep_takes_leases_first_then_the_longest_over(store: Store, lab: Lab) -> None:
    held = await add(store, 2)
    for lease in (2, 1):
        await take_one(store, lease=lease * SECOND)
    seconds = (3, 1, 2, 1)
    over = [await add_one(store, expires_at=lab.now + n * SECOND) for n in seconds]
    await lab.advance(60)
    order = [held[1], held[0], over[1], over[3], over[2], over[0]]
    was = [await state(store, job) for job in order]
    ends = [QUEUED] * 2 + [CANCELLED] * 4
    for done in range(1, 7):
        assert await store.sweep(1) == 1
        assert [await state(store, job) for job in order] == ends[:done] + was[done:]
    assert await store.sweep() == 0


# --- an operator ------------------------------------------------------------------------------


async def test_operators_do_not_change_when_a_job_expires(store: Store, lab: Lab) -> None:
    when = lab.now + 10 * SECOND
    job = await add_one(store, expires_at=when)
    await finish(store, job)
    await store.requeue(only(job))
    await store.reschedule(only(job), when - SECOND)
    assert (await look(store, job)).expires_at == when
    await lab.set_clock(when)
    assert await taken(store) == []
    assert await store.requeue(only(job)) == changed(1)
    assert await state(store, job) is QUEUED
    assert await taken(store) == []
    assert await state(store, job) is CANCELLED


async def test_a_key_is_free_when_its_job_expired(store: Store, lab: Lab) -> None:
    for way in ("claim", "sweep"):
        await add_one(store, key="k", expires_at=lab.now + SECOND)
        await lab.advance(1)
        await (take(store) if way == "claim" else store.sweep())
        answer = await enqueue_one(store, new(key="k"))
        assert answer.created
        await store.delete(only(answer.id))


# --- steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["claim", "sweep"])
@pytest.mark.parametrize("policy", OnFailure)
async def test_a_step_whose_time_has_come_is_cancelled_in_its_flow(
    store: Store, lab: Lab, policy: OnFailure, way: str
) -> None:
    when = lab.now + SECOND
    steps = (step("a", expires_at=when), step("b", "a"), step("c"), step("d", "c"), step("e", "b", "c"))
    flow = await begin(store, *steps, on_failure=policy)
    await lab.advance(1)
    if way == "sweep":
        assert await store.sweep() == 1
    goes_on, claims = policy is OnFailure.CONTINUE, await take(store)
    assert [claim.step for claim in claims] == (["c"] if goes_on else [])
    jobs = await steps_of(store, flow)
    assert {name for name, job in jobs.items() if job.cancel_asked} == set("be" if goes_on else "bcde")
    if goes_on:
        await store.settle([claim.settled(Succeeded()) for claim in claims])
        await run_steps(store, "d")
        assert await states(store, flow) == dict.fromkeys("abe", CANCELLED) | dict.fromkeys("cd", SUCCEEDED)
    else:
        assert await states(store, flow) == dict.fromkeys("abcde", CANCELLED)
    assert await flow_state(store, flow) is FlowState.CANCELLED
    assert (await shown(store, flow)).finished_at == lab.now


async def test_a_waiting_step_is_left_until_it_is_queued(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b", expires_at=lab.now + 5 * SECOND))
    claim = await take_one(store)
    await lab.advance(20)
    assert await store.sweep() == 0
    assert await states(store, flow) == {"a": State.RUNNING, "b": WAITING}
    await end(store, claim, Succeeded())
    assert await states(store, flow) == {"a": SUCCEEDED, "b": QUEUED}
    assert await taken(store) == []
    assert await states(store, flow) == {"a": SUCCEEDED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_a_sweep_counts_what_the_end_of_another_ended(store: Store, lab: Lab) -> None:
    when = lab.now + SECOND
    flow = await begin(store, *(step(name, expires_at=when) for name in "abc"), step("z"))
    await lab.advance(1)
    assert await store.sweep(2) == 2
    jobs = await steps_of(store, flow)
    assert {job.state for job in jobs.values()} == {CANCELLED}
    assert {name for name, job in jobs.items() if job.cancel_asked} == set("bcz"), "the first one stopped the flow"
    assert await store.sweep() == 0


# --- refused ----------------------------------------------------------------------------------


async def test_bad_times_are_refused(store: Store, lab: Lab) -> None:
    run_at = lab.now + SECOND
    bad: tuple[dict[str, Any], ...] = (
        {"expires_at": run_at, "run_at": run_at},
        {"expires_at": lab.now, "run_at": run_at},
        {"expires_at": run_at.replace(tzinfo=None)},
        {"expires_at": run_at.replace(year=9999)},
        {"expires_at": 5},
    )
    for fields in bad:
        with pytest.raises(Refused):
            await store.enqueue([new(), new(**fields)])
        with pytest.raises(Refused):
            await store.start(flow_of(step("a", **fields)))
    assert await every_job(store) == []
    await add_one(store, expires_at=lab.now - SECOND)
    assert await taken(store) == [], "a time that has passed is no error: whoever sent it may have been slow"
    assert (await store.counts())[0].states[CANCELLED] == 1
