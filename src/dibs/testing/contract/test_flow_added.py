"""A step that succeeds may add steps to its own flow, in the settle that ends it; bad ones fail it instead."""

from collections.abc import Callable
from typing import Any

import pytest

from dibs import limits
from dibs.ids import new_id
from dibs.job import FlowState, NewStep, OnFailure
from dibs.outcome import Failed, Released, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    CANCELLED,
    FAILED,
    QUEUED,
    SUCCEEDED,
    WAITING,
    begin,
    chain,
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
from dibs.testing.contract.helpers import SECOND, add_one, end, look, new, take, take_one
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_added_steps_are_part_of_the_flow(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"))
    claim = await take_one(store)
    await lab.advance(1)
    added = (step("x", queue="more", priority=3, args={"n": 1}), step("y", "x", run_at=lab.now + SECOND))
    assert await end(store, claim, Succeeded("r", added)) is Verdict.ACCEPTED
    assert await states(store, flow) == {"a": SUCCEEDED, "x": QUEUED, "y": WAITING}
    jobs = await steps_of(store, flow)
    x, y = jobs["x"], jobs["y"]
    assert (x.id, y.id) == tuple(one.job.id for one in added)
    assert (x.queue, x.priority, x.args, x.run_at, x.created_at) == ("more", 3, {"n": 1}, lab.now, lab.now)
    assert (y.needs, y.inputs, y.run_at) == (("x",), {}, lab.now + SECOND)
    assert jobs["a"].result == "r"


async def test_the_flow_goes_on_until_the_added_steps_have_ended(store: Store) -> None:
    flow = await begin(store, step("a"))
    await run_steps(store, "a", outcome=Succeeded(None, chain("x", "y")))
    assert (await shown(store, flow)).finished_at is None
    await run_steps(store, "x")
    assert await flow_state(store, flow) is FlowState.RUNNING
    await run_steps(store, "y")
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_an_added_step_that_needs_its_adder_gets_its_result_at_once(store: Store) -> None:
    flow = await begin(store, step("a"))
    added = step("x", "a"), step("y", "a", "x")
    await run_steps(store, "a", outcome=Succeeded({"n": 1}, added))
    assert await states(store, flow) == {"a": SUCCEEDED, "x": QUEUED, "y": WAITING}
    assert (await steps_of(store, flow))["y"].inputs == {"a": {"n": 1}}
    claim = await take_one(store)
    assert (claim.step, claim.flow, claim.inputs) == ("x", flow, {"a": {"n": 1}})
    await end(store, claim, Succeeded(2))
    assert (await take_one(store)).inputs == {"a": {"n": 1}, "x": 2}


async def test_those_that_need_the_adder_do_not_wait_for_what_it_added(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Succeeded(None, (step("x"),)))
    assert await states(store, flow) == {"a": SUCCEEDED, "b": QUEUED, "x": QUEUED}


async def test_an_added_step_can_add_steps(store: Store) -> None:
    flow = await begin(store, step("s0"))
    for n in range(5):
        await run_steps(store, f"s{n}", outcome=Succeeded(n, (step(f"s{n + 1}", f"s{n}"),)))
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("s5", {"s4": 4})
    await end(store, claim, Succeeded())
    assert (await shown(store, flow)).steps[SUCCEEDED] == 6
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_a_thousand_steps_can_be_added_at_once(store: Store) -> None:
    flow = await begin(store, step("a"))
    many = tuple(step(f"n{n}", "a") for n in range(1_000))
    await run_steps(store, "a", outcome=Succeeded(7, (*many, step("end", *(one.name for one in many)))))
    claims = await take(store, 2_000)
    assert len(claims) == 1_000
    assert all(claim.inputs == {"a": 7} for claim in claims)
    await store.settle([claim.settled(Succeeded()) for claim in claims])
    assert (await take_one(store)).step == "end"
    assert (await shown(store, flow)).steps[SUCCEEDED] == 1_001


async def test_a_settle_sent_again_adds_nothing_twice(store: Store) -> None:
    flow = await begin(store, step("a"))
    claim = await take_one(store)
    outcome = Succeeded(None, (step("x", "a"),))
    await end(store, claim, outcome)
    before = await panorama(store)
    assert await end(store, claim, outcome) is Verdict.ACCEPTED
    assert await end(store, claim, Succeeded(None, (step("another"),))) is Verdict.ACCEPTED
    assert await panorama(store) == before
    await run_steps(store, "x")
    before = await panorama(store)
    assert await end(store, claim, outcome) is Verdict.ACCEPTED
    assert await panorama(store) == before
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


async def test_steps_added_by_two_steps_in_one_call_are_all_there(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await store.settle([claim.settled(Succeeded(None, (step(f"{name}1", name),))) for name, claim in claims.items()])
    assert await states(store, flow) == {"a": SUCCEEDED, "a1": QUEUED, "b": SUCCEEDED, "b1": QUEUED}


async def test_steps_added_to_a_flow_that_was_stopped_are_cancelled_at_once(store: Store, lab: Lab) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Failed("boom"))
    await lab.advance(1)
    assert await end(store, claims["b"], Succeeded(1, (step("x"), step("y", "b")))) is Verdict.ACCEPTED
    assert await states(store, flow) == {"a": FAILED, "b": SUCCEEDED, "x": CANCELLED, "y": CANCELLED}
    job = (await steps_of(store, flow))["x"]
    assert (job.finished_at, job.cancel_asked, job.errors) == (lab.now, True, ())
    found = await shown(store, flow)
    assert (found.state, found.finished_at) == (FlowState.FAILED, lab.now)
    assert await take(store) == []


async def test_a_failure_of_an_added_step_stops_the_flow(store: Store) -> None:
    flow = await begin(store, step("a"), step("z", queue="other"))
    await run_steps(store, "a", outcome=Succeeded(None, chain("x", "y")))
    await run_steps(store, "x", outcome=Failed("boom"))
    assert await states(store, flow) == {"a": SUCCEEDED, "x": FAILED, "y": CANCELLED, "z": CANCELLED}
    assert await flow_state(store, flow) is FlowState.FAILED


async def test_a_name_is_free_again_when_its_step_is_gone(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded())
    await store.delete(just(claims["a"]))
    await end(store, claims["b"], Succeeded(None, (step("a"),)))
    assert await states(store, flow) == {"a": QUEUED, "b": SUCCEEDED}


# --- steps that cannot be added ---------------------------------------------------------------


async def check_fails(store: Store, added: Any, reason: str) -> None:
    """A step that adds these fails for that reason, in any flow, and adds nothing."""
    flow = await begin(store, *chain("a", "b"), step("c", queue="other"), on_failure=OnFailure.CONTINUE)
    claim = await take_one(store)
    assert await end(store, claim, Succeeded("lost", added)) is Verdict.ACCEPTED
    job = await look(store, claim.id)
    assert (job.state, job.result, [error.error for error in job.errors]) == (FAILED, None, [reason])
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED, "c": QUEUED}
    before = await panorama(store)
    assert await end(store, claim, Succeeded("lost", added)) is Verdict.ACCEPTED
    assert await panorama(store) == before


