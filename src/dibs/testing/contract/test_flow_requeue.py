"""Requeue: steps begin again, and wait for what they need and has not succeeded."""

import pytest

from dibs.job import Filter, FlowState, OnFailure
from dibs.outcome import Cancelled, Failed, Pulse, Retry, Succeeded, Verdict
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
from dibs.testing.contract.helpers import SECOND, beat, changed, end, look, take, take_one
from dibs.testing.contract.test_wait import asleep
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

CONTINUE = OnFailure.CONTINUE


async def test_a_flow_can_be_retried_from_the_failed_step(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    claims = await take_steps(store)
    await end(store, claims["b"], Succeeded("b"))
    await end(store, claims["c"], Failed("boom"))
    await lab.advance(5)
    assert await store.requeue(Filter(flows=(flow,), states=(FAILED, CANCELLED))) == changed(2)
    assert await states(store, flow) == {"a": SUCCEEDED, "b": SUCCEEDED, "c": QUEUED, "d": WAITING}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.RUNNING, None)
    jobs = await steps_of(store, flow)
    assert (jobs["c"].inputs, jobs["d"].inputs) == ({"a": "a"}, {"b": "b"})
    assert (jobs["c"].run_at, jobs["c"].attempts, jobs["c"].cancel_asked) == (lab.now, 0, False)
    assert (jobs["d"].run_at, jobs["d"].finished_at, jobs["d"].cancel_asked) == (lab.now, None, False)
    claim = await take_one(store)
    assert (claim.step, claim.epoch, claim.inputs) == ("c", 2, {"a": "a"})
    await end(store, claim, Succeeded("second"))
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("d", {"b": "b", "c": "second"})
    await end(store, claim, Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


@pytest.mark.parametrize("policy", list(OnFailure))
async def test_a_flow_can_be_run_whole_again(store: Store, policy: OnFailure) -> None:
    flow = await begin(store, *diamond(), on_failure=policy)
    for names in ("a", "bc", "d"):
        await run_steps(store, *names)
    assert await store.requeue(whole(flow)) == changed(4)
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING, "c": WAITING, "d": WAITING}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.RUNNING, None)
    assert all(job.inputs == {} for job in (await steps_of(store, flow)).values())
    await run_steps(store, "a", outcome=Succeeded("new"))
    assert [claim.inputs for claim in (await take_steps(store)).values()] == [{"a": "new"}] * 2


async def test_a_whole_flow_is_requeued_in_chunks(store: Store) -> None:
    names = [f"s{n}" for n in range(7)]
    flow = await begin(store, *chain(*names))
    await run_steps(store, "s0", outcome=Failed("boom"))
    after, counts = None, []
    while True:
        answer = await store.requeue(whole(flow), limit=2, after=after)
        counts.append(answer.count)
        if (after := answer.after) is None:
            break
    assert counts == [2, 2, 2, 1]
    assert await states(store, flow) == {"s0": QUEUED, **dict.fromkeys(names[1:], WAITING)}
    for name in names:
        await run_steps(store, name)
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_requeued_step_waits_for_a_need_that_did_not_succeed(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Failed("boom"))
    jobs = await steps_of(store, flow)
    assert await store.requeue(just(jobs["b"])) == changed(1)
    assert await states(store, flow) == {"a": FAILED, "b": WAITING}
    assert await flow_state(store, flow) is FlowState.RUNNING
    assert await take(store) == []
    assert await store.requeue(just(jobs["a"])) == changed(1)
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING}
    await run_steps(store, "a")
    await run_steps(store, "b")
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_requeued_step_whose_needs_have_succeeded_is_due_now(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b", "a", run_at=lab.now + 60 * SECOND))
    await run_steps(store, "a")
    await store.cancel(just((await steps_of(store, flow))["b"]))
    await lab.advance(1)
    await store.requeue(just((await steps_of(store, flow))["b"]))
    job = (await steps_of(store, flow))["b"]
    assert (job.state, job.run_at, job.inputs) == (QUEUED, lab.now, {"a": "a"})


async def test_a_flow_runs_again_when_one_of_its_steps_does(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a")
    await run_steps(store, "b")
    await store.requeue(just((await steps_of(store, flow))["b"]))
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.RUNNING, None)
    await lab.advance(1)
    await run_steps(store, "b", outcome=Failed("boom"))
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, lab.now)


