"""Flows: several jobs that belong together, where some need the results of others."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from dibs.errors import FlowCancelled, FlowFailed, FlowUnknown, Refused
from dibs.handle import OpenStore
from dibs.job import (
    FINISHED,
    Filter,
    Flow,
    FlowState,
    Job,
    NewFlow,
    NewJob,
    NewStep,
    OnFailure,
    State,
)
from dibs.signals import Delay
from dibs.store import Store

_FIRST_LOOK, _LAST_LOOK, _SLOWER = 0.005, 0.5, 1.5
_PAGE = 1_000


class FlowPlan:
    """A flow in the making: add steps, then ``start`` it. Nothing is stored before, and then all of it at once."""

    def __init__(self, name: str, store: OpenStore, on_failure: OnFailure, meta: dict[str, Any]) -> None:
        self.name = name
        self.steps: list[NewStep] = []
        self._store = store
        self._on_failure = on_failure
        self._meta = meta

    def step(self, name: str, job: NewJob, *, needs: Iterable[str] = ()) -> str:
        """Add a step: ``plan.step("parse", parse.job(), needs=["fetch"])``; answers its name.

        It runs when all that it needs has succeeded. Its handler finds their results in ``dibs.current().inputs``.
        """
        needed = _names(needs)
        known = {each.name for each in self.steps}
        if name in known:
            raise Refused(f"the flow {self.name!r} has a step {name!r} already: give each another name")
        self.steps.append(NewStep(name=name, job=job, needs=needed))
        return name

    def sequential(self, *jobs: NewJob, needs: Iterable[str] = ()) -> list[str]:
        """Add jobs that run one after the other; the first one needs ``needs``. Answers their names."""
        names: list[str] = []
        needed = _names(needs)
        for job in jobs:
            names.append(self.step(self._name_for(job), job, needs=needed))
            needed = (names[-1],)
        return names

    def parallel(self, *jobs: NewJob, needs: Iterable[str] = ()) -> list[str]:
        """Add jobs that run side by side; each of them needs ``needs``. Answers their names."""
        needed = _names(needs)
        return [self.step(self._name_for(job), job, needs=needed) for job in jobs]

    def _name_for(self, job: NewJob) -> str:
        known = {each.name for each in self.steps}
        name, number = job.task, 2
        while name in known:
            name, number = f"{job.task}-{number}", number + 1
        return name

    def new(self) -> NewFlow:
        """The flow as a value, for ``Store.start`` and ``dibs.transaction``."""
        return NewFlow(name=self.name, steps=tuple(self.steps), on_failure=self._on_failure, meta=self._meta)

    async def start(self) -> "FlowHandle":
        """Store the flow with all of its steps; those without needs can run at once."""
        new = self.new()
        sent = await (await self._store()).start(new)
        return FlowHandle(sent.id, self._store)


def _names(needs: Iterable[str]) -> tuple[str, ...]:
    if isinstance(needs, str):
        raise Refused(f"needs must be a list of names of steps, not one string: needs=[{needs!r}]")
    return tuple(needs)


class FlowHandle:
    """Names one flow; asks the store when asked."""

    __slots__ = ("_store", "id")

    def __init__(self, id: UUID, store: OpenStore) -> None:
        self.id = id
        self._store = store

    async def flow(self) -> Flow | None:
        """The flow as it is now; None if there is none (any more)."""
        return await (await self._store()).flow(self.id)

    async def steps(self) -> dict[str, Job]:
        """Its steps by name, as they are now."""
        store = await self._store()
        return {job.step or str(job.id): job for job in reversed(await _steps(store, self.id))}

    async def progress(self) -> float:
        """How much of it has ended, from 0 to 1."""
        flow = await self._known()
        total = sum(flow.steps.values())
        return sum(flow.steps.get(state, 0) for state in FINISHED) / total if total else 1.0

    async def result(self, timeout: Delay | None = None) -> dict[str, Any]:
        """Wait until the flow has ended, and give the results of its steps by name, as JSON.

        Raises ``FlowFailed`` or ``FlowCancelled``, each with the flow and its steps; ``FlowUnknown`` if there is none;
        and ``TimeoutError`` after ``timeout``, while the flow goes on.
        """
        flow = await self.ended(timeout)
        steps = await self.steps()
        if flow.state is FlowState.SUCCEEDED:
            return {name: job.result for name, job in steps.items()}
        if flow.state is FlowState.CANCELLED:
            raise FlowCancelled(f"flow {flow.id} ({flow.name}) was cancelled", flow, steps)
        failed = [f"{name}: {_reason(job)}" for name, job in steps.items() if job.state is State.FAILED]
        raise FlowFailed(f"flow {flow.id} ({flow.name}) failed: {'; '.join(failed[:3])}", flow, steps)

    async def ended(self, timeout: Delay | None = None) -> Flow:
        """Wait until its last step has ended, in whatever way, and give the flow."""
        loop = asyncio.get_running_loop()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        deadline = None if seconds is None else loop.time() + seconds
        pause = _FIRST_LOOK
        while (flow := await self._known()).finished_at is None:
            left = pause if deadline is None else deadline - loop.time()
            if left <= 0:
                raise TimeoutError(f"flow {self.id} ({flow.name}) has not ended after {seconds:g} s; it goes on")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * _SLOWER, _LAST_LOOK)
        return flow

    async def cancel(self, *, force: bool = False) -> int:
        """Cancel all steps that have not ended; running ones are asked, or with ``force`` cut off. Answers how many."""
        return await self._change(force=force)

    async def retry(self) -> int:
        """Run again what failed or was cancelled, and what needs it; what succeeded stays. Answers how many steps."""
        return await self._requeue((State.FAILED, State.CANCELLED))

    async def restart(self) -> int:
        """Run the whole flow again. Steps that run now are left to end. Answers how many steps."""
        return await self._requeue(None)

    async def _known(self) -> Flow:
        found = await self.flow()
        if found is None:
            raise FlowUnknown(f"there is no flow {self.id}: it never was, or its jobs were deleted or pruned")
        return found

    async def _change(self, *, force: bool) -> int:
        store, which, count, after = await self._store(), Filter(flows=(self.id,)), 0, None
        while True:
            changed = await store.cancel(which, force=force, after=after)
            count, after = count + changed.count, changed.after
            if after is None:
                return count

    async def _requeue(self, states: tuple[State, ...] | None) -> int:
        store, which, count, after = await self._store(), Filter(flows=(self.id,), states=states), 0, None
        while True:
            changed = await store.requeue(which, after=after)
            count, after = count + changed.count, changed.after
            if after is None:
                return count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"FlowHandle({str(self.id)!r})"


async def _steps(store: Store, flow: UUID) -> list[Job]:
    which = Filter(flows=(flow,))
    page = await store.find(which, limit=_PAGE)
    found = list(page.jobs)
    while page.after is not None:
        page = await store.find(which, after=page.after, limit=_PAGE)
        found += page.jobs
    return found


def _reason(job: Job) -> str:
    return job.errors[-1].error if job.errors else "no reason was given"
