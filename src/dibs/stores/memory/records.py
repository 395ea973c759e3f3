"""What the memory store keeps: a mutable record per job, and two heaps per queue."""

import heapq
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import to_micros
from dibs.job import SILENT, AttemptError, Claim, Filter, Job, Order, Report, State
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

    @classmethod
    def of(cls, job: Admitted, now: datetime) -> "Record":
        """A new job."""
        run_at = job.run_at or now
        return cls(
            job.id, job.queue, job.task, job.args, job.priority, run_at, now, job.max_attempts, job.key, job.meta
        )

    def claimable(self, now: datetime) -> bool:
        """Queued and due, or running with an expired lease."""
        if self.state is State.RUNNING:
            return self.locked_until is not None and self.locked_until <= now
        return self.state is State.QUEUED and self.run_at <= now

    def held_by(self, worker: str, epoch: int, now: datetime) -> bool:
        """The fence: every write after a claim passes through here."""
        valid = self.locked_until is not None and self.locked_until > now
        return self.state is State.RUNNING and valid and self.epoch == epoch and self.worker == worker

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


class Lane:
    """One queue: its settings, its busy keys and its order.

    ``later`` holds the moments at which a job may become claimable: its ``run_at``, or the end of its lease.
    ``due`` holds the places of claimable jobs. Entries are never removed when a job changes, only checked when
    they come up: an entry says "look at this job", not "this job is claimable".
    """

    def __init__(self, name: str, jobs: dict[UUID, Record]) -> None:
        self.name = name
        self.jobs = jobs
        self.configured = False
        self.paused = False
        self.order = Order.FIFO
        self.keys: dict[str, UUID] = {}
        self.later: list[tuple[datetime, UUID]] = []
        self.due: list[tuple[tuple[int, int, int], UUID]] = []

    def find(self, job: UUID) -> Record | None:
        """The job, if it is still one of this queue: one that was deleted may be back in another."""
        record = self.jobs.get(job)
        return record if record is not None and record.queue == self.name else None

    def place(self, record: Record) -> tuple[int, int, int]:
        """Where the job stands among the claimable ones."""
        sign = 1 if self.order is Order.FIFO else -1
        return record.priority, sign * to_micros(record.run_at), sign * record.id.int

    def look_at(self, record: Record, moment: datetime) -> None:
        """Come back to this job at that moment."""
        heapq.heappush(self.later, (moment, record.id))

    def put(self, record: Record) -> None:
        """Stand in line."""
        heapq.heappush(self.due, (self.place(record), record.id))

    def ripen(self, now: datetime) -> None:
        """Bring what became claimable by now into the order."""
        while self.later and self.later[0][0] <= now:
            record = self.find(heapq.heappop(self.later)[1])
            if record is not None and record.claimable(now):
                self.put(record)

    def next(self, now: datetime) -> Record | None:
        """Take the first claimable job out of the order."""
        while self.due:
            place, job = heapq.heappop(self.due)
            record = self.find(job)
            if record is None or place != self.place(record):
                continue
            if record.claimable(now):
                return record
            if record.state is State.QUEUED or record.state is State.RUNNING:  # the clock stepped back
                self.look_at(record, record.locked_until or record.run_at)
        return None

    def reorder(self, order: Order) -> None:
        """From now on, hand out in this order."""
        self.order = order
        found = (self.find(job) for _, job in self.due)
        self.due = [(self.place(record), record.id) for record in found if record is not None]
        heapq.heapify(self.due)
