"""A need is on the job that was there when the step was stored. If that is gone, a later one of its name is another."""

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from dibs.job import Claim, Filter, FlowState, Job, NewStep, OnFailure, Retention
from dibs.outcome import Cancelled, Failed, Outcome, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    begin,
    flow_state,
    just,
    run_steps,
    states,
    step,
    steps_of,
    take_steps,
    whole,
)
from dibs.testing.contract.helpers import changed, end, look, take_one

pytestmark = pytest.mark.asyncio

CONTINUE = OnFailure.CONTINUE
NOW = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))
WAYS = ("deleted", "pruned")


class Scene(NamedTuple):
    """``c`` needs ``a``, ``b`` and ``d``. ``b`` has ended and is gone, ``a`` has added another, ``d`` is running."""

    flow: UUID
    d: Claim

    async def step(self, store: Store, name: str) -> Job:
        return (await steps_of(store, self.flow))[name]

    async def finish(self, store: Store) -> None:
        """``d`` succeeds, and ``c`` then gets what the first ``b`` gave."""
        await end(store, self.d, Succeeded("d"))
        claim = await take_one(store)
        assert (claim.step, claim.inputs) == ("c", {"a": "a", "b": "old", "d": "d"})
        await end(store, claim, Succeeded("c"))


async def replaced(store: Store, way: str = "deleted", *added: NewStep, ended: Outcome | None = None) -> Scene:
    """Set the scene; ``added`` comes with the new ``b``."""
    flow = await begin(store, step("a"), step("b"), step("d"), step("c", "a", "b", "d"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["b"], ended or Succeeded("old"))
    if way == "deleted":
        assert await store.delete(just(claims["b"])) == changed(1)
    else:
        assert await store.prune(NOW) == 1, "nothing else is finished"
    assert await end(store, claims["a"], Succeeded("a", (step("b"), *added))) is Verdict.ACCEPTED
    return Scene(flow, claims["d"])


# --- a step that waits ------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_a_step_keeps_the_result_of_its_need_when_another_of_the_name_succeeds(store: Store, way: str) -> None:
    scene = await replaced(store, way)
    assert (await scene.step(store, "c")).inputs == {"a": "a", "b": "old"}
    await run_steps(store, "b", outcome=Succeeded("new"))
    c = await scene.step(store, "c")
    assert (c.state, c.inputs, c.needs) == (WAITING, {"a": "a", "b": "old"}, ("a", "b", "d"))
    await scene.finish(store)
    assert await flow_state(store, scene.flow) is FlowState.SUCCEEDED


@pytest.mark.parametrize("way", WAYS)
async def test_a_step_does_not_wait_for_another_of_the_name_of_its_need(store: Store, way: str) -> None:
    scene = await replaced(store, way)
    running = await take_one(store)
    await scene.finish(store)
    assert await states(store, scene.flow) == {"a": SUCCEEDED, "b": RUNNING, "c": SUCCEEDED, "d": SUCCEEDED}
    assert await flow_state(store, scene.flow) is FlowState.RUNNING
    await end(store, running, Succeeded())
    assert await flow_state(store, scene.flow) is FlowState.SUCCEEDED


@pytest.mark.parametrize("bad", [Failed("boom"), Cancelled()], ids=["failed", "cancelled"])
async def test_a_step_is_not_cancelled_because_of_another_of_the_name_of_its_need(store: Store, bad: Outcome) -> None:
    scene = await replaced(store)
    await run_steps(store, "b", outcome=bad)
    assert (await scene.step(store, "c")).state is WAITING
    await scene.finish(store)


@pytest.mark.parametrize("verb", ["cancel", "delete"])
@pytest.mark.parametrize("force", [False, True], ids=["queued", "running"])
async def test_a_step_is_spared_when_another_of_the_name_of_its_need_is_cancelled_or_deleted(
    store: Store, verb: str, force: bool
) -> None:
    scene = await replaced(store)
    new = await scene.step(store, "b")
    if force:
        await take_one(store)
    assert await getattr(store, verb)(just(new), force=force) == changed(1)
    assert (await scene.step(store, "c")).state is WAITING
    await scene.finish(store)


async def test_a_step_whose_need_failed_and_went_is_not_let_go_by_another_of_its_name(store: Store) -> None:
    scene = await replaced(store, ended=Failed("boom"))
    await end(store, scene.d, Failed("boom"))
    await store.requeue(just(await scene.step(store, "c")))
    assert (await scene.step(store, "c")).state is WAITING
    await run_steps(store, "b", outcome=Succeeded("new"))
    assert (await scene.step(store, "c")).state is WAITING
    await store.requeue(just(scene.d))
    await run_steps(store, "d")
    assert (await take_one(store)).inputs == {"a": "a", "b": None, "d": "d"}


async def test_a_need_that_goes_while_a_step_waits_for_it_is_not_met_by_another_of_its_name(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "b"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["b"], Failed("boom"))
    c = (await steps_of(store, flow))["c"]
    await store.requeue(just(c))
    await store.delete(just(claims["b"]))
    await end(store, claims["a"], Succeeded("a", (step("b"),)))
    await run_steps(store, "b")
    found = await look(store, c.id)
    assert (found.state, found.inputs, found.needs) == (WAITING, {}, ("b",))
    await store.requeue(just(claims["a"]))
    found = await look(store, c.id)
    assert (found.state, found.inputs, found.needs) == (QUEUED, {"b": None}, ("b",))


# --- steps that begin again -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_a_requeued_step_does_not_wait_for_another_of_the_name_of_its_need(store: Store, way: str) -> None:
    scene = await replaced(store, way)
    await store.cancel(just(await scene.step(store, "c")))
    await end(store, scene.d, Succeeded("d"))
    assert await store.requeue(just(await scene.step(store, "c"))) == changed(1)
    assert await states(store, scene.flow) == {"a": SUCCEEDED, "b": QUEUED, "c": QUEUED, "d": SUCCEEDED}
    c = await scene.step(store, "c")
    assert (c.inputs, c.needs) == ({"a": "a", "b": None, "d": "d"}, ("a", "b", "d"))
    await run_steps(store, "b", "c")
    assert (await scene.step(store, "c")).inputs == {"a": "a", "b": None, "d": "d"}
    assert await flow_state(store, scene.flow) is FlowState.SUCCEEDED


@pytest.mark.parametrize("ended", [Succeeded("new"), Failed("boom")], ids=["succeeded", "failed"])
async def test_a_step_does_not_wait_when_another_of_the_name_of_its_need_begins_again(
    store: Store, ended: Outcome
) -> None:
    scene = await replaced(store)
    await run_steps(store, "b", outcome=ended)
    await end(store, scene.d, Succeeded("d"))
    assert await store.requeue(just(await scene.step(store, "b"))) == changed(1)
    c = await scene.step(store, "c")
    assert (c.state, c.inputs) == (QUEUED, {"a": "a", "b": None, "d": "d"})


@pytest.mark.parametrize("policy", list(OnFailure))
async def test_a_flow_that_runs_whole_again_waits_for_what_is_needed_alone(store: Store, policy: OnFailure) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"), on_failure=policy)
    claims = await take_steps(store)
    await end(store, claims["b"], Succeeded("old"))
    await store.delete(just(claims["b"]))
    await end(store, claims["a"], Succeeded("a", (step("b"),)))
    await run_steps(store, "b", "c")
    assert await store.requeue(whole(flow)) == changed(3)
    assert await states(store, flow) == {"a": QUEUED, "b": QUEUED, "c": WAITING}
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded("again"))
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("c", {"a": "again", "b": None})
    assert (await states(store, flow))["b"] is RUNNING


