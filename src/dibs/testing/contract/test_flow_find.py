"""Finding flows and their steps."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Filter, FlowPage, FlowState, State
from dibs.outcome import Failed, Succeeded
from dibs.store import Store
from dibs.testing.contract.flow_helpers import (
    QUEUED,
    WAITING,
    begin,
    chain,
    diamond,
    flow_of,
    run_steps,
    shown,
    step,
    steps_of,
)
from dibs.testing.contract.helpers import LEASE, SECOND, add_one, only, take, take_one
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_steps_are_found_by_their_flow(store: Store) -> None:
    one, other = await begin(store, *diamond()), await begin(store, step("x"))
    await add_one(store)
    assert sorted(await steps_of(store, one)) == ["a", "b", "c", "d"]
    both = (await store.find(Filter(flows=(one, other)))).jobs
    assert [job.step for job in both] == ["x", "d", "c", "b", "a"]
    assert (await store.find(Filter(flows=(new_id(),)))).jobs == ()
    assert (await store.find(Filter(flows=()))).jobs == ()


async def test_too_many_flows_in_a_filter_are_refused(store: Store) -> None:
    with pytest.raises(Refused, match="flows"):
        await store.find(Filter(flows=(new_id(),) * 10_001))


async def test_an_operator_reaches_the_steps_of_one_flow(store: Store) -> None:
    one, other = await begin(store, *chain("a", "b")), await begin(store, *chain("a", "b"))
    await add_one(store)
    assert (await store.reprioritise(Filter(flows=(one,)), 7)).count == 2
    assert {job.priority for job in (await steps_of(store, one)).values()} == {7}
    assert {job.priority for job in (await steps_of(store, other)).values()} == {0}


async def test_waiting_steps_are_found_by_their_state(store: Store) -> None:
    flow = await begin(store, *chain("a", "b"))
    await add_one(store)
    [job] = (await store.find(Filter(states=(WAITING,)))).jobs
    assert (job.flow, job.step) == (flow, "b")
    assert (await store.find(Filter(states=(WAITING,), flows=(new_id(),)))).jobs == ()


async def test_waiting_steps_are_counted_in_their_queue(store: Store, lab: Lab) -> None:
    await begin(store, step("a", queue="one"), step("b", "a", queue="one"), step("c", "a", queue="two"))
    one, two = await store.counts()
    assert (one.queue, two.queue) == ("one", "two")
    assert one.states == {**dict.fromkeys(State, 0), QUEUED: 1, WAITING: 1}
    assert two.states == {**dict.fromkeys(State, 0), WAITING: 1}
    assert (one.scheduled, one.oldest_due, two.scheduled, two.oldest_due) == (0, lab.now, 0, None)


async def test_a_waiting_step_that_is_not_due_is_not_counted_as_scheduled(store: Store, lab: Lab) -> None:
    await begin(store, step("a"), step("b", "a", run_at=lab.now + SECOND))
    [queue] = await store.counts()
    assert queue.scheduled == 0


async def test_an_unknown_flow_is_none(store: Store) -> None:
    job = await add_one(store)
    assert await store.flow(new_id()) is None
    assert await store.flow(job) is None


async def test_flows_are_listed_newest_first_page_by_page(store: Store) -> None:
    ids = [await begin(store, step("a")) for _ in range(7)]
    pages: list[FlowPage] = [await store.flows(limit=3)]
    while (after := pages[-1].after) is not None:
        pages.append(await store.flows(after=after, limit=3))
    assert [len(page.flows) for page in pages] == [3, 3, 1]
    assert [flow.id for page in pages for flow in page.flows] == ids[::-1]
    assert [flow for page in pages for flow in page.flows] == [await store.flow(id) for id in ids[::-1]]


async def test_flows_of_one_page_have_nothing_behind_them(store: Store) -> None:
    ids = [await begin(store, step("a")) for _ in range(3)]
    assert (await store.flows(limit=3)).after is None
    assert (await store.flows(limit=2)).after == ids[1]


async def test_flows_started_out_of_order_are_listed_by_id(store: Store) -> None:
    made = [flow_of(step("a")) for _ in range(4)]
    for flow in (made[2], made[0], made[3], made[1]):
        await store.start(flow)
    listed = [flow.id for flow in (await store.flows()).flows]
    assert listed == [flow.id for flow in made[::-1]]
    assert all(newer > older for newer, older in pairwise(listed))


async def test_flows_are_found_by_their_states(store: Store) -> None:
    good, bad, running = [await begin(store, step("a")) for _ in range(3)]
    ends: list[Any] = [Succeeded(), Failed("boom")]
    for outcome in ends:
        claim = await take_one(store)
        await store.settle([claim.settled(outcome)])

    async def listed(*wanted: FlowState) -> list[UUID]:
        return [flow.id for flow in (await store.flows(wanted)).flows]

    assert await listed(FlowState.SUCCEEDED) == [good]
    assert await listed(FlowState.FAILED) == [bad]
    assert await listed(FlowState.RUNNING) == [running]
    assert await listed(FlowState.RUNNING, FlowState.SUCCEEDED) == [running, good]
    assert await listed(FlowState.CANCELLED) == await listed() == []
    assert len((await store.flows()).flows) == 3


async def test_pages_of_some_states_skip_the_others(store: Store) -> None:
    ids = [await begin(store, step("a", queue=str(n % 2))) for n in range(6)]
    for claim in await take(store, queue="0", lease=LEASE):
        await store.settle([claim.settled(Succeeded())])
    page = await store.flows([FlowState.RUNNING], limit=2)
    assert ([flow.id for flow in page.flows], page.after) == ([ids[5], ids[3]], ids[3])
    page = await store.flows([FlowState.RUNNING], after=page.after, limit=2)
    assert ([flow.id for flow in page.flows], page.after) == ([ids[1]], None)


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "5"])
async def test_a_bad_limit_of_flows_is_refused(store: Store, limit: Any) -> None:
    with pytest.raises(Refused, match="limit"):
        await store.flows(limit=limit)


async def test_flows_in_an_unknown_state_are_refused(store: Store) -> None:
    with pytest.raises(Refused, match="state must be one of running, succeeded, failed, cancelled"):
        await store.flows([FlowState.RUNNING, "waiting"])  # type: ignore[list-item]


async def test_the_times_of_a_flow_have_a_zone(store: Store) -> None:
    flow = await begin(store, step("a"))
    await run_steps(store, "a")
    found = await shown(store, flow)
    assert isinstance(found.finished_at, datetime)
    assert (found.created_at.tzinfo, found.finished_at.tzinfo) == (UTC, UTC)


async def test_a_deleted_step_is_gone_from_its_flow(store: Store) -> None:
    flow = await begin(store, step("a"), step("b"))
    await run_steps(store, "a", "b")
    await store.delete(only((await steps_of(store, flow))["a"].id))
    assert list(await steps_of(store, flow)) == ["b"]
    assert (await shown(store, flow)).steps[State.SUCCEEDED] == 1
