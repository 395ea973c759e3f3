"""What operators do to flows: cancel, delete, prune."""

from datetime import timedelta

import pytest

from dibs.job import Changed, FlowState, OnFailure, Retention, State
from dibs.outcome import Failed, Pulse, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    CANCELLED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    begin,
    chain,
    diamond,
    flow_of,
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
from dibs.testing.contract.helpers import ALL, add, add_one, beat, changed, end, every_job, look, take, take_one
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

CONTINUE = OnFailure.CONTINUE
NOW = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))


# --- cancel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(OnFailure))
async def test_a_cancelled_flow_ends_with_all_of_its_steps(store: Store, lab: Lab, policy: OnFailure) -> None:
    flow = await begin(store, *diamond(), on_failure=policy)
    await lab.advance(1)
    assert await store.cancel(whole(flow)) == changed(4)
    assert set((await states(store, flow)).values()) == {CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, lab.now)
    assert await take(store) == []


async def test_a_cancel_reaches_the_running_steps_of_a_flow(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    claims = await take_steps(store)
    assert await store.cancel(whole(flow)) == changed(3)
    assert await states(store, flow) == {"a": SUCCEEDED, "b": RUNNING, "c": RUNNING, "d": CANCELLED}
    assert await beat(store, claims["b"]) is await beat(store, claims["c"]) is Pulse.CANCEL
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, None)
    await end(store, claims["b"], Succeeded())
    await lab.advance(1)
    await end(store, claims["c"], Failed("boom"))
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, lab.now)