async def test_a_step_that_adds_another_of_the_name_of_its_need_does_not_wait_for_it(store: Store) -> None:
    """By their names each of the two would need the other."""
    flow = await begin(store, step("b"), step("c", "b"))
    await run_steps(store, "b")
    await store.delete(just((await steps_of(store, flow))["b"]))
    await run_steps(store, "c", outcome=Succeeded("c", (step("b", "c"),)))
    await run_steps(store, "b")
    await store.requeue(whole(flow))
    assert await states(store, flow) == {"b": WAITING, "c": QUEUED}
    await run_steps(store, "c")
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("b", {"c": "c"})
    await end(store, claim, Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


# --- steps that were added --------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_those_that_were_added_with_it_need_it(store: Store, way: str) -> None:
    scene = await replaced(store, way, step("y", "b"), step("z", "y", "a"))
    assert await states(store, scene.flow) == {
        **{"a": SUCCEEDED, "b": QUEUED, "c": WAITING, "d": RUNNING},
        **{"y": WAITING, "z": WAITING},
    }
    await run_steps(store, "b", outcome=Succeeded("new"))
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("y", {"b": "new"})
    await end(store, claim, Failed("boom"))
    assert await states(store, scene.flow) == {
        **{"a": SUCCEEDED, "b": SUCCEEDED, "c": WAITING, "d": RUNNING},
        **{"y": FAILED, "z": CANCELLED},
    }
    assert await store.requeue(Filter(flows=(scene.flow,), states=(FAILED, CANCELLED))) == changed(2)
    assert (await scene.step(store, "y")).inputs == {"b": "new"}
    await run_steps(store, "y")
    assert (await take_one(store)).inputs == {"a": "a", "y": "y"}


@pytest.mark.parametrize("name", ["x", "a"])
async def test_an_added_step_does_not_wait_for_what_a_second_adder_adds(store: Store, name: str) -> None:
    """It needs its adder ``a``, and ``x`` that came with it. One of them goes, and ``e`` adds another."""
    flow = await begin(store, step("a"), step("e"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["a"], Succeeded("a", (step("x", "a"), step("y", "x", "a"))))
    await run_steps(store, "x")
    await store.cancel(just((await steps_of(store, flow))["y"]))
    await store.delete(just((await steps_of(store, flow))[name]))
    await end(store, claims["e"], Succeeded("e", (step(name, "e"), step("z", name))))
    await store.requeue(just((await steps_of(store, flow))["y"]))
    found = await states(store, flow)
    assert (found["y"], found[name], found["z"]) == (QUEUED, QUEUED, WAITING)
    inputs = {"x": "x", "a": "a"} | {name: None}
    assert (await steps_of(store, flow))["y"].inputs == inputs
    await run_steps(store, name, "y")
    assert (await steps_of(store, flow))["y"].inputs == inputs
    assert (await take_one(store)).inputs == {name: name}


async def test_of_three_of_one_name_each_is_needed_by_those_that_came_with_it(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"), step("e"), step("c", "b", "e"), on_failure=CONTINUE)
    claims = await take_steps(store)
    for adder, other, ended in (("b", "", "first"), ("a", "y", "second")):
        if other:
            await end(store, claims[adder], Succeeded(adder, (step("b"), step(other, "b", adder))))
            claims["b"] = await take_one(store)
        await end(store, claims["b"], Succeeded(ended))
        await store.delete(just(claims["b"]))
    await end(store, claims["e"], Succeeded("e", (step("b"), step("z", "b"))))
    jobs = await steps_of(store, flow)
    assert {name: jobs[name].inputs for name in "cyz"} == {
        "c": {"b": "first", "e": "e"},
        "y": {"b": "second", "a": "a"},
        "z": {},
    }
    assert {name: jobs[name].state for name in "bcyz"} == {"b": QUEUED, "c": QUEUED, "y": QUEUED, "z": WAITING}
    await store.requeue(just(claims["e"]))
    found = await states(store, flow)
    assert {name: found[name] for name in "bceyz"} == {
        **{"b": QUEUED, "c": WAITING, "e": QUEUED},
        **{"y": QUEUED, "z": WAITING},
    }
