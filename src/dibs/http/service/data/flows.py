"""Schedules, flows, and failures by error."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, field

from dibs.http.service.data.base import Given, Moment, Name, Value
from dibs.job import FlowState, OnFailure, State


class ScheduleGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to store."""

    task: Name
    args: dict[str, Any] = field(default_factory=dict)
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-32768, le=32767)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    key: Name | None = None
    cron: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    every: Annotated[float, Meta(ge=1, le=315_360_000)] | None = None
    zone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    jitter: Annotated[float, Meta(ge=0, le=86_400)] = 0
    missed: Literal["skip", "one", "all"] = "one"
    overlap: Literal["allow", "skip"] = "allow"
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    paused: bool = False


class ScheduleShown(Value, frozen=True, kw_only=True):
    """A schedule as it stands."""

    name: str
    origin: Literal["code", "stored"]
    problem: str | None
    """Why it cannot be read here; then the rest is empty."""
    task: str | None
    queue: str | None
    arguments: Any
    rhythm: str
    """When it has its ticks, in words."""
    cron: str | None
    every: float | None
    zone: str
    jitter: float
    missed: str
    overlap: str
    paused: bool
    paused_at: datetime | None
    last: datetime | None
    last_job: UUID | None
    late: datetime | None
    next: tuple[datetime, ...]
    live: bool
    seen_at: datetime | None


class StepShown(Value, frozen=True, kw_only=True):
    """A step of a flow."""

    name: str
    id: UUID
    task: str
    queue: str
    state: State
    label: str
    needs: tuple[str, ...]
    needs_there: tuple[str, ...]
    """Those of its needs that are there; a later step that has the name of one that is gone is none."""
    attempts: int
    max_attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    progress: float | None
    error: str | None


class FlowRow(Value, frozen=True, kw_only=True):
    """A flow in a list."""

    id: UUID
    name: str
    state: FlowState
    on_failure: OnFailure
    created_at: datetime
    finished_at: datetime | None
    steps: dict[State, int]
    progress: float
    """How many of its steps have ended, from 0 to 1."""


class FlowPage(Value, frozen=True, kw_only=True):
    """Some of the flows, newest first."""

    flows: tuple[FlowRow, ...]
    after: UUID | None


class FlowDetail(FlowRow, frozen=True, kw_only=True):
    """A flow with its steps, those that were made first first."""

    meta: dict[str, Any]
    graph: tuple[StepShown, ...]
    more: bool
    """There are more steps than the thousand that are shown."""


class FailureGroup(Value, frozen=True, kw_only=True):
    """Failed jobs whose last error is the same but for numbers, ids and quoted words."""

    group: str
    """Give it as ``group`` of a filter."""
    task: str
    error: str
    """What they have in common."""
    example: str
    count: int
    first_at: datetime
    last_at: datetime
    queues: tuple[str, ...]
    newest: UUID
    """The job that failed last."""


class Failures(Value, frozen=True, kw_only=True):
    """Failed jobs by error, the most frequent first."""

    seen_at: datetime
    """Where there are many this may be some seconds ago."""
    groups: tuple[FailureGroup, ...]
    looked_at: int
    complete: bool
    """False: there are more failed jobs than were looked at, the newest."""