@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_a_known_name_cannot_be_added(store: Store, name: str) -> None:
    await check_fails(store, (step("x"), step(name)), limits.known_name(name))


@pytest.mark.parametrize("name", ["b", "c", "nobody"])
async def test_an_added_step_can_need_no_other_step_than_its_adder(store: Store, name: str) -> None:
    await check_fails(store, (step("x"), step("y", "x", name)), limits.other_adder(name))


async def test_a_known_job_cannot_be_added(store: Store) -> None:
    there = await add_one(store, queue="elsewhere")
    await check_fails(store, (step("x"), step("y", id=there)), limits.known_job(there))


async def test_a_known_name_is_said_first(store: Store) -> None:
    there = await add_one(store, queue="elsewhere")
    await check_fails(store, (step("x", "nobody"), step("b", id=there), step("c")), limits.known_name("b"))


# --- a step whose cancel was asked ------------------------------------------------------------


async def test_what_a_step_adds_whose_cancel_was_asked_is_cancelled_at_once(store: Store, lab: Lab) -> None:
    """It has done its work, so it succeeds; but nothing is to come of it."""
    for policy in OnFailure:
        flow = await begin(store, step("a"), step("b", "a"), step("c"), step("d", "c"), on_failure=policy)
        claims = await take_steps(store)
        await store.cancel(just(claims["a"]))
        await lab.advance(1)
        added = (step("x"), step("y", "x", "a"), step("z", "a", queue="elsewhere", run_at=lab.now + SECOND))
        assert await end(store, claims["a"], Succeeded("r", added)) is Verdict.ACCEPTED
        jobs, goes_on = await steps_of(store, flow), policy is OnFailure.CONTINUE
        assert (jobs["a"].state, jobs["a"].result) == (SUCCEEDED, "r")
        for name in "xyz":
            assert (jobs[name].state, jobs[name].finished_at, jobs[name].cancel_asked) == (CANCELLED, lab.now, True)
        assert (jobs["b"].state, jobs["d"].state) == ((QUEUED, WAITING) if goes_on else (CANCELLED, CANCELLED))
        assert jobs["c"].cancel_asked is not goes_on, "a flow that stops asks those that run"
        assert await flow_state(store, flow) is (FlowState.RUNNING if goes_on else FlowState.CANCELLED)
        before = await panorama(store)
        assert await end(store, claims["a"], Succeeded("r", added)) is Verdict.ACCEPTED
        assert await panorama(store) == before
        if goes_on:
            await run_steps(store, "b")
            assert await end(store, claims["c"], Succeeded()) is Verdict.ACCEPTED
            await run_steps(store, "d")
        else:
            assert await end(store, claims["c"], Released()) is Verdict.ACCEPTED
        found = await shown(store, flow)
        assert (found.state, found.finished_at) == (FlowState.CANCELLED, lab.now)


