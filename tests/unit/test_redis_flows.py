"""What is special about flows in Redis. What they share with those of other stores is in the contract suite."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import StoreUnavailable
from dibs.job import Claim, Filter, Flow, FlowState, Job, NewFlow, NewJob, NewStep, OnFailure, Retention, State
from dibs.outcome import Failed, Retry, Succeeded, Verdict
from dibs.stores.redis import RedisStore
from dibs.testing.labs.redis import RedisLab
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.servers import RedisServer

LEASE = timedelta(seconds=60)
LARGEST = 10_000
AT_ONCE = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
async def store(request: pytest.FixtureRequest, redis_database: DatabaseFactory) -> AsyncIterator[RedisStore]:
    """An empty store on each kind of server."""
    made = RedisStore(redis_database(request.param))
    await made.setup()
    yield made
    await made.close()


@pytest.fixture(params=["script", "watch"])
async def lab(request: pytest.FixtureRequest, redis_database: DatabaseFactory) -> AsyncIterator[RedisLab]:
    """Each way of claiming, on a clock that the test owns."""
    made = RedisLab(redis_database(REDIS_LABELS[-1]), request.param)
    await made.start()
    yield made
    await made.stop()


def step(name: str, *needs: str, **fields: Any) -> NewStep:
    return NewStep(name=name, needs=needs, job=NewJob(task="t", args={"step": name}, **fields))


def diamond(**fields: Any) -> NewFlow:
    steps = (step("top"), step("left", "top"), step("right", "top"), step("bottom", "left", "right"))
    return NewFlow(name="diamond", steps=steps, **fields)


def fan_out(width: int, **fields: Any) -> NewFlow:
    return NewFlow(name="fan", steps=(step("root"), *(step(f"s{n}", "root") for n in range(width))), **fields)


async def take(store: Any, limit: int = 10) -> list[Claim]:
    claims: list[Claim] = await store.claim("default", "w", limit, LEASE)
    return claims


async def succeed(store: Any, *claims: Claim, result: Any = None) -> None:
    assert set(await store.settle([claim.settled(Succeeded(result)) for claim in claims])) == {Verdict.ACCEPTED}


async def steps_of(store: Any, flow: NewFlow) -> dict[str | None, Job]:
    return {job.step: job for job in (await store.find(Filter(flows=(flow.id,)), limit=LARGEST)).jobs}


async def flow_of(store: Any, flow: NewFlow) -> Flow:
    found: Flow | None = await store.flow(flow.id)
    assert found is not None
    return found


async def ask(store: RedisStore, *command: str | bytes | int) -> Any:
    [answer] = await store._link.exchange(command)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def commands_of(store: RedisStore) -> int:
    """How many commands the server has run since the last look."""
    stats = await ask(store, "INFO", "commandstats")
    await ask(store, "CONFIG", "RESETSTAT")
    return sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in stats.split() if b"calls=" in line)


# --- keys ---------------------------------------------------------------------------------------


async def _run_diamond(store: RedisStore) -> NewFlow:
    """One that has left every kind of key: inputs, results, errors, added steps, a meta."""
    flow = diamond(meta={"a": 1}, on_failure=OnFailure.CONTINUE)
    await store.start(flow)
    [top] = await take(store)
    await store.settle([top.settled(Succeeded({"r": 1}, steps=(step("more", "top"), step("last", "more"))))])
    left, right, more = await take(store)
    await store.settle([left.settled(Failed("e")), right.settled(Succeeded(2)), more.settled(Retry("e"))])
    return flow


async def test_every_key_of_a_flow_is_in_one_slot(store: RedisStore) -> None:
    await _run_diamond(store)
    keys = await ask(store, "KEYS", "*")
    assert {key.split(b":")[1] for key in keys} >= {b"g", b"s", b"d", b"n", b"i", b"flows", b"w"}
    assert all(key.startswith(b"{dibs}:") for key in keys)


@pytest.mark.parametrize("limit", [1, 1000])
async def test_a_deleted_flow_leaves_no_key_behind(store: RedisStore, limit: int) -> None:
    flow = await _run_diamond(store)
    while (await store.delete(Filter(flows=(flow.id,)), force=True, limit=limit)).after is not None:
        pass
    await store.prune(Retention())
    assert await store.flow(flow.id) is None
    assert await ask(store, "KEYS", "*") == [b"{dibs}:layout"]


@pytest.mark.parametrize("limit", [1, 1000])
async def test_a_pruned_flow_leaves_no_key_behind(store: RedisStore, limit: int) -> None:
    flow = await _run_diamond(store)
    await store.cancel(Filter(flows=(flow.id,)), force=True)
    assert (await flow_of(store, flow)).state is FlowState.FAILED
    while await store.prune(AT_ONCE, limit=limit):
        pass
    assert await store.flow(flow.id) is None
    assert await ask(store, "KEYS", "*") == [b"{dibs}:layout"]


@pytest.mark.parametrize("limit", [1, 1000])
async def test_a_step_that_is_removed_is_neither_needed_nor_needs_others(store: RedisStore, limit: int) -> None:
    flow = fan_out(5)
    await store.start(flow)
    ids = {each.name: each.job.id for each in flow.steps}
    which = Filter(ids=tuple(ids[name] for name in ("s1", "s3")))
    await store.cancel(Filter(flows=(flow.id,)))
    after = None
    while (after := (await store.delete(which, limit=limit, after=after)).after) is not None:
        pass
    links = f"{{dibs}}:d:{flow.id.hex}"
    kept = "".join(ids[name].hex for name in ("s0", "s2", "s4"))
    assert await ask(store, "HGETALL", links) == [b"root", kept.encode()]
    await store.delete(Filter(ids=(ids["root"],)))
    assert await ask(store, "EXISTS", links) == 0


async def test_a_requeued_flow_forgets_what_its_steps_were_given(store: RedisStore) -> None:
    flow = diamond()
    await store.start(flow)
    while claims := await take(store):
        await succeed(store, *claims, result="r")
    assert len(await ask(store, "KEYS", "{dibs}:i:*")) == 3
    assert (await store.requeue(Filter(flows=(flow.id,)))).count == 4
    assert await ask(store, "KEYS", "{dibs}:[ir]:*") == []


# --- two moves in one script --------------------------------------------------------------------


async def test_a_step_that_is_released_and_cancelled_by_one_call_is_cancelled(store: RedisStore) -> None:
    flow = NewFlow(name="f", steps=(step("a"), step("b"), step("c", "a")))
    await store.start(flow)
    a, b = await take(store)
    await store.settle([a.settled(Succeeded()), b.settled(Failed("e"))])
    assert (await steps_of(store, flow))["c"].state is State.CANCELLED
    assert await take(store) == []
    [counts] = await store.counts()
    assert (counts.states[State.QUEUED], counts.states[State.WAITING], counts.states[State.CANCELLED]) == (0, 0, 1)
    assert (await flow_of(store, flow)).finished_at is not None


async def test_added_steps_are_cancelled_by_a_failure_in_the_same_call(store: RedisStore) -> None:
    flow = NewFlow(name="f", steps=(step("a"), step("b")))
    await store.start(flow)
    a, b = await take(store)
    adding = Succeeded(1, steps=(step("c", "a"), step("d", "c"), step("e")))
    assert await store.settle([a.settled(adding), b.settled(Failed("e"))]) == [Verdict.ACCEPTED] * 2
    found = await flow_of(store, flow)
    assert (found.state, found.steps[State.CANCELLED]) == (FlowState.FAILED, 3)
    assert found.finished_at is not None
    assert await take(store) == []


# --- a claim that ends a step -------------------------------------------------------------------


async def test_a_claim_that_fails_a_step_passes_those_that_it_cancels(lab: RedisLab) -> None:
    store = await lab.open()
    flow = NewFlow(name="f", steps=(step("a", max_attempts=1), step("b"), step("c", "a")))
    await store.start(flow)
    await store.enqueue([plain := NewJob(task="t")])
    await take(store, 1)
    await lab.advance(120)
    assert [claim.id for claim in await take(store, 2)] == [plain.id]
    found = await steps_of(store, flow)
    assert {name: job.state for name, job in found.items()} == {
        "a": State.FAILED,
        "b": State.CANCELLED,
        "c": State.CANCELLED,
    }
    assert [error.error for error in found["a"].errors] == ["lease expired"]
    assert (await flow_of(store, flow)).state is FlowState.FAILED


async def test_those_claimed_before_a_step_that_the_claim_fails_are_asked(lab: RedisLab) -> None:
    store = await lab.open()
    flow = NewFlow(name="f", steps=(step("a", max_attempts=1, priority=5), step("b"), step("c", priority=9)))
    await store.start(flow)
    claims = {claim.step: claim for claim in await take(store)}
    await store.settle([claims["b"].settled(Retry("e")), claims["c"].settled(Retry("e"))])
    await lab.advance(120)
    assert [claim.step for claim in await take(store)] == ["b"]
    found = await steps_of(store, flow)
    assert (found["b"].state, found["b"].cancel_asked) == (State.RUNNING, True)
    assert found["c"].state is State.CANCELLED


# --- waking -------------------------------------------------------------------------------------


async def test_a_released_step_wakes_who_waits_for_its_queue(store: RedisStore) -> None:
    await store.start(NewFlow(name="f", steps=(step("a"), step("b", "a", queue="other"))))
    [claim] = await take(store)
    waiting = asyncio.create_task(store.wait(["other"], timedelta(seconds=30)))
    async with asyncio.timeout(10):
        while not await ask(store, "SISMEMBER", "{dibs}:sleeping", "other"):
            pass
        await succeed(store, claim)
        assert await waiting == {"other"}
    # Who finds work by looking every second leaves the mark to whoever brings some.
    assert not await ask(store, "SISMEMBER", "{dibs}:sleeping", "other")


# --- memory -------------------------------------------------------------------------------------


async def test_with_memory_full_no_flow_starts_and_those_that_run_go_on(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url())
    flow = diamond()
    await store.start(flow)
    [top] = await take(store)
    await ask(store, "CONFIG", "SET", "maxmemory", "1")
    before = sorted(await ask(store, "KEYS", "*"))
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await store.start(diamond())
    assert sorted(await ask(store, "KEYS", "*")) == before
    await succeed(store, top, result="r" * 999)
    left, right = await take(store)
    assert left.inputs == {"top": "r" * 999}
    await store.settle([right.settled(Succeeded(1, steps=(step("more", "right"),))), left.settled(Failed("e"))])
    assert (await flow_of(store, flow)).state is FlowState.FAILED
    assert (await store.requeue(Filter(flows=(flow.id,)))).count == 5
    await store.close()


# --- size ---------------------------------------------------------------------------------------


async def test_a_settle_in_a_large_flow_costs_as_much_as_in_a_small_one(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url())
    costs = []
    for width in (10, LARGEST - 1):
        await store.start(fan_out(width))
        await succeed(store, *await take(store, 1))
        claims = await take(store, 5)
        await commands_of(store)
        await store.settle([claims[0].settled(Retry("e", timedelta(hours=1)))])
        await succeed(store, *claims[1:])
        costs.append(await commands_of(store))
        await store.cancel(Filter(queues=("default",)), force=True, limit=LARGEST)
    assert costs[0] == costs[1]
    await store.close()


async def test_a_bulk_verb_counts_what_matched_when_it_began_though_it_takes_several_scripts(
    store: RedisStore,
) -> None:
    """Cancelling the first step cancels all others, and every one of them was asked for."""
    flow = fan_out(1_299)
    await store.start(flow)
    changed = await store.cancel(Filter(queues=("default",)), limit=1_200)
    assert (changed.count, changed.after is None) == (1_200, False)
    assert (await flow_of(store, flow)).steps[State.CANCELLED] == 1_300
    assert (await store.requeue(Filter(flows=(flow.id,)), limit=LARGEST)).count == 1_300
    waiting = Filter(queues=("default",), states=(State.WAITING,))
    assert (await store.delete(waiting, limit=LARGEST)).count == 1_299
    assert (await flow_of(store, flow)).steps[State.CANCELLED] == 1


async def test_many_flows_are_listed_in_several_scripts(store: RedisStore) -> None:
    made = [NewFlow(name="f", steps=(step("a"),)) for _ in range(230)]
    for flow in made:
        await store.start(flow)
    await store.cancel(Filter(flows=(made[3].id, made[200].id)))
    page = await store.flows(limit=220)
    assert [flow.id for flow in page.flows] == [flow.id for flow in reversed(made[10:])]
    assert page.after == made[10].id
    rest = await store.flows(after=page.after)
    assert ([flow.id for flow in rest.flows], rest.after) == ([flow.id for flow in reversed(made[:10])], None)
    cancelled = await store.flows([FlowState.CANCELLED])
    assert [flow.id for flow in cancelled.flows] == [made[200].id, made[3].id]
