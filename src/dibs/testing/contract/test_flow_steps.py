"""Steps that succeed: each lets go those that needed only it, with its result, and the last ends the flow."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dibs.ids import new_id
from dibs.job import Claim, FlowState, Settlement, State
from dibs.outcome import Outcome, Released, Retry, Snoozed, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    begin,
    chain,
    diamond,
    flow_state,
    just,
    panorama,
    run_steps,
    shown,
    states,
    step,
    steps_of,
    take_steps,
)
from dibs.testing.contract.helpers import LEASE, MICROSECOND, SECOND, add_one, end, look, named, take, take_one
from dibs.testing.contract.test_wait import asleep
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


# --- letting go -------------------------------------------------------------------------------


async def test_a_step_is_let_go_by_the_settle_of_its_last_need(store: Store) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    assert await states(store, flow) == {"a": SUCCEEDED, "b": QUEUED, "c": QUEUED, "d": WAITING}
    claims = await take_steps(store)
    await end(store, claims["c"], Succeeded())
    assert (await states(store, flow))["d"] is WAITING
    assert await take(store) == []
    await end(store, claims["b"], Succeeded())
    assert (await states(store, flow))["d"] is QUEUED
    assert list(await take_steps(store)) == ["d"]


async def test_needs_that_end_in_one_call_let_their_step_go_once(store: Store) -> None:
    flow = await begin(store, *(step(name) for name in "abc"), step("d", "a", "b", "c"))
    claims = await take_steps(store)
    verdicts = await store.settle([claim.settled(Succeeded(name)) for name, claim in claims.items()])
    assert verdicts == [Verdict.ACCEPTED] * 3
    claim = await take_one(store)
    assert (claim.step, claim.epoch, claim.inputs) == ("d", 1, {"a": "a", "b": "b", "c": "c"})
    assert await take(store) == []
    assert (await shown(store, flow)).steps[RUNNING] == 1


async def test_steps_of_several_flows_and_plain_jobs_end_in_one_call(store: Store) -> None:
    flows = [await begin(store, *chain("a", "b")) for _ in range(3)]
    plain = await add_one(store)
    claims = await take(store)
    await store.settle([claim.settled(Succeeded(str(claim.flow))) for claim in claims])
    assert {claim.flow: claim.inputs for claim in await take(store)} == {flow: {"a": str(flow)} for flow in flows}
    assert (await look(store, plain)).state is SUCCEEDED


async def test_steps_and_plain_jobs_with_one_result_end_in_one_call(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    plain = [await add_one(store) for _ in range(3)]
    claims = await take(store)
    gone = Settlement(new_id(), 1, "ann", Succeeded())
    verdicts = await store.settle([gone, *(claim.settled(Succeeded()) for claim in claims)])
    assert verdicts == [Verdict.LOST, *[Verdict.ACCEPTED] * 4]
    assert [(claim.flow, claim.inputs) for claim in await take(store)] == [(flow, {"a": None})]
    assert [(await look(store, job)).state for job in plain] == [SUCCEEDED] * 3


async def test_a_step_with_many_needs_waits_for_all_of_them(store: Store) -> None:
    names = [f"n{n}" for n in range(200)]
    flow = await begin(store, *(step(name) for name in names), step("end", *names))
    claims = await take(store, 200)
    await store.settle([claim.settled(Succeeded(claim.step)) for claim in claims[1:]])
    assert (await states(store, flow))["end"] is WAITING
    await end(store, claims[0], Succeeded("n0"))
    assert (await take_one(store)).inputs == {name: name for name in names}


async def test_one_step_lets_many_go(store: Store) -> None:
    await begin(store, step("a"), *(step(f"n{n}", "a") for n in range(200)))
    await run_steps(store, "a")
    claims = await take(store, 300)
    assert [claim.step for claim in claims] == [f"n{n}" for n in range(200)]
    assert all(claim.inputs == {"a": "a"} for claim in claims)


async def test_a_chain_runs_link_by_link_to_its_end(store: Store, lab: Lab) -> None:
    names = [f"s{n}" for n in range(10)]
    flow = await begin(store, *chain(*names))
    for number, name in enumerate(names):
        claim = await take_one(store)
        assert (claim.step, claim.inputs) == (name, {names[number - 1]: number} if number else {})
        assert await flow_state(store, flow) is FlowState.RUNNING
        await lab.advance(1)
        await end(store, claim, Succeeded(number + 1))
    found = await shown(store, flow)
    assert (found.state, found.finished_at, found.steps[SUCCEEDED]) == (FlowState.SUCCEEDED, lab.now, 10)


async def test_each_step_goes_to_its_own_queue_at_its_own_priority(store: Store) -> None:
    await begin(store, step("a"), step("b", "a", queue="slow", priority=9), step("c", "a", queue="slow", priority=-9))
    await run_steps(store, "a")
    assert await take(store) == []
    assert list(await take_steps(store, queue="slow")) == ["c", "b"]


async def test_the_queue_of_a_step_that_is_let_go_is_woken(store: Store) -> None:
    await begin(store, step("a", queue="one"), step("b", "a", queue="two"))
    [claim] = await take(store, queue="one")
    worker = await asleep(store, "two", "three")
    await end(store, claim, Succeeded())
    assert (await worker).step == "b"


# --- when it is due ---------------------------------------------------------------------------


async def test_a_step_is_due_when_it_is_let_go(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"))
    await lab.advance(5)
    await run_steps(store, "a")
    assert (await steps_of(store, flow))["b"].run_at == lab.now


async def test_a_step_with_a_time_in_the_past_is_due_when_it_is_let_go(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b", "a", run_at=lab.now + SECOND))
    await lab.advance(5)
    await run_steps(store, "a")
    assert (await steps_of(store, flow))["b"].run_at == lab.now


async def test_a_step_with_a_time_to_come_is_not_due_before_it(store: Store, lab: Lab) -> None:
    due = lab.now + 10 * SECOND
    flow = await begin(store, step("a"), step("b", "a", run_at=due))
    await run_steps(store, "a")
    job = (await steps_of(store, flow))["b"]
    assert (job.state, job.run_at) == (QUEUED, due)
    await lab.set_clock(due - MICROSECOND)
    assert await take(store) == []
    await lab.set_clock(due)
    assert list(await take_steps(store)) == ["b"]


async def test_a_waiting_step_can_be_rescheduled_and_reprioritised(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b", "a"), step("c", "a"))
    b = (await steps_of(store, flow))["b"]
    due = lab.now + 10 * SECOND
    assert (await store.reschedule(just(b), due)).count == 1
    assert (await store.reprioritise(just(b), -7)).count == 1
    job = await look(store, b.id)
    assert (job.state, job.run_at, job.priority) == (WAITING, due, -7)
    assert list(await take_steps(store)) == ["a"]
    await lab.advance(60)
    await store.sweep()
    await run_steps(store, "a")
    assert list(await take_steps(store)) == ["b", "c"]


async def test_a_waiting_step_that_is_rescheduled_still_waits(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"))
    await store.reschedule(just((await steps_of(store, flow))["b"]), lab.now - SECOND)
    assert list(await take_steps(store)) == ["a"]
    assert (await states(store, flow))["b"] is WAITING


async def test_a_step_of_a_paused_queue_is_let_go_but_not_given_out(store: Store) -> None:
    flow = await begin(store, step("a"), step("b", "a", queue="later"))
    await store.pause("later")
    await run_steps(store, "a")
    assert (await states(store, flow))["b"] is QUEUED
    assert await take(store, queue="later") == []
    await store.resume("later")
    assert len(await take(store, queue="later")) == 1


# --- results ----------------------------------------------------------------------------------

RESULTS: list[Any] = [None, True, 0, -(2**63), 1.5, "", "é\u2028", [], {}, {"a": [1, {"b": None}]}, "null"]


@pytest.mark.parametrize("result", RESULTS, ids=ascii)
async def test_a_result_reaches_those_that_need_it(store: Store, result: object) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Succeeded(result))
    claim = await take_one(store)
    assert claim.inputs == {"a": result}
    assert (await steps_of(store, flow))["b"].inputs == {"a": result}


async def test_only_the_results_of_needed_steps_are_passed_on(store: Store) -> None:
    await begin(store, step("a"), step("b"), step("c", "a"), *chain("x", "y"))
    await run_steps(store, "a", "b", "x")
    claims = await take_steps(store)
    assert {name: claim.inputs for name, claim in claims.items()} == {"c": {"a": "a"}, "y": {"x": "x"}}


async def test_a_waiting_step_shows_the_results_that_are_there(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
    claims = await take_steps(store)
    await end(store, claims["b"], Succeeded([1]))
    job = (await steps_of(store, flow))["c"]
    assert (job.state, job.inputs, job.needs) == (WAITING, {"b": [1]}, ("a", "b"))


async def test_the_second_attempt_of_a_step_has_the_same_inputs(store: Store, lab: Lab) -> None:
    await begin(store, *chain("a", "b"))
    await run_steps(store, "a")
    first = await take_one(store)
    await end(store, first, Retry("boom"))
    second = await take_one(store)
    await lab.advance(LEASE.total_seconds())
    third = await take_one(store)
    assert (third.epoch, third.attempt) == (3, 3)
    assert first.inputs == second.inputs == third.inputs == {"a": "a"}


async def test_a_finished_step_shows_its_inputs(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a")
    await run_steps(store, "b")
    assert (await steps_of(store, flow))["b"].inputs == {"a": "a"}


async def test_a_result_stays_with_those_that_need_it_when_its_step_is_deleted(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded({"n": 1}))
    await store.delete(just(claims["a"]))
    await end(store, claims["b"], Succeeded())
    assert (await take_one(store)).inputs == {"a": {"n": 1}, "b": None}
    assert await flow_state(store, flow) is FlowState.RUNNING


# --- what does not let go ---------------------------------------------------------------------

NOT_ENDED: list[Outcome] = [Retry("boom"), Released(), Snoozed(SECOND)]


@pytest.mark.parametrize("outcome", NOT_ENDED, ids=named)
async def test_a_step_that_runs_again_has_not_ended(store: Store, lab: Lab, outcome: Outcome) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=outcome)
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING}
    assert await flow_state(store, flow) is FlowState.RUNNING
    await lab.advance(2)
    await run_steps(store, "a")
    assert await states(store, flow) == {"a": SUCCEEDED, "b": QUEUED}


async def test_an_expired_step_with_attempts_left_has_not_ended(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"), step("c"))
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await store.sweep() == 1
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING, "c": QUEUED}
    assert await flow_state(store, flow) is FlowState.RUNNING


Forgery = Callable[[Store, Lab, Claim], Awaitable[Claim]]


async def _other_worker(store: Store, lab: Lab, claim: Claim) -> Claim:
    return replace(claim, worker="bob")


async def _other_epoch(store: Store, lab: Lab, claim: Claim) -> Claim:
    return replace(claim, epoch=2)


async def _late(store: Store, lab: Lab, claim: Claim) -> Claim:
    await lab.advance(LEASE.total_seconds())
    return claim


@pytest.mark.parametrize("forge", [_other_worker, _other_epoch, _late])
async def test_a_lost_settle_lets_nothing_go(store: Store, lab: Lab, forge: Forgery) -> None:
    await begin(store, *chain("a", "b"))
    claim = await forge(store, lab, await take_one(store))
    before = await panorama(store)
    assert await end(store, claim, Succeeded("late", (step("x"),))) is Verdict.LOST
    assert await panorama(store) == before


async def test_a_settle_sent_again_changes_nothing_in_the_flow(store: Store, lab: Lab) -> None:
    await begin(store, *diamond())
    claim = await take_one(store)
    await end(store, claim, Succeeded(1))
    claims = await take_steps(store)
    await end(store, claims["b"], Succeeded(2))
    before = await panorama(store)
    await lab.advance(1)
    assert await end(store, claim, Succeeded(1)) is Verdict.ACCEPTED
    assert await end(store, claims["b"], Succeeded(2)) is Verdict.ACCEPTED
    assert await panorama(store) == before


# --- the end of the flow ----------------------------------------------------------------------


async def test_a_flow_has_succeeded_when_its_last_step_has(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    await run_steps(store, "b", "c")
    claim = await take_one(store)
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.RUNNING, None)
    await lab.advance(3)
    await end(store, claim, Succeeded())
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.SUCCEEDED, lab.now)
    assert found.steps == {**dict.fromkeys(State, 0), SUCCEEDED: 4}


async def test_the_end_of_a_flow_stays_when_its_last_settle_is_sent_again(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"))
    claim = await take_one(store)
    await end(store, claim, Succeeded())
    before = await shown(store, flow)
    await lab.advance(1)
    assert await end(store, claim, Succeeded()) is Verdict.ACCEPTED
    assert await shown(store, flow) == before


async def test_parallel_steps_end_their_flow_with_the_last_of_them(store: Store) -> None:
    flow = await begin(store, *(step(name) for name in "abc"))
    claims = await take_steps(store)
    for name in "bca":
        assert await flow_state(store, flow) is FlowState.RUNNING
        await end(store, claims[name], Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_result_that_cannot_be_stored_fails_its_step_and_the_flow(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Succeeded(float("nan")))
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.FAILED