async def test_a_flow_of_which_all_is_running_ends_when_they_do(store: Store) -> None:
    flow = await begin(store, step("a"))
    claim = await take_one(store)
    assert await store.cancel(whole(flow)) == changed(1)
    assert await flow_state(store, flow) is FlowState.RUNNING
    await end(store, claim, Succeeded("done anyway"))
    assert await states(store, flow) == {"a": SUCCEEDED}
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_forced_cancel_ends_the_flow_at_once(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    claims = await take_steps(store)
    assert await store.cancel(whole(flow), force=True) == changed(3)
    assert await states(store, flow) == {"a": SUCCEEDED, "b": CANCELLED, "c": CANCELLED, "d": CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, lab.now)
    assert await end(store, claims["b"], Succeeded("late", (step("x"),))) is Verdict.LOST
    assert len(await every_job(store)) == 4


async def test_the_cancel_of_one_step_stops_its_flow_and_counts_one(store: Store) -> None:
    flow = await begin(store, *diamond(), step("q"))
    waiting = (await steps_of(store, flow))["d"]
    assert await store.cancel(just(waiting)) == changed(1)
    assert set((await states(store, flow)).values()) == {CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_the_cancel_of_one_step_of_a_flow_that_continues_takes_what_needs_it(store: Store) -> None:
    flow = await begin(store, *diamond(), step("q"), on_failure=CONTINUE)
    await run_steps(store, "a", "q")
    assert await store.cancel(just((await steps_of(store, flow))["b"])) == changed(1)
    assert await states(store, flow) == {"a": SUCCEEDED, "b": CANCELLED, "c": QUEUED, "d": CANCELLED, "q": SUCCEEDED}
    await run_steps(store, "c")
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_an_asked_step_has_not_ended(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    claim = await take_one(store)
    await store.cancel(just(claim))
    assert (await states(store, flow))["a"] is RUNNING
    assert await flow_state(store, flow) is FlowState.RUNNING
    await end(store, claim, Succeeded("in time"))
    assert (await take_one(store)).inputs == {"a": "in time"}


async def test_a_forced_cancel_of_a_running_step_stops_its_flow(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a"))
    claims = await take_steps(store)
    assert await store.cancel(just(claims["a"]), force=True) == changed(1)
    assert await states(store, flow) == {"a": CANCELLED, "b": RUNNING, "c": CANCELLED}
    assert await beat(store, claims["b"]) is Pulse.CANCEL
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, None)


async def test_a_chunk_of_a_cancel_counts_what_matched_when_it_began(store: Store) -> None:
    flow = await begin(store, *chain("a", "b", "c"))
    answer = await store.cancel(whole(flow), limit=2)
    assert (answer.count, answer.after) == (2, (await steps_of(store, flow))["b"].id)
    assert set((await states(store, flow)).values()) == {CANCELLED}
    assert await store.cancel(whole(flow), limit=2, after=answer.after) == changed(0)


async def test_a_dry_run_counts_the_matching_steps_and_changes_nothing(store: Store) -> None:
    flow = await begin(store, *diamond())
    before = await panorama(store)
    assert await store.cancel(whole(flow), dry_run=True) == changed(4)
    assert await store.delete(whole(flow), dry_run=True) == changed(4)
    assert await store.requeue(whole(flow), dry_run=True) == changed(0)
    assert await panorama(store) == before


# --- delete -----------------------------------------------------------------------------------


async def test_a_flow_goes_with_its_last_job(store: Store) -> None:
    flow, other = flow_of(*diamond()), await begin(store, step("x"))
    await store.start(flow)
    assert await store.delete(whole(flow.id)) == changed(4)
    assert await store.flow(flow.id) is None
    assert [one.id for one in (await store.flows()).flows] == [other]
    assert [job.step for job in await every_job(store)] == ["x"]


async def test_the_id_of_a_flow_that_is_gone_can_be_started_anew(store: Store) -> None:
    flow = flow_of(*diamond())
    await store.start(flow)
    await store.delete(whole(flow.id))
    assert (await store.start(flow)).created
    await run_steps(store, "a")
    assert (await states(store, flow.id))["b"] is QUEUED


async def test_a_deleted_unfinished_step_stops_its_flow(store: Store, lab: Lab) -> None:
    flow = await begin(store, *diamond(), step("q"))
    assert await store.delete(just((await steps_of(store, flow))["b"])) == changed(1)
    assert await states(store, flow) == {"a": CANCELLED, "c": CANCELLED, "d": CANCELLED, "q": CANCELLED}
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.CANCELLED, lab.now)
    assert found.steps == {**dict.fromkeys(State, 0), CANCELLED: 4}


async def test_a_deleted_unfinished_step_of_a_flow_that_continues_takes_what_needs_it(store: Store) -> None:
    flow = await begin(store, *diamond(), on_failure=CONTINUE)
    await store.delete(just((await steps_of(store, flow))["b"]))
    assert await states(store, flow) == {"a": QUEUED, "c": "waiting", "d": CANCELLED}
    await run_steps(store, "a")
    await run_steps(store, "c")
    assert await flow_state(store, flow) is FlowState.CANCELLED


async def test_a_forced_delete_of_a_running_step_stops_its_flow(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    claim = await take_one(store)
    assert await store.delete(just(claim)) == changed(0)
    assert await store.delete(just(claim), force=True) == changed(1)
    assert await states(store, flow) == {"b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.CANCELLED
    assert await end(store, claim, Succeeded("late")) is Verdict.LOST


async def test_a_deleted_finished_step_changes_nothing_else(store: Store) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    before = {name: job for name, job in (await steps_of(store, flow)).items() if name != "a"}
    await store.delete(just((await steps_of(store, flow))["a"]))
    assert await steps_of(store, flow) == before
    assert await flow_state(store, flow) is FlowState.RUNNING
    await run_steps(store, "b", "c")
    await run_steps(store, "d")
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_failed_step_that_was_deleted_does_not_count_at_the_end(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    await store.delete(just(claims["a"]))
    await end(store, claims["b"], Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_delete_in_chunks_leaves_nothing(store: Store) -> None:
    flow = await begin(store, *chain("a", "b", "c", "d", "e"))
    after, counts = None, []
    while True:
        answer = await store.delete(whole(flow), limit=2, after=after)
        counts.append(answer.count)
        if (after := answer.after) is None:
            break
    assert counts == [2, 2, 1]
    assert (await store.flow(flow), await every_job(store), (await store.flows()).flows) == (None, [], ())


async def test_a_plain_job_is_deleted_beside_a_flow(store: Store) -> None:
    await begin(store, *diamond())
    await add_one(store)
    assert await store.delete(ALL, force=True) == changed(5)
    assert (await every_job(store), (await store.flows()).flows) == ([], ())


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
async def test_a_chunk_of_plain_jobs_and_steps_ends_where_the_oldest_of_it_stood(store: Store, limit: int) -> None:
    older = await add(store, 2)
    flow = await begin(store, step("a"), step("b"))
    newer = await add(store, 2)
    steps = [job.id for job in (await steps_of(store, flow)).values()]
    newest_first = sorted([*older, *steps, *newer], reverse=True)
    answer = await store.delete(ALL, limit=limit)
    assert answer == Changed(min(limit, 6), newest_first[limit - 1] if limit <= 6 else None)


# --- prune ------------------------------------------------------------------------------------


async def test_a_flow_is_pruned_with_its_last_job(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a")
    await run_steps(store, "b")
    assert await store.prune(NOW, 1) == 1
    assert (await shown(store, flow)).steps[SUCCEEDED] == 1
    assert await flow_state(store, flow) is FlowState.SUCCEEDED
    assert await store.prune(NOW) == 1
    assert (await store.flow(flow), (await store.flows()).flows) == (None, ())


async def test_a_pruned_need_has_passed_on_its_result(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded("r"))
    assert await store.prune(NOW) == 1
    await end(store, claims["b"], Succeeded())
    claim = await take_one(store)
    assert claim.inputs == {"a": "r", "b": None}
    await end(store, claim, Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_waiting_steps_are_not_pruned(store: Store, lab: Lab) -> None:
    flow = await begin(store, *chain("a", "b"))
    await lab.advance(timedelta(days=365).total_seconds())
    assert await store.prune(NOW) == 0
    assert len(await steps_of(store, flow)) == 2
    assert (await look(store, (await steps_of(store, flow))["a"].id)).state is QUEUED