async def test_bad_steps_fail_a_step_whose_cancel_was_asked(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    claims = await take_steps(store)
    await store.cancel(just(claims["a"]))
    await end(store, claims["a"], Succeeded(None, (step("x"), step("b"))))
    assert (await states(store, flow))["a"] is FAILED
    assert "x" not in await states(store, flow)
    assert await flow_state(store, flow) is FlowState.FAILED


# --- bad steps --------------------------------------------------------------------------------

TWIN = new_id()
BAD_STEPS: dict[str, Callable[[], Any]] = {
    "two of one name": lambda: (step("x"), step("x")),
    "two of one job": lambda: (step("x", id=TWIN), step("y", id=TWIN)),
    "a circle": lambda: (step("x", "y"), step("y", "x")),
    "itself": lambda: (step("x", "x"),),
    "two unknown needs": lambda: (step("x", "a", "b"),),
    "a need named twice": lambda: (step("x", "a", "a"),),
    "a key": lambda: (step("x", key="k"),),
    "a bad job": lambda: (step("x", priority=99_999),),
    "bad arguments": lambda: (step("x", args={"n": float("inf")}),),
    "a bad name": lambda: (step("x\0"),),
    "no steps": lambda: ("x", 5),
    "one step, no tuple": lambda: step("x"),
    "no job": lambda: (NewStep(name="x", job=None),),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("make", BAD_STEPS.values(), ids=list(BAD_STEPS))
async def test_a_bad_step_fails_the_step_that_adds_it(store: Store, make: Callable[[], Any]) -> None:
    added = make()
    [settled] = limits.settleable([(await _some_claim(store)).settled(Succeeded(None, added))])
    assert settled.error is not None
    assert settled.error.startswith("the steps cannot be added: ")
    await check_fails(store, added, settled.error)


async def _some_claim(store: Store) -> Any:
    await add_one(store, queue="aside")
    return await take_one(store, queue="aside")


async def test_a_failure_to_add_stops_the_flow_like_any_other(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await run_steps(store, "a", outcome=Succeeded(None, (step("b"),)))
    assert await states(store, flow) == {"a": FAILED, "b": CANCELLED}
    assert await flow_state(store, flow) is FlowState.FAILED


async def test_a_plain_job_that_adds_steps_fails(store: Store) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    assert await end(store, claim, Succeeded(None, (step("x"),))) is Verdict.ACCEPTED
    found = await look(store, job)
    assert (found.state, [error.error for error in found.errors]) == (FAILED, [limits.NO_STEP])
    before = await panorama(store)
    assert await end(store, claim, Succeeded(None, (step("x"),))) is Verdict.ACCEPTED
    assert await panorama(store) == before
    assert (await store.flows()).flows == ()


async def test_the_others_of_the_call_go_through(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await store.enqueue([new(), new()])
    claims = await take(store)
    bad = Succeeded(None, (step("x", "a"),))
    assert [claim.step for claim in claims] == ["a", None, None]
    ends = [Succeeded(1), bad, Succeeded(2)]
    verdicts = await store.settle([claim.settled(end) for claim, end in zip(claims, ends, strict=True)])
    assert verdicts == [Verdict.ACCEPTED] * 3
    assert [(await look(store, claim.id)).state for claim in claims] == [SUCCEEDED, FAILED, SUCCEEDED]
    assert await states(store, flow) == {"a": SUCCEEDED, "b": QUEUED}
