"""An id is free again when its job is gone. Who comes with it then, step or not, is another job and nobody's need."""

from typing import Any
from uuid import UUID

import pytest

from dibs.job import Claim, FlowState, Job, NewStep, OnFailure
from dibs.outcome import Failed, Outcome, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
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
)
from dibs.testing.contract.helpers import add_one, changed, end, look, take, take_one

pytestmark = pytest.mark.asyncio

CONTINUE = OnFailure.CONTINUE


async def lose_b(store: Store, ended: Outcome) -> tuple[UUID, dict[str, Claim], Job]:
    """``c`` needs ``a`` and ``b``, of which ``a`` is running, ``b`` has ended and is gone. A flow, claims, ``c``."""
    flow = await begin(store, step("a"), step("b"), step("c", "a", "b"), step("e", queue="e"), on_failure=CONTINUE)
    claims = await take_steps(store)
    await end(store, claims["b"], ended)
    await store.requeue(just((await steps_of(store, flow))["c"]))
    assert await store.delete(just(claims["b"])) == changed(1)
    return flow, claims, (await steps_of(store, flow))["c"]


ENDS = pytest.mark.parametrize(
    ("ended", "given"),
    [(Succeeded("old"), {"b": "old"}), (Failed("boom"), {})],
    ids=["succeeded", "failed"],
)


@ENDS
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with a step"])
async def test_the_success_of_a_plain_job_with_the_id_of_a_need_meets_nothing(
    store: Store, ended: Outcome, given: dict[str, Any], alone: bool
) -> None:
    flow, claims, c = await lose_b(store, ended)
    await add_one(store, id=claims["b"].id)
    plain = await take_one(store)
    others = [] if alone else await take(store, queue="e")
    verdicts = await store.settle([claim.settled(Succeeded("new")) for claim in (plain, *others)])
    assert set(verdicts) == {Verdict.ACCEPTED}
    found = await look(store, c.id)
    assert (found.state, found.inputs) == (WAITING, given)
    await end(store, claims["a"], Succeeded("a"))
    found = await look(store, c.id)
    assert (found.state, found.inputs) == (QUEUED if given else WAITING, {"a": "a"} | given)
    await store.requeue(just(claims["a"]))
    await run_steps(store, "a")
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("c", {"a": "a", "b": None})
    assert await states(store, flow) == {"a": SUCCEEDED, "c": RUNNING, "e": QUEUED if alone else SUCCEEDED}


@ENDS
@pytest.mark.parametrize("bad", [Succeeded("new"), Failed("boom"), None], ids=["succeeded", "failed", "queued"])
async def test_a_requeued_step_takes_no_notice_of_a_plain_job_with_the_id_of_its_need(
    store: Store, ended: Outcome, given: dict[str, Any], bad: Outcome | None
) -> None:
    _, claims, c = await lose_b(store, ended)
    await end(store, claims["a"], Succeeded("a"))
    await add_one(store, id=claims["b"].id, queue="aside")
    if bad is not None:
        await end(store, await take_one(store, queue="aside"), bad)
    await store.requeue(just(claims["a"]))
    found = await look(store, c.id)
    assert (found.state, found.inputs) == (WAITING, {"b": None})
    await run_steps(store, "a")
    assert (await take_one(store)).inputs == {"a": "a", "b": None}


@ENDS
@pytest.mark.parametrize("bad", [Succeeded("new"), Failed("boom")], ids=["succeeded", "failed"])
async def test_a_step_with_name_and_id_of_a_need_that_is_gone_is_another(
    store: Store, ended: Outcome, given: dict[str, Any], bad: Outcome
) -> None:
    flow, claims, c = await lose_b(store, ended)
    added = (step("b", id=claims["b"].id), step("y", "b", "e"))
    adder = await take_one(store, queue="e")
    await end(store, adder, Succeeded("e", added))
    found = await steps_of(store, flow)
    assert (found["b"].state, found["c"].inputs, found["y"].inputs) == (QUEUED, given, {"e": "e"})
    await run_steps(store, "b", outcome=bad)
    assert (await look(store, c.id)).inputs == given
    assert (await look(store, c.id)).state is WAITING
    await end(store, claims["a"], Succeeded("a"))
    await store.requeue(just(claims["a"]))
    await run_steps(store, *(("a", "y") if bad == Succeeded("new") else ("a",)))
    assert (await take_one(store)).inputs == {"a": "a", "b": None}


