"""What the tests about flows are written with."""

from typing import Any
from uuid import UUID

from dibs.job import Claim, Filter, Flow, FlowState, Job, NewFlow, NewJob, NewStep, QueueCounts, State, WorkerInfo
from dibs.outcome import Outcome, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import end, picture, take

WAITING, QUEUED, RUNNING = State.WAITING, State.QUEUED, State.RUNNING
SUCCEEDED, FAILED, CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED


def step(name: str, *needs: str, **fields: Any) -> NewStep:
    """A step that needs those."""
    return NewStep(name=name, job=NewJob(**{"task": "send", **fields}), needs=needs)


def chain(*names: str, **fields: Any) -> tuple[NewStep, ...]:
    """Each step needs the one before it."""
    before = ((), *((name,) for name in names))
    return tuple(step(name, *needs, **fields) for name, needs in zip(names, before, strict=False))


def diamond(**fields: Any) -> tuple[NewStep, ...]:
    """``a``, then ``b`` and ``c``, then ``d``."""
    return step("a", **fields), step("b", "a", **fields), step("c", "a", **fields), step("d", "b", "c", **fields)


def flow_of(*steps: NewStep, **fields: Any) -> NewFlow:
    """A flow to start."""
    return NewFlow(**{"name": "order", "steps": steps, **fields})


async def begin(store: Store, *steps: NewStep, **fields: Any) -> UUID:
    """Start a flow of these steps; its id."""
    new = flow_of(*steps, **fields)
    answer = await store.start(new)
    assert (answer.id, answer.created) == (new.id, True)
    return new.id


async def shown(store: Store, flow: UUID) -> Flow:
    """The flow, which must be there."""
    found = await store.flow(flow)
    assert found is not None, f"the store lost flow {flow}"
    return found


async def flow_state(store: Store, flow: UUID) -> FlowState:
    """Where the flow stands."""
    return (await shown(store, flow)).state


async def steps_of(store: Store, flow: UUID) -> dict[str, Job]:
    """The jobs of the flow, by the names of their steps."""
    page = await store.find(Filter(flows=(flow,)), limit=10_000)
    return {job.step or "": job for job in page.jobs}


async def states(store: Store, flow: UUID) -> dict[str, State]:
    """Where each of the steps stands."""
    return {name: job.state for name, job in sorted((await steps_of(store, flow)).items())}


async def take_steps(store: Store, limit: int = 100, **options: Any) -> dict[str, Claim]:
    """Claim all that is due, by the names of the steps."""
    return {claim.step or "": claim for claim in await take(store, limit, **options)}


async def run_steps(store: Store, *names: str, outcome: Outcome | None = None) -> None:
    """Claim these steps, all that are due, and end them one by one."""
    claims = await take_steps(store)
    assert sorted(claims) == sorted(names)
    for name in names:
        assert await end(store, claims[name], outcome or Succeeded(name)) is Verdict.ACCEPTED


def just(*jobs: Job | Claim) -> Filter:
    """A filter for these steps."""
    return Filter(ids=tuple(job.id for job in jobs))


def whole(flow: UUID) -> Filter:
    """A filter for all steps of the flow."""
    return Filter(flows=(flow,))


Panorama = tuple[tuple[list[Job], list[QueueCounts], list[WorkerInfo]], tuple[Flow, ...]]


async def panorama(store: Store) -> Panorama:
    """All that can be seen of a store, and its flows."""
    return await picture(store), (await store.flows(limit=10_000)).flows