async def test_what_stays_finished_counts_at_the_end(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Failed("boom"))
    await store.requeue(just((await steps_of(store, flow))["a"]))
    assert await states(store, flow) == {"a": QUEUED, "b": CANCELLED}
    await run_steps(store, "a")
    assert await states(store, flow) == {"a": SUCCEEDED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_a_failure_stops_a_flow_that_runs_again(store: Store) -> None:
    flow = await begin(store, *chain("a", "b", "c"))
    for _ in range(3):
        await run_steps(store, "a", outcome=Failed("boom"))
        assert await states(store, flow) == {"a": FAILED, "b": CANCELLED, "c": CANCELLED}
        assert await flow_state(store, flow) is FlowState.FAILED
        assert await store.requeue(whole(flow)) == changed(3)
    assert len((await steps_of(store, flow))["a"].errors) == 3


# --- those that were not requeued -------------------------------------------------------------


async def test_a_queued_step_goes_back_to_waiting_when_its_need_begins_again(store: Store, lab: Lab) -> None:
    due = lab.now + 60 * SECOND
    flow = await begin(store, step("a"), step("b", "a", run_at=due))
    await run_steps(store, "a")
    assert (await states(store, flow))["b"] is QUEUED
    assert await store.requeue(whole(flow)) == changed(1)
    job = (await steps_of(store, flow))["b"]
    assert (job.state, job.inputs, job.run_at) == (WAITING, {}, due)
    await lab.set_clock(due + SECOND)
    await run_steps(store, "a", outcome=Succeeded("new"))
    claim = await take_one(store)
    assert (claim.step, claim.inputs, claim.run_at) == ("b", {"a": "new"}, lab.now)


async def test_a_step_that_retries_goes_back_to_waiting_with_its_attempts(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a")
    await run_steps(store, "b", outcome=Retry("boom"))
    await store.requeue(just((await steps_of(store, flow))["a"]))
    job = (await steps_of(store, flow))["b"]
    assert (job.state, job.attempts, job.epoch) == (WAITING, 1, 1)
    assert list(await take_steps(store)) == ["a"]


async def test_a_waiting_step_waits_for_a_need_that_begins_again(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded("old"))
    await store.requeue(just(claims["a"]))
    assert (await steps_of(store, flow))["c"].inputs == {}
    await end(store, claims["b"], Succeeded("b"))
    assert (await states(store, flow))["c"] is WAITING
    await run_steps(store, "a", outcome=Succeeded("new"))
    assert (await take_one(store)).inputs == {"a": "new", "b": "b"}


async def test_a_running_step_goes_on_when_its_need_begins_again(store: Store) -> None:
    flow = await begin(store, *chain("a", "b", "c"))
    await run_steps(store, "a")
    claim = await take_one(store)
    await store.requeue(just((await steps_of(store, flow))["a"]))
    assert await states(store, flow) == {"a": QUEUED, "b": RUNNING, "c": WAITING}
    assert await beat(store, claim) is Pulse.HELD
    await end(store, claim, Succeeded("b"))
    assert await states(store, flow) == {"a": QUEUED, "b": SUCCEEDED, "c": QUEUED}
    assert await flow_state(store, flow) is FlowState.RUNNING


async def test_finished_steps_that_were_not_requeued_stay_as_they_are(store: Store) -> None:
    flow = await begin(store, *chain("a", "b", "c"))
    for name in "abc":
        await run_steps(store, name)
    before = await steps_of(store, flow)
    await store.requeue(just(before["b"]))
    after = await steps_of(store, flow)
    assert (after["a"], after["c"]) == (before["a"], before["c"])
    assert after["b"].inputs == {"a": "a"}
    await run_steps(store, "b", outcome=Succeeded("new"))
    assert (await steps_of(store, flow))["c"] == before["c"]
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_step_still_running_in_a_stopped_flow_can_end_it_again(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    await store.requeue(just(claims["a"]))
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.RUNNING, None)
    assert await beat(store, claims["b"]) is Pulse.CANCEL
    await end(store, claims["b"], Cancelled())
    assert await states(store, flow) == {"a": CANCELLED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_other_flows_are_left_alone(store: Store) -> None:
    one, other = await begin(store, *chain("a", "b")), await begin(store, *chain("a", "b"))
    for claim in await take(store):
        await end(store, claim, Failed("boom"))
    before = (await shown(store, other), await steps_of(store, other))
    await store.requeue(whole(one))
    assert (await shown(store, other), await steps_of(store, other)) == before
    assert await store.requeue(whole(other)) == changed(2)
    assert await states(store, one) == await states(store, other) == {"a": QUEUED, "b": WAITING}


async def test_a_requeue_that_matches_no_finished_step_changes_nothing(store: Store) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    await take_one(store)
    before = await panorama(store)
    assert await store.requeue(Filter(flows=(flow,), states=(FAILED, CANCELLED))) == changed(0)
    assert await panorama(store) == before


# --- needs that are gone ----------------------------------------------------------------------


@pytest.mark.parametrize("ended", [Succeeded("r"), Failed("boom")], ids=["succeeded", "failed"])
async def test_a_need_that_is_gone_counts_as_met_with_no_result(store: Store, ended: Succeeded | Failed) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["a"], ended)
    await end(store, claims["b"], Failed("boom"))
    await store.delete(just(claims["a"]))
    assert await store.requeue(whole(flow)) == changed(2)
    assert await states(store, flow) == {"b": QUEUED, "c": WAITING}
    assert (await steps_of(store, flow))["c"].inputs == {"a": None}
    await run_steps(store, "b")
    assert (await take_one(store)).inputs == {"a": None, "b": "b"}


async def test_a_waiting_step_is_let_go_by_a_requeue_if_its_last_need_is_gone(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"), step("x"))
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    await end(store, claims["x"], Cancelled())
    b = (await steps_of(store, flow))["b"]
    await store.requeue(just(b))
    assert (await look(store, b.id)).state is WAITING
    await store.delete(just(claims["a"]))
    assert (await look(store, b.id)).state is WAITING
    await lab.advance(3)
    await store.requeue(just(claims["x"]))
    job = await look(store, b.id)
    assert (job.state, job.inputs, job.run_at) == (QUEUED, {"a": None}, lab.now)


# --- the rest of the contract -----------------------------------------------------------------


async def test_an_old_owner_cannot_touch_a_flow_that_runs_again(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    claim = await take_one(store)
    await end(store, claim, Succeeded(1, (step("x"),)))
    await store.requeue(just(claim))
    before = await panorama(store)
    assert await end(store, claim, Succeeded(1, (step("x"),))) is Verdict.LOST
    assert await panorama(store) == before
    assert (await states(store, flow))["b"] is WAITING


async def test_a_step_that_adds_steps_again_fails_if_they_are_there(store: Store) -> None:
    flow = await begin(store, step("a"))
    await run_steps(store, "a", outcome=Succeeded(1, (step("x"),)))
    await store.requeue(just((await steps_of(store, flow))["a"]))
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded(1, (step("x"),)))
    assert (await states(store, flow))["a"] is FAILED


async def test_a_requeue_wakes_the_queue_of_what_is_due(store: Store) -> None:
    flow = await begin(store, step("a", queue="one"), step("b", "a", queue="two"))
    [claim] = await take(store, queue="one")
    await end(store, claim, Failed("boom"))
    worker = await asleep(store, "one", "two")
    await store.requeue(whole(flow))
    assert (await worker).step == "a"
