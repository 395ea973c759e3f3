"""The values that cross the store's line: what goes in, what comes out. All frozen, none knows a store.

Those that come in thousands hold plain data only, no cycles, and are not tracked by the garbage collector.
"""

from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import msgspec

from dibs.ids import new_id
from dibs.outcome import Outcome


class State(StrEnum):
    """Where a job stands. ``scheduled`` and ``retrying`` are labels of ``queued``, not states."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = frozenset({State.WAITING, State.QUEUED, State.RUNNING})
NOT_STARTED = frozenset({State.WAITING, State.QUEUED})
FINISHED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})


class Priority(IntEnum):
    """Names for three priorities; any number from -32768 to 32767 will do. Smaller runs first."""

    HIGH = -100
    NORMAL = 0
    LOW = 100


class Order(StrEnum):
    """Which of two jobs of equal priority a queue hands out first."""

    FIFO = "fifo"
    LIFO = "lifo"


class OnConflict(StrEnum):
    """What a request does whose key is busy. A job that is running or finished is never touched by it."""

    EXISTING = "existing"
    """Nothing: the job that is there stands for it."""
    REPLACE = "replace"
    """The job that is there, if it is queued, becomes what was asked for now."""
    DEBOUNCE = "debounce"
    """The same, and it is due later rather than sooner: once nobody has asked for some time."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """One request to run a task, not yet in a store."""

    task: str
    args: Any = msgspec.field(default_factory=dict)
    queue: str = "default"
    priority: int = Priority.NORMAL
    run_at: datetime | None = None
    max_attempts: int = 5
    key: str | None = None
    """At most one job of its queue has it, for as long as it is busy."""
    unique_for: timedelta | None = None
    """The key is busy for at least this long after the job was created, also when it is finished."""
    on_conflict: OnConflict = OnConflict.EXISTING
    max_delay: timedelta | None = None
    """The longest that debouncing puts the job off, from when it was created."""
    expires_at: datetime | None = None
    """No attempt is started from then on: a job that is still queued ends cancelled."""
    limit_key: str | None = None
    """Whose job it is, for limits of ``each_key``: a tenant, an account, a host."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    id: UUID = msgspec.field(default_factory=new_id)


class OnFailure(StrEnum):
    """What becomes of a flow when one of its steps fails or is cancelled."""

    STOP = "stop"
    """The flow has failed, the rest is cancelled."""
    CONTINUE = "continue"
    """Only what needs that step is cancelled; the rest goes on."""


class FlowState(StrEnum):
    """Where a flow stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a flow, not yet in a store: a job with a name, and the names of the steps that it needs."""

    name: str
    job: NewJob
    needs: tuple[str, ...] = ()


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Several jobs that belong together, not yet in a store."""

    name: str
    steps: tuple[NewStep, ...]
    on_failure: OnFailure = OnFailure.STOP
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    id: UUID = msgspec.field(default_factory=new_id)


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """All that a store knows about a flow, at one instant. Its steps are jobs: find them by their flow."""

    id: UUID
    name: str
    state: FlowState
    on_failure: OnFailure
    created_at: datetime
    finished_at: datetime | None
    """When its last step ended; a flow that failed may still have running steps."""
    steps: dict[State, int]
    """How many of its steps are in each state."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class FlowPage(msgspec.Struct, frozen=True):
    """Some of the flows, newest first; pass ``after`` on for those behind them."""

    flows: tuple[Flow, ...]
    after: UUID | None


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The job that stands for one request: a new one, or the one that was there already."""

    id: UUID
    created: bool
    changed: bool = False
    """The one that was there is now what was asked for: see ``OnConflict``."""


class AttemptError(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that did not end well. A job keeps its last ten."""

    attempt: int
    epoch: int
    worker: str
    started_at: datetime
    ended_at: datetime
    error: str
    traceback: str = ""


class LogLine(msgspec.Struct, frozen=True):
    """One line that a handler wrote about its job."""

    at: datetime
    attempt: int
    text: str


class Report(msgspec.Struct, frozen=True):
    """What a handler last said about its job: how far it is, and the lines it wrote."""

    progress: float | None = None
    """From 0 to 1; None if the handler never said."""
    note: str = ""
    log: tuple[LogLine, ...] = ()


