"""Flows: several jobs that belong together, where some need the results of others."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from dibs.attempt import ADDED_BY
from dibs.errors import FlowCancelled, FlowFailed, FlowUnknown, Refused
from dibs.handle import OpenStore, look_until
from dibs.ids import new_id
from dibs.job import FINISHED, Filter, Flow, FlowState, Job, NewFlow, NewJob, NewStep, OnFailure, State
from dibs.planning import Needs, Steps, check
from dibs.signals import Delay
from dibs.store import CHUNK, Store

_NAMED = 3
"""Of so many failed steps an error tells the reasons."""


class FlowPlan:
    """A flow in the making: add steps, then ``start`` it. Nothing is stored before, and then all of it at once."""

    def __init__(self, name: str, store: OpenStore, on_failure: OnFailure, meta: dict[str, Any]) -> None:
        self.id = new_id()
        """Which flow this becomes."""
        self.name = name
        self._steps = Steps()
        self._started = False
        self._store = store
        self._on_failure = on_failure
        self._meta = meta

    def step(self, name: str, job: NewJob, *, needs: Needs = ()) -> str:
        """Add a step: ``plan.step("parse", parse.job(), needs=["fetch"])``; answers its name.

        It runs when all that it needs has succeeded, and finds their results in ``dibs.current().inputs``. A need
        may be added later. How it runs is said by its job: ``parse.options(queue="slow", max_attempts=2).job()``.
        """
        if self._started:
            raise Refused(f"flow {self.name!r} was started: more steps are added by a step, dibs.current().add_step(…)")
        self._steps.add(name, job, needs)
        return name

    def sequential(self, *jobs: NewJob, needs: Needs = ()) -> list[str]:
        """Add jobs that run one after the other; the first one needs ``needs``. Answers their names.

        Each is named after its task, with a number behind it from the second of the same task on.
        """
        names: list[str] = []
        for job in jobs:
            names.append(self.step(self._steps.name_for(job), job, needs=names[-1] if names else needs))
        return names

    def parallel(self, *jobs: NewJob, needs: Needs = ()) -> list[str]:
        """Add jobs that run side by side; each of them needs ``needs``. Answers their names, made as above."""
        needed = needs if isinstance(needs, str) else tuple(needs)
        return [self.step(self._steps.name_for(job), job, needs=needed) for job in jobs]

    def value(self) -> NewFlow:
        """The flow as ``start`` would store it, checked: for ``dibs.transaction.start_in`` and ``Store.start``."""
        steps = self._steps.all
        check(self.name, steps)
        return NewFlow(name=self.name, steps=steps, on_failure=self._on_failure, meta=self._meta, id=self.id)

    async def start(self) -> "FlowHandle":
        """Store the flow with all of its steps; those without needs can run at once.

        Refused, and nothing stored, if a step needs what is no step, or if steps need each other in a circle. Starting
        the same plan again, when an answer got lost, starts nothing twice.
        """
        sent = await (await self._store()).start(self.value())
        self._started = True
        return FlowHandle(sent.id, sent.created, self._store)

    @property
    def steps(self) -> tuple[NewStep, ...]:
        """What was added so far, in order."""
        return self._steps.all

    def __repr__(self) -> str:
        return f"<plan of flow {self.name}>"


class FlowHandle:
    """Names one flow; asks the store when asked. Two handles of the same flow are equal."""

    __slots__ = ("_store", "created", "id")

    def __init__(self, id: UUID, created: bool, store: OpenStore) -> None:
        self.id = id
        self.created = created
        """False if the flow was there already."""
        self._store = store

    # --- looking --------------------------------------------------------------------------------------------

    async def flow(self) -> Flow | None:
        """The flow as it is now; None if there is none (any more)."""
        return await (await self._store()).flow(self.id)

    async def steps(self) -> dict[str, Job]:
        """Its steps by name, as they are now, those that were made first first."""
        found = await _steps(await self._store(), self.id)
        return {job.step or str(job.id): job for job in reversed(found)}

    async def progress(self) -> float:
        """How many of its steps have ended, from 0 to 1. It falls when a step adds others."""
        flow = await self._known()
        return sum(flow.steps[state] for state in FINISHED) / sum(flow.steps.values())

    async def result(self, timeout: Delay | None = None) -> dict[str, Any]:
        """Wait until the flow has ended, and give the results of its steps by name, as JSON.

        ``task.result_from`` makes the type of one that its task's annotation says. Raises ``FlowFailed`` or
        ``FlowCancelled``, each with the flow and its steps; ``FlowUnknown`` if there is no such flow; and
        ``TimeoutError`` after ``timeout`` (a timedelta or seconds; None waits for ever), while the flow goes on.
        """
        flow = await self.ended(timeout)
        steps = await self.steps()
        if flow.state is FlowState.SUCCEEDED:
            return {name: job.result for name, job in steps.items()}
        if flow.state is FlowState.CANCELLED:
            raise FlowCancelled(f"flow {flow.id} ({flow.name}) was cancelled", flow, steps)
        raise FlowFailed(f"flow {flow.id} ({flow.name}) failed: {_reasons(steps)}", flow, steps)

    async def ended(self, timeout: Delay | None = None) -> Flow:
        """Wait until its last step has ended, in whatever way, and give the flow."""
        return await look_until(
            self._known,
            lambda flow: flow.finished_at is not None,
            timeout,
            lambda flow: f"flow {self.id} ({flow.name}) has {_unfinished(flow)} unfinished steps",
        )

    async def _known(self) -> Flow:
        found = await self.flow()
        if found is None:
            raise FlowUnknown(f"there is no flow {self.id}: it never was, or its jobs were deleted or pruned")
        return found

    # --- changing -------------------------------------------------------------------------------------------

    async def cancel(self, *, force: bool = False) -> bool:
        """Cancel all steps that have not ended: at once those that have not started; running ones are asked.

        With ``force`` running ones are cut off, too. False if the flow had ended already.
        """
        store, after, found = await self._store(), None, False
        while True:
            changed = await store.cancel(Filter(flows=(self.id,)), force=force, after=after)
            found, after = found or changed.count > 0, changed.after
            if after is None:
                return found

    async def retry(self) -> int:
        """Run again what failed or was cancelled; what succeeded stays as it is. Answers how many steps."""
        return await self._requeue(Filter(flows=(self.id,), states=(State.FAILED, State.CANCELLED)))

    async def restart(self) -> int:
        """Run the whole flow again, from its first step. Answers how many steps; Refused if it has not ended.

        Steps that other steps had added are removed: whoever added them will do so again.
        """
        flow = await self._known()
        if flow.finished_at is None:
            raise Refused(f"flow {self.id} ({flow.name}) has not ended: cancel it first, or wait for its end")
        store = await self._store()
        added = [job.id for job in (await self.steps()).values() if ADDED_BY in job.meta]
        for at in range(0, len(added), CHUNK):
            await store.delete(Filter(ids=tuple(added[at : at + CHUNK])))
        return await self._requeue(Filter(flows=(self.id,)))

    async def _requeue(self, which: Filter) -> int:
        store, count, after = await self._store(), 0, None
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


def needed(step: Job, steps: Mapping[str, Job]) -> dict[str, Job]:
    """What a step needs, by name, of the steps of its flow that are there.

    A need is on the job that was there when the step was stored, and no later one of its name: that was made after the
    step. (If the store's clock was set back between the two, what is shown of a flow may be wrong, nothing else.)
    """
    found = {name: steps[name] for name in step.needs if name in steps}
    return {name: need for name, need in found.items() if need.created_at <= step.created_at}


async def _steps(store: Store, flow: UUID) -> list[Job]:
    which, found, after = Filter(flows=(flow,)), list[Job](), None
    while True:
        page = await store.find(which, after, CHUNK)
        found += page.jobs
        after = page.after
        if after is None:
            return found


def _reasons(steps: dict[str, Job]) -> str:
    failed = [f"{name}: {_reason(job)}" for name, job in steps.items() if job.state is State.FAILED]
    more = f"; and {len(failed) - _NAMED} more steps" if len(failed) > _NAMED else ""
    return "; ".join(failed[:_NAMED]) + more


def _reason(job: Job) -> str:
    return job.errors[-1].error.partition("\n")[0] if job.errors else "no reason was given"


def _unfinished(flow: Flow) -> int:
    return sum(count for state, count in flow.steps.items() if state not in FINISHED)
