"""Flows in memory: what follows from the end of a step. The other stores have to come to the same."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import Clock
from dibs.errors import Refused
from dibs.job import (
    FINISHED,
    NOT_STARTED,
    Enqueued,
    Flow,
    FlowPage,
    FlowState,
    NewFlow,
    OnFailure,
    State,
)
from dibs.limits import AdmittedFlow, AdmittedStep, Limits, Settled
from dibs.stores.memory.records import Record

NULL = "null"


class FlowRecord(msgspec.Struct):
    """One flow. Its steps by name, as far as they are still there, and by the name of each of them those that need it.

    A need is on the job that was there when the step was stored: with that job it goes from ``needed_by``, and a later
    step of its name is needed by nobody but those that came with it.
    """

    id: UUID
    name: str
    on_failure: OnFailure
    created_at: datetime
    meta: str
    state: FlowState = FlowState.RUNNING
    finished_at: datetime | None = None
    steps: dict[str, Record] = {}
    needed_by: dict[str, dict[UUID, Record]] = {}

    def add(self, step: Record) -> None:
        assert step.step is not None
        self.steps[step.step] = step
        for need in step.needs:
            self.needed_by.setdefault(need, {})[step.id] = step

    def forget(self, step: Record) -> None:
        """The step is gone, and so is the need of those that needed it."""
        assert step.step is not None
        del self.steps[step.step]
        self.needed_by.pop(step.step, None)

    def needed(self, step: Record) -> dict[str, Record | None]:
        """What this step needs, by name; None for what is gone."""
        return {name: self.steps[name] if step.id in self.needed_by.get(name, ()) else None for name in step.needs}

    def waiting_for(self, name: str | None) -> list[Record]:
        """The waiting steps that need this one."""
        return [step for step in self.needed_by.get(name or "", {}).values() if step.state is State.WAITING]

    def behind(self, name: str | None) -> Iterator[Record]:
        """The waiting steps that need this one, or one that does, and so on. Each must be ended when it is given."""
        names = [name]
        for one in names:
            for step in self.waiting_for(one):
                names.append(step.step)
                yield step

    def as_flow(self) -> Flow:
        states = dict.fromkeys(State, 0)
        for step in self.steps.values():
            states[step.state] += 1
        return Flow(
            id=self.id,
            name=self.name,
            state=self.state,
            on_failure=self.on_failure,
            created_at=self.created_at,
            finished_at=self.finished_at,
            steps=states,
            meta=msgspec.json.decode(self.meta),
        )


class FlowVerbs(ABC):
    """``start``, ``flow``, ``flows``, and what the other verbs have to do when their job is a step."""

    _clock: Clock
    _limits: Limits
    _lock: threading.Lock
    _jobs: dict[UUID, Record]
    _flows: dict[UUID, FlowRecord]

    @abstractmethod
    def _store(self, record: Record) -> None:
        """Keep a new job."""

    @abstractmethod
    def _put_back(self, record: Record, run_at: datetime) -> None:
        """The job is queued, due at that time."""

    @abstractmethod
    def _close(self, record: Record, state: State, now: datetime) -> None:
        """The job is finished."""

    @abstractmethod
    def _ask(self, record: Record) -> None:
        """The job is to end; its owner, if it has one, learns of it."""

    @abstractmethod
    def _cancel(self, record: Record, now: datetime, *, force: bool) -> None:
        """End the job, or, unless forced to, ask its owner; with all that follows in its flow."""

    async def start(self, flow: NewFlow) -> Enqueued:
        new = rules.flow(flow, self._limits)
        with self._lock:
            if new.id in self._flows:
                return Enqueued(new.id, created=False)
            if (problem := self._known_job(new.steps)) is not None:
                raise Refused(problem)
            self._start(new, self._clock())
            return Enqueued(new.id, created=True)

    def _start(self, new: AdmittedFlow, now: datetime) -> None:
        record = FlowRecord(new.id, new.name, new.on_failure, now, new.meta)
        self._flows[new.id] = record
        for step in new.steps:
            self._add_step(record, step, now)

    def _add_step(self, flow: FlowRecord, new: AdmittedStep, now: datetime) -> Record:
        record = Record.of(new.job, now)
        record.flow, record.step, record.needs, record.inputs = flow.id, new.name, new.needs, {}
        if new.needs:
            record.state = State.WAITING
        flow.add(record)
        self._store(record)
        return record

    def _known_job(self, steps: Iterable[AdmittedStep]) -> str | None:
        known = (step.job.id for step in steps if step.job.id in self._jobs)
        return next(map(rules.known_job, known), None)

    async def flow(self, flow: UUID) -> Flow | None:
        with self._lock:
            record = self._flows.get(flow)
            return None if record is None else record.as_flow()

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        wanted = rules.flow_states(states)
        rules.limit(limit)
        with self._lock:
            ids = sorted((id for id in self._flows if after is None or id < after), reverse=True)
            found = [self._flows[id] for id in ids if self._flows[id].state in wanted]
            page = tuple(record.as_flow() for record in found[:limit])
            return FlowPage(page, page[-1].id if len(found) > limit else None)

    # --- a step ended ---------------------------------------------------------------------------------------

    def _ended(self, record: Record, now: datetime) -> None:
        """All that follows in its flow, at the same instant."""
        assert record.flow is not None
        flow = self._flows[record.flow]
        if record.state is State.SUCCEEDED:
            self._pass_on(flow, record, now)
        elif flow.on_failure is OnFailure.CONTINUE:
            for step in flow.behind(record.step):
                self._stop(step, now)
        elif flow.state is FlowState.RUNNING:
            flow.state = FlowState(record.state.value)
            for step in flow.steps.values():
                self._stop(step, now)
        if all(step.state in FINISHED for step in flow.steps.values()):
            flow.finished_at = now
            if flow.state is FlowState.RUNNING:
                flow.state = _verdict({step.state for step in flow.steps.values()})

    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        """The result of a step that succeeded, to those that need it."""
        assert record.step is not None
        for step in flow.waiting_for(record.step):
            step.inputs[record.step] = record.result or NULL
            if len(step.inputs) == len(step.needs):
                self._put_back(step, max(step.run_at, now))

    def _stop(self, step: Record, now: datetime) -> None:
        """Cancel a step because of another, if it is unfinished: at once, or, if it is running, by asking."""
        if step.state in FINISHED:
            return
        self._ask(step)
        if step.state in NOT_STARTED:
            step.outcome = None
            self._close(step, State.CANCELLED, now)

    # --- steps that come later ------------------------------------------------------------------------------

    def _misfit(self, record: Record, item: Settled) -> str | None:
        """Why these steps cannot be added by this job; None if they can."""
        if record.flow is None:
            return rules.NO_STEP
        there = self._flows[record.flow].steps
        known = (step.name for step in item.steps if step.name in there)
        if (name := next(known, None)) is not None:
            return rules.known_name(name)
        if item.adder is not None and item.adder != record.step:
            return rules.other_adder(item.adder)
        return self._known_job(item.steps)

    def _add_steps(self, record: Record, steps: Iterable[AdmittedStep], now: datetime) -> None:
        """Before the step that adds them ends. A flow that was stopped stops them, too; a step that was to be cancelled
        passes that on."""
        assert record.flow is not None
        flow = self._flows[record.flow]
        added = [self._add_step(flow, step, now) for step in steps]
        for step in added:
            if flow.state is not FlowState.RUNNING:
                self._stop(step, now)
            elif record.cancel_asked:
                self._cancel(step, now, force=False)

    # --- steps that come back, and steps that go ------------------------------------------------------------

    def _begin_again(self, flow: FlowRecord, now: datetime) -> None:
        """Some of its steps were requeued: what has not started waits for what has not succeeded."""
        flow.state, flow.finished_at = FlowState.RUNNING, None
        for step in flow.steps.values():
            if step.state in NOT_STARTED:
                step.inputs = {name: _result(need) for name, need in flow.needed(step).items() if _met(need)}
                if len(step.inputs) < len(step.needs):
                    step.state = State.WAITING
                elif step.state is State.WAITING:
                    self._put_back(step, max(step.run_at, now))

    def _forget_step(self, record: Record) -> None:
        """The job is gone, and with the last one its flow."""
        assert record.flow is not None
        flow = self._flows[record.flow]
        flow.forget(record)
        if not flow.steps:
            del self._flows[flow.id]


def _met(need: Record | None) -> bool:
    return need is None or need.state is State.SUCCEEDED


def _result(need: Record | None) -> str:
    return NULL if need is None else need.result or NULL


def _verdict(ends: Collection[State]) -> FlowState:
    for end in (State.FAILED, State.CANCELLED):
        if end in ends:
            return FlowState(end.value)
    return FlowState.SUCCEEDED