async def test_a_step_of_another_flow_with_the_id_of_a_need_meets_nothing(store: Store) -> None:
    flow, claims, c = await lose_b(store, Failed("boom"))
    other = await begin(store, step("b", id=claims["b"].id, queue="aside"), step("c", "b", queue="aside"))
    await end(store, await take_one(store, queue="aside"), Succeeded("new"))
    assert await states(store, other) == {"b": SUCCEEDED, "c": QUEUED}
    assert (await look(store, c.id)).inputs == {}
    await end(store, claims["a"], Succeeded("a"))
    await store.requeue(just(claims["a"]))
    assert (await look(store, c.id)).inputs == {"b": None}
    assert (await states(store, flow))["c"] is WAITING


@pytest.mark.parametrize("many", [False, True], ids=["by one", "by two"])
async def test_results_of_two_jobs_that_had_one_id_are_kept_apart(store: Store, many: bool) -> None:
    flow, claims, c = await lose_b(store, Succeeded("old"))
    adder = await take_one(store, queue="e")
    others = tuple(step(f"y{n}", "b", "e2") for n in range(1 + many))
    await end(store, adder, Succeeded("e", (step("e2", queue="e"), step("b", id=claims["b"].id), *others)))
    await run_steps(store, "b", outcome=Succeeded("new"))
    await store.delete(just(claims["b"]))
    found = await steps_of(store, flow)
    assert found["c"].inputs == {"b": "old"}
    assert all(found[each.name].inputs == {"b": "new"} for each in others)
    await end(store, claims["a"], Succeeded("a"))
    await end(store, await take_one(store, queue="e"), Succeeded("e2"))
    given = {name: claim.inputs for name, claim in (await take_steps(store)).items()}
    assert given == {"c": {"a": "a", "b": "old"}} | {each.name: {"b": "new", "e2": "e2"} for each in others}
    assert (await look(store, c.id)).inputs == {"a": "a", "b": "old"}


# --- the step that needs ----------------------------------------------------------------------


def growth(x: UUID, y: UUID) -> tuple[NewStep, ...]:
    """What ``a`` adds each time, under ids that it makes from something."""
    return step("x", "a", id=x), step("y", "x", "a", id=y)


@pytest.mark.parametrize("unfinished", [False, True], ids=["finished", "unfinished"])
async def test_steps_that_are_added_again_with_their_ids_wait_for_what_they_need(
    store: Store, unfinished: bool
) -> None:
    flow = await begin(store, step("a"), step("e", queue="e"), on_failure=CONTINUE)
    ids = [each.job.id for each in (step("x"), step("y"))]
    await run_steps(store, "a", outcome=Succeeded("a", growth(*ids)))
    if not unfinished:
        await run_steps(store, "x")
        await run_steps(store, "y")
    jobs = await steps_of(store, flow)
    assert await store.delete(just(jobs["x"], jobs["y"])) == changed(2)
    await store.requeue(just(jobs["a"]))
    claim = await take_one(store)
    assert await end(store, claim, Succeeded("again", growth(*ids))) is Verdict.ACCEPTED
    assert await states(store, flow) == {"a": SUCCEEDED, "e": QUEUED, "x": QUEUED, "y": WAITING}
    await run_steps(store, "x")
    claim = await take_one(store)
    assert (claim.step, claim.inputs) == ("y", {"a": "again", "x": "x"})
    await end(store, claim, Succeeded())
    await end(store, await take_one(store, queue="e"), Succeeded())
    assert await flow_state(store, flow) is FlowState.SUCCEEDED


@pytest.mark.parametrize("outcome", [Succeeded("b"), Failed("boom")], ids=["succeeded", "failed"])
async def test_a_step_does_not_need_what_another_with_its_id_needed(store: Store, outcome: Outcome) -> None:
    flow = await begin(store, step("a"), step("b"), step("c", "b"), on_failure=CONTINUE)
    claims = await take_steps(store)
    old = (await steps_of(store, flow))["c"]
    await store.delete(just(old))
    added = step("z", queue="z"), step("y", "z", "a", id=old.id)
    await end(store, claims["a"], Succeeded("a", added))
    await end(store, claims["b"], outcome)
    y = await look(store, old.id)
    assert (y.state, y.step, y.needs, y.inputs) == (WAITING, "y", ("z", "a"), {"a": "a"})
    await store.requeue(just(claims["b"]))
    assert await look(store, old.id) == y
