"""Races about flows: steps that end at the same instant, on several handles, have the effect of one order."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import permutations
from random import Random
from typing import Any
from uuid import UUID

import pytest

from dibs.job import Claim, FlowState, NewFlow
from dibs.outcome import Failed, Succeeded, Verdict
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import START, FakeClock
from dibs.testing.contract.arena import FULL
from dibs.testing.contract.flow_helpers import (
    SUCCEEDED,
    begin,
    diamond,
    flow_of,
    flow_state,
    just,
    panorama,
    shown,
    step,
    steps_of,
    take_steps,
    whole,
)
from dibs.testing.contract.helpers import ALL, LEASE, take
from dibs.testing.contract.test_races import at_once, rounds
from dibs.testing.labs.base import Lab

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1_800)]

Call = Callable[[], Awaitable[Any]]


def settle(store: Store, claim: Claim, outcome: Succeeded | Failed) -> Call:
    return lambda: store.settle([claim.settled(outcome)])


async def test_the_two_last_needs_that_end_at_once_let_their_step_go_once(store: Store, lab: Lab) -> None:
    other = await lab.open()
    for _ in range(rounds(lab) // 20):
        flow = await begin(store, step("a"), step("b"), step("c", "a", "b"))
        claims = await take_steps(store)
        ends = [settle(store, claims["a"], Succeeded(1)), settle(other, claims["b"], Succeeded(2))]
        assert await at_once(lab, ends) == [[Verdict.ACCEPTED]] * 2
        [claim] = await take(store)
        assert (claim.step, claim.epoch, claim.inputs) == ("c", 1, {"a": 1, "b": 2})
        await store.settle([claim.settled(Succeeded())])
        assert await flow_state(store, flow) is FlowState.SUCCEEDED
        await store.delete(ALL)


async def test_the_two_last_steps_that_end_at_once_end_the_flow(store: Store, lab: Lab) -> None:
    other = await lab.open()
    for _ in range(rounds(lab) // 20):
        flow = await begin(store, step("a"), step("b"))
        claims = await take_steps(store)
        ends = [settle(store, claims["a"], Succeeded()), settle(other, claims["b"], Succeeded())]
        assert await at_once(lab, ends) == [[Verdict.ACCEPTED]] * 2
        found = await shown(store, flow)
        assert (found.state, found.finished_at) == (FlowState.SUCCEEDED, lab.now)
        await store.delete(ALL)


async def test_fifty_needs_that_end_at_once_let_their_step_go_once(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(5)]
    names = [f"n{n}" for n in range(50)]
    await begin(store, *(step(name) for name in names), step("end", *names))
    claims = await take(store)
    calls = [settle(handles[n % 5], claim, Succeeded(claim.step)) for n, claim in enumerate(claims)]
    assert await at_once(lab, calls) == [[Verdict.ACCEPTED]] * 50
    [claim] = await take(store)
    assert claim.inputs == {name: name for name in names}


async def test_ten_diamonds_and_many_workers_run_each_step_once_and_after_its_needs(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(4)]
    flows = [flow_of(*diamond()) for _ in range(100 if FULL else 10)]
    await asyncio.gather(*(handles[n % 4].start(flow) for n, flow in enumerate(flows)))
    ran: list[tuple[UUID | None, str | None]] = []

    async def worker(number: int) -> None:
        mine, random = handles[number % 4], Random(number)
        while not await _all_ended(mine, len(flows)):
            claims = await mine.claim("default", f"w{number}", random.randint(1, 4), LEASE)
            for claim in claims:
                assert set(claim.inputs) == {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}[claim.step or ""]
                assert all(claim.inputs[name] == [str(claim.flow), name] for name in claim.inputs)
            ran.extend((claim.flow, claim.step) for claim in claims)
            random.shuffle(claims)
            ends = [claim.settled(Succeeded([str(claim.flow), claim.step])) for claim in claims]
            assert await mine.settle(ends) == [Verdict.ACCEPTED] * len(ends)

    await asyncio.gather(*(worker(number) for number in range(8)))
    assert sorted(ran) == sorted((flow.id, name) for flow in flows for name in "abcd")
    for flow in flows:
        assert (await shown(store, flow.id)).steps[SUCCEEDED] == 4


async def _all_ended(store: Store, count: int) -> bool:
    await asyncio.sleep(0)
    return len((await store.flows([FlowState.SUCCEEDED], limit=1_000)).flows) == count


async def test_starts_and_ends_that_race_leave_no_flow_behind(store: Store, lab: Lab) -> None:
    """Settle, cancel, requeue, sweep and delete of the same flows, in opposite orders: none waits for ever."""
    handles = [await lab.open() for _ in range(4)]
    random = Random(5)
    for number in range(rounds(lab) // 100):
        flows = [await begin(store, *diamond(max_attempts=1)) for _ in range(6)]
        await store.settle([claim.settled(Succeeded()) for claim in (await take(store))[::2]])
        held = await take(store)
        some = [just(*random.sample(held, 3)) for _ in range(2)]
        calls: list[Call] = [
            partial(handles[0].settle, [claim.settled(Succeeded()) for claim in held]),
            partial(handles[1].settle, [claim.settled(Failed("boom")) for claim in reversed(held)]),
            partial(handles[2].cancel, some[0], force=bool(number % 2)),
            partial(handles[3].requeue, whole(flows[number % 6])),
            partial(handles[0].delete, some[1], force=True),
            partial(handles[1].sweep),
            partial(handles[2].cancel, whole(flows[(number + 3) % 6])),
            partial(handles[3].requeue, ALL),
        ]
        random.shuffle(calls)
        await asyncio.wait_for(at_once(lab, calls), 60)
        await store.cancel(ALL, force=True)
        assert {flow.state for flow in (await store.flows()).flows} <= set(FlowState) - {FlowState.RUNNING}
        assert all(flow.finished_at is not None for flow in (await store.flows()).flows)
        await store.delete(ALL)
        assert (await store.flows()).flows == ()


# --- the model explains what came out ---------------------------------------------------------

FLOW: NewFlow = flow_of(step("a"), step("b"), step("c", "a", "b"), step("d", "c"), step("q", queue="other"))
ADDED = step("x", "b")

Op = Callable[[Store, dict[str, Claim]], Awaitable[Any]]
OPS: dict[str, Op] = {
    "a succeeds": lambda store, held: store.settle([held["a"].settled(Succeeded(1))]),
    "a fails": lambda store, held: store.settle([held["a"].settled(Failed("boom"))]),
    "b succeeds": lambda store, held: store.settle([held["b"].settled(Succeeded(2))]),
    "both succeed": lambda store, held: store.settle([held[name].settled(Succeeded(3)) for name in "ba"]),
    "b fails": lambda store, held: store.settle([held["b"].settled(Failed("boom"))]),
    "b adds": lambda store, held: store.settle([held["b"].settled(Succeeded(2, (ADDED,)))]),
    "cancel a": lambda store, held: store.cancel(just(held["a"]), force=True),
    "cancel all": lambda store, held: store.cancel(whole(FLOW.id)),
    "requeue all": lambda store, held: store.requeue(whole(FLOW.id)),
    "requeue a": lambda store, held: store.requeue(just(held["a"])),
    "delete b": lambda store, held: store.delete(just(held["b"]), force=True),
    "delete all": lambda store, held: store.delete(whole(FLOW.id)),
    "start again": lambda store, held: store.start(FLOW),
}


async def _played(names: tuple[str, ...]) -> list[Any]:
    """What the model says can come of these: one result for each order."""
    results = []
    for order in permutations(range(len(names))):
        model = MemoryStore(clock=FakeClock(START))
        await model.start(FLOW)
        held, answers = await take_steps(model), {}
        for n in order:
            answers[n] = await OPS[names[n]](model, held)
        results.append(([answers[n] for n in range(len(names))], await panorama(model)))
    return results


async def test_verbs_that_race_for_one_flow_take_effect_one_after_another(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(4)]
    random = Random(2)
    for _ in range(rounds(lab) // 4):
        names = tuple(random.sample(sorted(OPS), random.randint(2, 4)))
        await store.start(FLOW)
        held = await take_steps(store)
        calls = [partial(OPS[name], handles[n], held) for n, name in enumerate(names)]
        answers = await at_once(lab, calls)
        result = (answers, await panorama(store))
        assert result in await _played(names), f"{names} answered {result}, which no order explains"
        await store.delete(ALL, force=True)
        assert (await store.flows()).flows == ()
        assert await steps_of(store, FLOW.id) == {}
