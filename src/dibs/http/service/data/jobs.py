"""Jobs: which, in a list, one of them, a new one."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType, field

from dibs.http.service.data.base import Given, Ids, Moment, Name, Names, Value
from dibs.job import State
from dibs.why import Reason


class JobFilter(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs: every field that is given must match, a job matches a list if it is one of its values."""

    id: Ids = ()
    queue: Names = ()
    task: Names = ()
    state: Annotated[tuple[State, ...], Meta(max_length=6)] = ()
    worker: Names = ()
    """Who holds them, or held them last."""
    key: Names = ()
    flow: Ids = ()
    created_since: Moment | UnsetType = UNSET
    created_before: Moment | UnsetType = UNSET
    finished_since: Moment | UnsetType = UNSET
    finished_before: Moment | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=200)] = ""
    """Stands somewhere in the arguments or the errors, as they are shown; capitals do not matter."""
    group: Annotated[str, Meta(max_length=64)] = ""
    """A group of failures, see ``/api/failures``."""


class JobRow(Value, frozen=True, kw_only=True):
    """A job in a list."""

    id: UUID
    queue: str
    task: str
    state: State
    label: str
    """The state in the word that people use: also scheduled, retrying, expired, cancelling."""
    priority: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    max_attempts: int
    worker: str | None
    key: str | None
    flow: UUID | None
    step: str | None
    progress: float | None
    args: str
    """The arguments as JSON, cut after some characters."""
    error: str | None
    """The first line of the last error."""


class JobPage(Value, frozen=True, kw_only=True):
    """Some of the jobs, newest first."""

    jobs: tuple[JobRow, ...]
    after: UUID | None
    """Give it back for those behind them; null: there are no more. A page may have few jobs or none and still
    not be the last: no more were found among as many jobs as there was time to look at."""
    looked_at: int
    """How many jobs were looked at for this page."""


class TimelineEntry(Value, frozen=True, kw_only=True):
    """Something that happened to a job, or will."""

    at: datetime
    what: Literal[
        "created",
        "due",
        "started",
        "attempt failed",
        "log",
        "lease ends",
        "expires",
        "succeeded",
        "failed",
        "cancelled",
    ]
    until: datetime | None = None
    """For what takes time: when it ended; null if it has not."""
    attempt: int | None = None
    worker: str | None = None
    text: str = ""


class ErrorShown(Value, frozen=True, kw_only=True):
    """One attempt that did not end well."""

    attempt: int
    epoch: int
    worker: str
    started_at: datetime
    ended_at: datetime
    error: str
    traceback: str


class LineShown(Value, frozen=True, kw_only=True):
    """One line that a handler wrote."""

    at: datetime
    attempt: int
    text: str


class JobDetail(JobRow, frozen=True, kw_only=True):
    """All about a job."""

    epoch: int
    locked_until: datetime | None
    cancel_asked: bool
    expires_at: datetime | None
    unique_until: datetime | None
    limit_key: str | None
    note: str
    arguments: Any
    result: Any
    meta: dict[str, Any]
    needs: tuple[str, ...]
    inputs: dict[str, Any]
    errors: tuple[ErrorShown, ...]
    """The last ten."""
    log: tuple[LineShown, ...]
    """The last hundred lines."""
    timeline: tuple[TimelineEntry, ...]
    """In the order of time."""


class Why(Value, frozen=True, kw_only=True):
    """What keeps a job from running."""

    id: UUID
    reason: Reason
    sentence: str
    also: tuple[Reason, ...]
    state: State | None
    until: datetime | None
    worker: str | None
    ahead: int | None


class NewJobGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue. The task decides what is left out, if this program knows it."""

    task: Name
    args: dict[str, Any] = field(default_factory=dict)
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-32768, le=32767)] | None = None
    run_at: Moment | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    key: Name | None = None
    limit_key: Name | None = None
    expires_at: Moment | None = None


class Sent(Value, frozen=True, kw_only=True):
    """The job that stands for a request."""

    id: UUID
    created: bool
    """False: it was there already."""
