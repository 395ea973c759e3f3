"""What a job may hold, and which jobs a filter may choose."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import Filter, NewJob, OnConflict
from dibs.limits.basics import (
    DEFAULT,
    MAX_ATTEMPTS,
    Limits,
    bulk,
    job_id,
    meta_json,
    moment,
    name,
    names,
    priority,
    span,
    to_json,
    within,
)


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A job that passed: JSON as text, times in UTC. What a store's enqueue works on."""

    id: UUID
    queue: str
    task: str
    args: str
    priority: int
    run_at: datetime | None
    max_attempts: int
    key: str | None
    meta: str
    unique_for: timedelta | None = None
    on_conflict: OnConflict = OnConflict.EXISTING
    max_delay: timedelta | None = None
    expires_at: datetime | None = None
    limit_key: str | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing is said that most jobs leave out, but for a time or a key."""
        return (
            self.expires_at is None
            and self.limit_key is None
            and self.unique_for is None
            and self.on_conflict is OnConflict.EXISTING
        )


def alike(jobs: Sequence[Admitted]) -> bool:
    """Whether they are plain, have no keys, and differ in nothing but their ids and arguments."""
    first = jobs[0]
    return first.key is None and all(
        job.queue == first.queue
        and job.task == first.task
        and job.priority == first.priority
        and job.run_at == first.run_at
        and job.max_attempts == first.max_attempts
        and job.key is None
        and job.meta == first.meta
        and job.is_plain
        for job in jobs
    )


def admit(jobs: Sequence[NewJob], limits: Limits = DEFAULT) -> list[Admitted]:
    """Check the jobs of one enqueue call, all or nothing."""
    bulk(len(jobs), "jobs")
    return [admit_one(job, limits) for job in jobs]


def admit_one(job: NewJob, limits: Limits) -> Admitted:
    job_id(job.id)
    queue, task, ranked, attempts = _terms(job)
    return Admitted(
        job.id,
        queue,
        task,
        to_json(job.args, "args", limits),
        ranked,
        None if job.run_at is None else moment(job.run_at, "run_at"),
        attempts,
        None if job.key is None else name(job.key, "key"),
        "{}" if job.meta == {} else meta_json(job.meta, limits),
        *(() if _is_plain(job) else _extras(job)),
    )


def _terms(job: NewJob) -> tuple[str, str, int, int]:
    """What the jobs of a task have in common, checked once for all of them."""
    given = job.queue, job.task, job.priority, job.max_attempts
    try:
        return _checked(*given)
    except TypeError:  # something that no dict could hold is nothing that a job may hold
        return _checked.__wrapped__(*given)


@lru_cache(maxsize=1_000, typed=True)
def _checked(queue: str, task: str, ranked: int, attempts: int) -> tuple[str, str, int, int]:
    return (
        name(queue, "queue"),
        name(task, "task"),
        priority(ranked),
        within(attempts, MAX_ATTEMPTS, "max_attempts"),
    )


def _is_plain(job: NewJob) -> bool:
    """Nothing is said that most jobs leave out."""
    return (
        job.unique_for is None
        and job.on_conflict is OnConflict.EXISTING
        and job.max_delay is None
        and job.expires_at is None
        and job.limit_key is None
    )


def _extras(job: NewJob) -> tuple[timedelta | None, OnConflict, timedelta | None, datetime | None, str | None]:
    conflict = on_conflict(job.on_conflict)
    if job.key is None and (job.unique_for is not None or conflict is not OnConflict.EXISTING):
        raise Refused("unique_for and on_conflict are about jobs of the same key: give a key, too")
    if job.max_delay is not None and conflict is not OnConflict.DEBOUNCE:
        raise Refused("max_delay is for on_conflict=debounce: leave it out, or debounce")
    expires_at = None if job.expires_at is None else moment(job.expires_at, "expires_at")
    if expires_at is not None and job.run_at is not None and expires_at <= job.run_at:
        raise Refused("expires_at must come after run_at, or the job can never start")
    return (
        None if job.unique_for is None else span(job.unique_for, "unique_for"),
        conflict,
        None if job.max_delay is None else span(job.max_delay, "max_delay"),
        expires_at,
        None if job.limit_key is None else name(job.limit_key, "limit_key"),
    )


def on_conflict(value: object) -> OnConflict:
    """One of the three things to do when a key is busy."""
    if value not in tuple(OnConflict):
        raise Refused(f"on_conflict must be one of {', '.join(OnConflict)}, not {value!r}")
    return OnConflict(str(value))


def chosen(which: Filter, *, change: bool) -> Filter:
    """Check a filter; one that would change every job has to say so."""
    given = [field for field in which.__struct_fields__[:-1] if getattr(which, field) is not None]
    if change and not given and not which.everything:
        raise Refused("this filter is empty and would match every job: say everything=True if so")
    bulk(len(which.ids or ()), "ids")
    bulk(len(which.flows or ()), "flows")
    for field in given:
        if field.endswith(("_since", "_before")):
            moment(getattr(which, field), field)
    for field, what in (("queues", "queue"), ("tasks", "task"), ("workers", "worker"), ("keys", "key")):
        names(getattr(which, field), what)
    return which