SILENT = Report()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that a store knows about a job, at one instant."""

    id: UUID
    queue: str
    task: str
    args: Any
    state: State
    priority: int
    run_at: datetime
    created_at: datetime
    attempts: int
    max_attempts: int
    epoch: int
    worker: str | None = None
    """Who holds it, or held it last."""
    locked_until: datetime | None = None
    """When the lease of a running job ends; None unless running."""
    cancel_asked: bool = False
    started_at: datetime | None = None
    """When it was last claimed."""
    finished_at: datetime | None = None
    result: Any = None
    errors: tuple[AttemptError, ...] = ()
    key: str | None = None
    unique_until: datetime | None = None
    """Its key is busy until then, even if it is finished."""
    expires_at: datetime | None = None
    limit_key: str | None = None
    flow: UUID | None = None
    step: str | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    report: Report = SILENT
    needs: tuple[str, ...] = ()
    """The steps of its flow that it needs."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """The results of those that have succeeded, by name."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The exclusive right to run a job until ``locked_until``, and what is needed to run it.

    Stores give the fields by position: by name they would cost a microsecond a claim.
    """

    id: UUID
    epoch: int
    worker: str
    queue: str
    task: str
    args: Any
    priority: int
    run_at: datetime
    created_at: datetime
    attempt: int
    max_attempts: int
    locked_until: datetime
    key: str | None = None
    flow: UUID | None = None
    step: str | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """The results of the steps that this one needs, by name."""

    def settled(self, outcome: Outcome) -> "Settlement":
        """This claim, ended like that: what ``Store.settle`` takes."""
        return Settlement(self.id, self.epoch, self.worker, outcome)


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How one claim ended; fenced by job, epoch and worker."""

    id: UUID
    epoch: int
    worker: str
    outcome: Outcome


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: every given field must match, a job matches a field if it is one of its values.

    An empty filter finds every job, but changes none: say ``everything=True`` to mean it.
    """

    ids: tuple[UUID, ...] | None = None
    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    states: tuple[State, ...] | None = None
    workers: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    flows: tuple[UUID, ...] | None = None
    created_since: datetime | None = None
    created_before: datetime | None = None
    finished_since: datetime | None = None
    finished_before: datetime | None = None
    everything: bool = False


class Page(msgspec.Struct, frozen=True):
    """Some of the jobs found, newest first; pass ``after`` on for those behind them."""

    jobs: tuple[Job, ...]
    after: UUID | None


class Changed(msgspec.Struct, frozen=True):
    """How many jobs one chunk of a bulk verb changed; call again with ``after`` until it is None."""

    count: int
    after: UUID | None = None


class Counted(msgspec.Struct, frozen=True):
    """How many jobs there are; at least so many if it is not complete."""

    count: int
    complete: bool = True


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """See ``Store.cancel``."""

    force: bool = False

    @property
    def states(self) -> frozenset[State]:
        return UNFINISHED


class Requeue(msgspec.Struct, frozen=True, tag="requeue"):
    """See ``Store.requeue``."""

    @property
    def states(self) -> frozenset[State]:
        return FINISHED


class Reschedule(msgspec.Struct, frozen=True, tag="reschedule"):
    """See ``Store.reschedule``."""

    run_at: datetime

    @property
    def states(self) -> frozenset[State]:
        return NOT_STARTED


class Reprioritise(msgspec.Struct, frozen=True, tag="reprioritise"):
    """See ``Store.reprioritise``."""

    priority: int

    @property
    def states(self) -> frozenset[State]:
        return NOT_STARTED


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """See ``Store.delete``."""

    force: bool = False

    @property
    def states(self) -> frozenset[State]:
        return UNFINISHED | FINISHED if self.force else NOT_STARTED | FINISHED


Change = Cancel | Requeue | Reschedule | Reprioritise | Delete
"""What an operator's verb does to the jobs it applies to; ``states`` says which those are."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: how many jobs in each state, and how long the oldest due one has been waiting."""

    queue: str
    paused: bool
    order: Order
    ageing: timedelta | None = None
    """How long a due job waits to be worth one priority more; None: for ever."""
    states: dict[State, int]
    scheduled: int
    """How many of the queued are not due yet."""
    oldest_due: datetime | None
    """The smallest ``run_at`` of the queued jobs that are due."""
    more: frozenset[State] = frozenset()
    """States that were not counted to the end, because that was not asked for: there are at least so many."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as the store knows it: by its heartbeats and by the claims it holds."""

    name: str
    seen_at: datetime | None
    running: int
    info: dict[str, Any]


class Kept(msgspec.Struct, frozen=True):
    """What a store keeps that is no job, by kind and name, and what its clock showed when it was asked."""

    now: datetime
    values: dict[str, dict[str, dict[str, Any]]]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept, by the way they ended; None keeps them for ever."""

    succeeded: timedelta | None = timedelta(days=7)
    failed: timedelta | None = timedelta(days=30)
    cancelled: timedelta | None = timedelta(days=7)
