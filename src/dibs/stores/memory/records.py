"""What the memory store keeps: a mutable record per job."""

from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.job import SILENT, UNFINISHED, AttemptError, Claim, Filter, Job, OnConflict, Report, State
from dibs.limits import Admitted

# Of plain jobs: one for all of them, that nobody can write to.
NO_INPUTS = cast("dict[str, str]", MappingProxyType({}))
_decode = msgspec.json.decode


class Record(msgspec.Struct):
    """One job. ``outcome`` is how its last owner settled it, until anything else happens to it."""

    id: UUID
    queue: str
    task: str
    args: str
    priority: int
    run_at: datetime
    created_at: datetime
    max_attempts: int
    key: str | None
    meta: str
    state: State = State.QUEUED
    attempts: int = 0
    epoch: int = 0
    worker: str | None = None
    locked_until: datetime | None = None
    cancel_asked: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    errors: tuple[AttemptError, ...] = ()
    outcome: str | None = None
    report: Report = SILENT
    flow: UUID | None = None
    step: str | None = None
    needs: tuple[str, ...] = ()
    inputs: dict[str, str] = NO_INPUTS
    unique_until: datetime | None = None
    expires_at: datetime | None = None
    limit_key: str | None = None

    @classmethod
    def of(cls, job: Admitted, now: datetime) -> "Record":
        """A new job."""
        run_at = job.run_at or now
        record = cls(
            job.id, job.queue, job.task, job.args, job.priority, run_at, now, job.max_attempts, job.key, job.meta
        )
        record.unique_until = _after(now, job.unique_for)
        record.expires_at, record.limit_key = job.expires_at, job.limit_key
        return record

    def become(self, job: Admitted, now: datetime) -> None:
        """What was asked for now, in place of what was asked for before; it stays the same job."""
        self.task, self.args, self.meta, self.priority = job.task, job.args, job.meta, job.priority
        self.expires_at, self.limit_key = job.expires_at, job.limit_key
        self.unique_until = _after(self.created_at, job.unique_for)
        self.max_attempts, self.attempts, self.outcome = job.max_attempts, 0, None
        run_at = job.run_at or now
        if job.on_conflict is OnConflict.DEBOUNCE:
            latest = _after(self.created_at, job.max_delay)
            run_at = max(self.run_at, run_at if latest is None else min(run_at, latest))
        self.run_at = run_at

    def claimable(self, now: datetime) -> bool:
        """Queued and due, or running with an expired lease."""
        if self.state is State.RUNNING:
            return self.locked_until is not None and self.locked_until <= now
        return self.state is State.QUEUED and self.run_at <= now

    def holds(self, now: datetime) -> bool:
        """A valid lease is on it."""
        return self.state is State.RUNNING and self.locked_until is not None and self.locked_until > now

    def busy(self, now: datetime) -> bool:
        """Nobody else can have its key."""
        return self.state in UNFINISHED or (self.unique_until is not None and self.unique_until > now)

    def end(self, now: datetime) -> State | None:
        """How the job ends if it is claimable and not to be started (again); None if it may be started."""
        if self.state is State.RUNNING and self.cancel_asked:
            return State.CANCELLED
        if self.state is State.RUNNING and self.attempts >= self.max_attempts:
            return State.FAILED
        return State.CANCELLED if self.expires_at is not None and self.expires_at <= now else None

    def held_by(self, worker: str, epoch: int, now: datetime) -> bool:
        """The fence: every write after a claim passes through here."""
        return self.holds(now) and self.epoch == epoch and self.worker == worker

    def blame(self, now: datetime, error: str, traceback: str = "") -> None:
        """Keep what went wrong in the current attempt."""
        assert self.worker is not None and self.started_at is not None
        entry = AttemptError(
            attempt=self.attempts,
            epoch=self.epoch,
            worker=self.worker,
            started_at=self.started_at,
            ended_at=now,
            error=error,
            traceback=traceback,
        )
        self.errors = (*self.errors, entry)[-rules.ERRORS_KEPT :]

    def matches(self, which: Filter) -> bool:
        """Every given field of the filter holds."""
        one_of = (
            (self.id, which.ids),
            (self.queue, which.queues),
            (self.task, which.tasks),
            (self.state, which.states),
            (self.worker, which.workers),
            (self.key, which.keys),
            (self.flow, which.flows),
        )
        return (
            all(values is None or value in values for value, values in one_of)
            and _between(self.created_at, which.created_since, which.created_before)
            and _between(self.finished_at, which.finished_since, which.finished_before)
        )

    def as_job(self) -> Job:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "outcome"}
        fields["args"], fields["meta"] = _decode(self.args), _decode(self.meta)
        fields["result"] = None if self.result is None else _decode(self.result)
        fields["inputs"] = self._decoded_inputs()
        return Job(**fields)

    def as_claim(self) -> Claim:
        assert self.worker is not None and self.locked_until is not None
        return Claim(
            self.id,
            self.epoch,
            self.worker,
            self.queue,
            self.task,
            _decode(self.args),
            self.priority,
            self.run_at,
            self.created_at,
            self.attempts,
            self.max_attempts,
            self.locked_until,
            self.key,
            self.flow,
            self.step,
            _decode(self.meta),
            self._decoded_inputs() if self.needs else {},
        )

    def _decoded_inputs(self) -> dict[str, Any]:
        return {name: _decode(text) for name, text in self.inputs.items()}


def _between(moment: datetime | None, since: datetime | None, before: datetime | None) -> bool:
    if moment is None:
        return since is None and before is None
    return (since is None or moment >= since) and (before is None or moment < before)


def _after(moment: datetime, span: timedelta | None) -> datetime | None:
    return None if span is None else moment + span
