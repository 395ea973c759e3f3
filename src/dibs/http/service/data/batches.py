"""Changes of many jobs, and the trail of who did what."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from dibs.http.service.data.base import Count, Given, Moment, Value
from dibs.http.service.data.jobs import JobFilter


class Verb(StrEnum):
    """What can be done to jobs."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    RESCHEDULE = "reschedule"
    REPRIORITISE = "reprioritise"
    DELETE = "delete"


class BatchGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of many jobs."""

    verb: Verb
    which: JobFilter = JobFilter()
    everything: bool = False
    """Has to be said to mean every job, when the filter is empty."""
    force: bool = False
    """For cancel and delete: running jobs, too, at once."""
    run_at: Moment | None = None
    """For reschedule."""
    priority: Annotated[int, Meta(ge=-32768, le=32767)] | None = None
    """For reprioritise."""
    dry_run: bool = False
    """Only count."""
    confirm: Count | None = None
    """How many the dry run counted; needed for more than a hundred jobs, and may be off by a tenth."""
    reason: Annotated[str, Meta(max_length=200)] = ""
    """For the audit trail."""


class BatchState(StrEnum):
    """How a batch is."""

    COUNTED = "counted"
    """A dry run: nothing was changed."""
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Somebody stopped it. What was done stays done."""
    FAILED = "failed"
    LOST = "lost"
    """The server that ran it has ended. What was done stays done; the same again does the rest."""


class Batch(Value, frozen=True, kw_only=True):
    """A change of many jobs, and how far it is."""

    id: UUID
    verb: Verb
    about: str
    """Which jobs, in words."""
    state: BatchState
    count: int
    """How many it concerned when it began."""
    complete: bool
    """False: counting was given up early, there are more."""
    done: int
    """How many were changed."""
    actor: str
    reason: str
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: str | None


class AuditEntry(Value, frozen=True, kw_only=True):
    """Who did what."""

    id: UUID
    at: datetime
    actor: str
    action: str
    target: str
    count: int | None
    reason: str
    batch: UUID | None


class AuditPage(Value, frozen=True, kw_only=True):
    """The newest entries first."""

    entries: tuple[AuditEntry, ...]
