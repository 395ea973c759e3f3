"""A step that fails, is cancelled or deleted: what becomes of its flow, by the flow's own rule."""

from collections.abc import Awaitable, Callable

import pytest

from dibs.job import FlowState, OnFailure, State
from dibs.limits import LEASE_EXPIRED
from dibs.outcome import Cancelled, Failed, Outcome, Pulse, Released, Retry, Snoozed, Succeeded, Verdict
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
    whole,
)
from dibs.testing.contract.helpers import LEASE, SECOND, beat, end, look, named, take, take_one
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

CONTINUE = OnFailure.CONTINUE
BAD: list[Outcome] = [Failed("boom"), Cancelled()]
ENDS = {"failed": (FAILED, FlowState.FAILED), "cancelled": (CANCELLED, FlowState.CANCELLED)}


# --- stop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", BAD, ids=named)
async def test_a_step_that_did_not_succeed_stops_its_flow(store: Store, lab: Lab, outcome: Outcome) -> None:
    flow = await begin(store, *chain("a", "b", "c"), step("q", queue="other"))
    claim = await take_one(store)
    await lab.advance(2)
    await end(store, claim, outcome)
    state, flow_ends = ENDS[named(outcome)]
    assert await states(store, flow) == {"a": state, "b": CANCELLED, "c": CANCELLED, "q": CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (flow_ends, lab.now)
    assert await take(store) == await take(store, queue="other") == []


async def test_what_is_cancelled_because_of_another_looks_cancelled(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"), step("q", queue="other"))
    await run_steps(store, "a", outcome=Failed("boom"))
    for name in ("b", "q"):
        job = (await steps_of(store, flow))[name]
        assert (job.finished_at, job.cancel_asked, job.errors, job.epoch) == (lab.now, True, (), 0)
        assert (job.result, job.locked_until, job.worker) == (None, None, None)


async def test_running_steps_of_a_stopped_flow_are_asked(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    assert await states(store, flow) == {"a": FAILED, "b": RUNNING, "c": CANCELLED}
    assert await beat(store, claims["b"]) is Pulse.CANCEL
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, None)
    await lab.advance(1)
    await end(store, claims["b"], Cancelled())
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, lab.now)


LAST_WORDS: list[Outcome] = [Succeeded(1), Failed("too"), Cancelled(), Retry("again"), Released(), Snoozed(SECOND)]


@pytest.mark.parametrize("first", BAD, ids=named)
@pytest.mark.parametrize("last", LAST_WORDS, ids=named)
async def test_the_last_running_step_does_not_change_how_the_flow_ended(
    store: Store, first: Outcome, last: Outcome
) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
    claims = await take_steps(store)
    await end(store, claims["a"], first)
    assert await end(store, claims["b"], last) is Verdict.ACCEPTED
    state, flow_ends = ENDS[named(first)]
    told = {"succeeded": SUCCEEDED, "failed": FAILED}.get(named(last), CANCELLED)
    assert await states(store, flow) == {"a": state, "b": told, "c": CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at is not None) == (flow_ends, True)
    assert await take(store) == []


async def test_a_running_step_of_a_stopped_flow_that_is_never_heard_of_again_ends_it(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    await lab.advance(LEASE.total_seconds())
    assert await store.sweep() == 1
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, lab.now)


async def test_a_step_that_raises_too_often_stops_its_flow(store: Store) -> None:
    flow = await begin(store, step("a", max_attempts=2), step("b", "a"))
    await run_steps(store, "a", outcome=Retry("boom"))
    assert await flow_state(store, flow) is FlowState.RUNNING
    await run_steps(store, "a", outcome=Retry("boom"))
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.FAILED


async def test_steps_that_succeeded_before_stay_so(store: Store) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    claims = await take_steps(store)
    await end(store, claims["b"], Succeeded("b"))
    await end(store, claims["c"], Failed("boom"))
    assert await states(store, flow) == {"a": SUCCEEDED, "b": SUCCEEDED, "c": FAILED, "d": CANCELLED}
    assert (await steps_of(store, flow))["b"].result == "b"


async def test_the_first_of_one_call_decides_how_the_flow_ends(store: Store) -> None:
    for first, second, expected in (
        (Failed("boom"), Cancelled(), FlowState.FAILED),
        (Cancelled(), Failed("boom"), FlowState.CANCELLED),
    ):
        flow = await begin(store, step("a"), step("b"))
        claims = await take_steps(store)
        await store.settle([claims["b"].settled(first), claims["a"].settled(second)])
        assert await flow_state(store, flow) is expected


async def test_one_flow_that_stops_leaves_the_others_alone(store: Store) -> None:
    bad, good = await begin(store, *chain("a", "b")), await begin(store, *chain("a", "b"))
    claims = await take(store)
    await store.settle([claims[0].settled(Failed("boom")), claims[1].settled(Succeeded())])
    assert await states(store, bad) == {"a": FAILED, "b": CANCELLED}
    assert await states(store, good) == {"a": SUCCEEDED, "b": QUEUED}


async def test_a_settle_sent_again_for_a_cancelled_step_is_lost(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await end(store, claims["b"], Retry("again"))
    await end(store, claims["a"], Failed("boom"))
    assert (await states(store, flow))["b"] is CANCELLED
    assert await end(store, claims["b"], Retry("again")) is Verdict.LOST


# --- continue ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", BAD, ids=named)
async def test_a_flow_that_continues_cancels_only_what_needs_the_step(store: Store, outcome: Outcome) -> None:
    flow = await begin(store, *diamond(), *chain("x", "y"), step("z", "d", "y"), on_failure=CONTINUE)
    await run_steps(store, "a", "x")
    claims = await take_steps(store)
    await end(store, claims["b"], outcome)
    state, flow_ends = ENDS[named(outcome)]
    expected = {"a": SUCCEEDED, "b": state, "c": RUNNING, "d": CANCELLED, "x": SUCCEEDED, "y": RUNNING, "z": CANCELLED}
    assert await states(store, flow) == expected
    assert await flow_state(store, flow) is FlowState.RUNNING
    assert await beat(store, claims["c"]) is Pulse.HELD
    await end(store, claims["c"], Succeeded())
    assert (await shown(store, flow)).finished_at is None
    await end(store, claims["y"], Succeeded())
    assert await flow_state(store, flow) is flow_ends
    assert await take(store) == []


async def test_a_long_chain_is_cancelled_to_its_end(store: Store) -> None:
    names = [f"s{n}" for n in range(1_500)]
    flow = await begin(store, *chain(*names), on_failure=CONTINUE)
    await run_steps(store, "s0", outcome=Failed("boom"))
    found = await shown(store, flow)
    assert found.steps == {**dict.fromkeys(State, 0), FAILED: 1, CANCELLED: 1_499}
    assert found.state is FlowState.FAILED


async def test_a_flow_that_continued_has_failed_if_one_step_failed_and_another_was_cancelled(store: Store) -> None:
    flow = await begin(store, *(step(name) for name in "abc"), on_failure=CONTINUE)
    claims = await take_steps(store)
    ends: dict[str, Outcome] = {"a": Cancelled(), "b": Failed("boom"), "c": Succeeded()}
    for name, outcome in ends.items():
        assert await flow_state(store, flow) is FlowState.RUNNING
        await end(store, claims[name], outcome)
    assert await flow_state(store, flow) is FlowState.FAILED


async def test_a_failure_that_cancels_all_that_is_left_ends_a_flow_that_continues(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b", "c"), on_failure=CONTINUE)
    await lab.advance(1)
    await run_steps(store, "a", outcome=Failed("boom"))
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, lab.now)


# --- leases that expire -----------------------------------------------------------------------

Found = Callable[[Store], Awaitable[object]]
FINDERS: dict[str, Found] = {"sweep": lambda store: store.sweep(), "claim": take}


@pytest.mark.parametrize("found", FINDERS.values(), ids=list(FINDERS))
async def test_an_expired_step_with_no_attempts_left_stops_its_flow(store: Store, lab: Lab, found: Found) -> None:
    flow = await begin(store, step("a", max_attempts=1), step("b", "a"), step("c"), step("d", queue="other"))
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    await found(store)
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED, "c": CANCELLED, "d": CANCELLED}
    assert (await steps_of(store, flow))["a"].errors[-1].error == LEASE_EXPIRED
    ended = await shown(store, flow)
    assert (ended.state, ended.finished_at) == (FlowState.FAILED, lab.now)


@pytest.mark.parametrize("found", FINDERS.values(), ids=list(FINDERS))
async def test_an_expired_step_whose_cancel_was_asked_stops_its_flow(store: Store, lab: Lab, found: Found) -> None:
    flow = await begin(store, *chain("a", "b"))
    await store.cancel(just(await take_one(store)))
    await lab.advance(LEASE.total_seconds())
    await found(store)
    assert await states(store, flow) == {"a": CANCELLED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


@pytest.mark.parametrize("found", FINDERS.values(), ids=list(FINDERS))
async def test_an_expired_step_lets_a_flow_that_continues_go_on(store: Store, lab: Lab, found: Found) -> None:
    flow = await begin(store, step("a", max_attempts=1), step("b", "a"), step("c", queue="other"), on_failure=CONTINUE)
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    await found(store)
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED, "c": QUEUED}
    assert await flow_state(store, flow) is FlowState.RUNNING


async def test_a_claim_that_ends_a_step_on_its_way_does_not_give_out_those_behind_it(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a", max_attempts=1), step("b"), step("c"))
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await take(store, 10) == []
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED, "c": CANCELLED}


async def test_a_claim_that_ends_a_step_on_its_way_asks_those_before_it(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a", priority=-1), step("b", max_attempts=1, priority=-2), step("c"))
    assert (await take_one(store)).step == "b"
    await store.reprioritise(whole(flow), 5)
    await store.reprioritise(just((await steps_of(store, flow))["a"]), -5)
    await lab.advance(LEASE.total_seconds())
    [claim] = await take(store, 10)
    assert claim.step == "a"
    assert await states(store, flow) == {"a": RUNNING, "b": FAILED, "c": CANCELLED}
    assert await beat(store, claim) is Pulse.CANCEL


async def test_a_sweep_lets_the_longest_expired_decide(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a", max_attempts=1), step("b", max_attempts=1))
    await take_one(store, lease=2 * SECOND)
    [second] = await take(store, 1, lease=SECOND)
    await store.cancel(just(second))
    await lab.advance(5)
    assert await store.sweep() == 2
    assert await states(store, flow) == {"a": CANCELLED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_a_stopped_flow_does_not_change_by_looking(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a", outcome=Failed("boom"))
    before = await panorama(store)
    await lab.advance(1_000)
    assert (await store.sweep(), await take(store)) == (0, [])
    assert await panorama(store) == before
    assert (await look(store, (await steps_of(store, flow))["d"].id)).state is CANCELLED
    assert WAITING not in (await states(store, flow)).values()
