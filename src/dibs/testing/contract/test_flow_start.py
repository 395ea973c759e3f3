"""Starting a flow: all of its steps or nothing, once; and what can be seen of it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Flow, FlowState, NewFlow, NewStep, OnFailure, State
from dibs.limits import flow as admit_flow
from dibs.limits import known_job
from dibs.outcome import Failed, Succeeded
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    QUEUED,
    WAITING,
    begin,
    chain,
    diamond,
    flow_of,
    panorama,
    run_steps,
    shown,
    states,
    step,
    steps_of,
    take_steps,
)
from dibs.testing.contract.helpers import SECOND, add_one, every_job, look, new, take, take_one, taken
from dibs.testing.contract.test_wait import asleep
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


# --- what is stored ---------------------------------------------------------------------------


async def test_every_step_is_a_job_of_the_flow(store: Store, lab: Lab) -> None:
    due = lab.now + SECOND
    steps = (
        step("load", args={"n": 1}, queue="in", priority=-3, max_attempts=7, meta={"m": 1}),
        step("save", "load", task="write", args=[2], queue="out", run_at=due),
    )
    flow = await begin(store, *steps)
    jobs = await steps_of(store, flow)
    load, save = jobs["load"], jobs["save"]
    assert (load.id, save.id) == (steps[0].job.id, steps[1].job.id)
    assert (load.flow, load.step, load.needs, load.inputs) == (flow, "load", (), {})
    assert (save.flow, save.step, save.needs, save.inputs) == (flow, "save", ("load",), {})
    assert (load.args, load.queue, load.priority, load.max_attempts, load.meta) == ({"n": 1}, "in", -3, 7, {"m": 1})
    assert (save.task, save.args, save.queue, save.key, save.meta) == ("write", [2], "out", None, {})
    assert (load.run_at, save.run_at, load.created_at, save.created_at) == (lab.now, due, lab.now, lab.now)
    assert (load.attempts, load.epoch, save.attempts, save.epoch) == (0, 0, 0, 0)
    assert await look(store, save.id) == save


async def test_steps_with_needs_wait_and_the_others_are_queued(store: Store) -> None:
    flow = await begin(store, *diamond(), step("e"))
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING, "c": WAITING, "d": WAITING, "e": QUEUED}


async def test_needs_keep_their_order(store: Store) -> None:
    names = ["z", "m", "ü", "a"]
    flow = await begin(store, *(step(name) for name in names), step("end", *names))
    assert (await steps_of(store, flow))["end"].needs == tuple(names)


async def test_a_step_may_stand_before_those_that_it_needs(store: Store) -> None:
    flow = await begin(store, step("b", "a"), step("a"))
    assert await states(store, flow) == {"a": QUEUED, "b": WAITING}
    await run_steps(store, "a")
    await run_steps(store, "b")
    assert (await shown(store, flow)).state is FlowState.SUCCEEDED


async def test_a_flow_is_shown_as_it_was_started(store: Store, lab: Lab) -> None:
    flow = await begin(
        store, *diamond(), name="Order 17", on_failure=OnFailure.CONTINUE, meta={"customer": ["é", 1.5, None]}
    )
    counted = {**dict.fromkeys(State, 0), QUEUED: 1, WAITING: 3}
    assert await store.flow(flow) == Flow(
        id=flow,
        name="Order 17",
        state=FlowState.RUNNING,
        on_failure=OnFailure.CONTINUE,
        created_at=lab.now,
        finished_at=None,
        steps=counted,
        meta={"customer": ["é", 1.5, None]},
    )


async def test_a_flow_stops_at_a_failure_unless_told_otherwise(store: Store) -> None:
    assert (await shown(store, await begin(store, step("a")))).on_failure is OnFailure.STOP


async def test_the_steps_of_a_flow_are_counted_as_they_are_now(store: Store) -> None:
    flow = await begin(store, *diamond())
    await run_steps(store, "a")
    await take_one(store)
    counted = (await shown(store, flow)).steps
    assert counted == {**dict.fromkeys(State, 0), State.SUCCEEDED: 1, State.RUNNING: 1, QUEUED: 1, WAITING: 1}


async def test_ten_thousand_steps_are_stored_together(store: Store) -> None:
    flow = await begin(store, step("first"), *(step(f"s{n}", "first") for n in range(9_999)))
    assert (await shown(store, flow)).steps == {**dict.fromkeys(State, 0), QUEUED: 1, WAITING: 9_999}


async def test_steps_of_one_name_belong_to_their_own_flows(store: Store) -> None:
    one, other = await begin(store, *chain("a", "b")), await begin(store, *chain("a", "b"))
    claims = await take(store)
    assert [claim.flow for claim in claims] == [one, other]
    await store.settle([claims[1].settled(Succeeded())])
    assert (await states(store, one))["b"] is WAITING
    assert (await states(store, other))["b"] is QUEUED


NAMES = ["x" * 200, "🦊" * 200, "e\u0301", "' OR '1'='1", '"q"', "back\\slash\\", "{tag}:x:*", "a,b|c;d", "0", "null"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
async def test_any_printable_name_is_good_for_a_step_and_a_flow(store: Store, name: str) -> None:
    flow = await begin(store, step(name), step("other"), step("end", name, "other"), name=name)
    assert (await shown(store, flow)).name == name
    claims = await take_steps(store)
    await store.settle([claims[name].settled(Succeeded({name: name})), claims["other"].settled(Succeeded())])
    assert (await take_one(store)).inputs == {name: {name: name}, "other": None}


# --- what a claim gets ------------------------------------------------------------------------


async def test_a_claim_never_gets_a_waiting_step(store: Store, lab: Lab) -> None:
    await begin(store, *diamond())
    assert list(await take_steps(store)) == ["a"]
    await lab.advance(3_600)
    await store.sweep()
    assert list(await take_steps(store)) == ["a"]


async def test_a_claim_knows_its_flow_and_its_step(store: Store) -> None:
    flow = await begin(store, step("a", meta={"m": 1}))
    claim = await take_one(store)
    assert (claim.flow, claim.step, claim.inputs, claim.meta) == (flow, "a", {}, {"m": 1})


async def test_a_plain_job_has_no_flow(store: Store) -> None:
    job = await look(store, await add_one(store))
    claim = await take_one(store)
    assert (job.flow, job.step, job.needs, job.inputs) == (None, None, (), {})
    assert (claim.flow, claim.step, claim.inputs) == (None, None, {})
    assert (await store.flows()).flows == ()


async def test_steps_stand_among_the_jobs_of_their_queue(store: Store) -> None:
    first = await add_one(store)
    flow = await begin(store, step("late"), step("early", priority=-1))
    last = await add_one(store)
    jobs = await steps_of(store, flow)
    assert await taken(store) == [jobs["early"].id, first, jobs["late"].id, last]


async def test_a_step_is_not_due_before_its_time(store: Store, lab: Lab) -> None:
    await begin(store, step("a", run_at=lab.now + 5 * SECOND))
    assert await take(store) == []
    await lab.advance(5)
    assert list(await take_steps(store)) == ["a"]


async def test_a_start_wakes_the_queues_of_its_first_steps(store: Store) -> None:
    worker = await asleep(store, "one", "two")
    await begin(store, step("a", queue="one"), step("b", "a", queue="two"))
    assert (await worker).step == "a"


# --- once -------------------------------------------------------------------------------------


async def test_a_flow_that_is_sent_again_is_not_stored_again(store: Store) -> None:
    flow = flow_of(*diamond())
    assert (await store.start(flow)).created
    await run_steps(store, "a")
    before = await panorama(store)
    answer = await store.start(flow)
    assert (answer.id, answer.created) == (flow.id, False)
    assert await panorama(store) == before


async def test_a_known_id_stores_nothing_whatever_comes_with_it(store: Store) -> None:
    flow = await begin(store, step("a"))
    before = await panorama(store)
    answer = await store.start(flow_of(*diamond(), name="another", id=flow))
    assert (answer.id, answer.created) == (flow, False)
    assert await panorama(store) == before


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("boom")])
async def test_the_id_of_a_finished_flow_is_known(store: Store, outcome: Succeeded | Failed) -> None:
    flow = flow_of(step("a"))
    await store.start(flow)
    await run_steps(store, "a", outcome=outcome)
    before = await panorama(store)
    assert not (await store.start(flow)).created
    assert await panorama(store) == before


async def test_a_flow_whose_job_is_known_is_refused_and_nothing_is_stored(store: Store) -> None:
    there = new()
    await store.enqueue([there])
    before = await panorama(store)
    flow = flow_of(step("a"), step("b", id=there.id), step("c", "a"))
    with pytest.raises(Refused) as problem:
        await store.start(flow)
    assert str(problem.value) == known_job(there.id)
    assert await panorama(store) == before
    assert await store.flow(flow.id) is None


async def test_starts_of_one_flow_that_race_store_it_once(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(5)]
    flow = flow_of(*diamond())
    answers = await asyncio.gather(*(handles[n % 5].start(flow) for n in range(20)))
    assert sum(answer.created for answer in answers) == 1
    assert {answer.id for answer in answers} == {flow.id}
    assert len(await every_job(store)) == 4
    assert await states(store, flow.id) == {"a": QUEUED, "b": WAITING, "c": WAITING, "d": WAITING}


async def test_a_job_whose_id_is_a_steps_id_is_not_stored(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    waiting = (await steps_of(store, flow))["b"]
    [answer] = await store.enqueue([new(id=waiting.id)])
    assert (answer.id, answer.created) == (waiting.id, False)
    assert await look(store, waiting.id) == waiting


# --- what is refused --------------------------------------------------------------------------

OLD_ID = UUID("00000000-0000-4000-8000-000000000000")
TWIN = new_id()
BAD_FLOWS: dict[str, Callable[[], NewFlow]] = {
    "no step": flow_of,
    "too many steps": lambda: flow_of(*[step("a")] * 10_001),
    "two steps of one name": lambda: flow_of(step("a"), step("b"), step("a")),
    "two steps of one job": lambda: flow_of(step("a", id=TWIN), step("b", id=TWIN)),
    "an unknown need": lambda: flow_of(step("a"), step("b", "a", "x")),
    "a need named twice": lambda: flow_of(step("a"), step("b", "a", "a")),
    "a step that needs itself": lambda: flow_of(step("a", "a")),
    "a circle of two": lambda: flow_of(step("a", "b"), step("b", "a")),
    "a circle of three behind a step": lambda: flow_of(
        step("a"), *chain("b", "c"), step("d", "c", "f"), step("f", "d")
    ),
    "a key": lambda: flow_of(step("a", key="k")),
    "needs as text": lambda: flow_of(NewStep(name="a", job=new(), needs="a")),  # type: ignore[arg-type]
    "a bad job": lambda: flow_of(step("a"), step("b", priority=99_999)),
    "bad arguments": lambda: flow_of(step("a", args=float("nan"))),
    "no job": lambda: flow_of(NewStep(name="a", job=None)),  # type: ignore[arg-type]
    "no steps": lambda: flow_of(steps=None),
    "steps that are jobs": lambda: flow_of(new()),  # type: ignore[arg-type]
    "a bad id": lambda: flow_of(step("a"), id=OLD_ID),
    "a bad policy": lambda: flow_of(step("a"), on_failure="wait"),
    "meta that is no dict": lambda: flow_of(step("a"), meta=[]),
    "bad meta": lambda: flow_of(step("a"), meta={"m": {1}}),
}
BAD_NAMES: list[Any] = ["", " a", "a ", "a\n", "\0", "\ud800", "n" * 201, 5, None]
for bad in BAD_NAMES:
    BAD_FLOWS[f"the step {ascii(bad)[:9]}"] = partial(lambda name: flow_of(step(name)), bad)
    BAD_FLOWS[f"the flow {ascii(bad)[:9]}"] = partial(flow_of, step("a"), name=bad)


async def test_a_bad_flow_is_refused_and_nothing_is_stored(store: Store) -> None:
    before = await panorama(store)
    for name, make in BAD_FLOWS.items():
        flow = make()
        with pytest.raises(Refused) as reason:
            admit_flow(flow)
        assert "\n" not in str(reason.value), name
        with pytest.raises(Refused) as problem:
            await store.start(flow)
        assert str(problem.value) == str(reason.value), name
        assert await panorama(store) == before, name
