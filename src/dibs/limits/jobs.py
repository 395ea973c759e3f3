"""What a job may hold, and which jobs a filter may choose."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import Filter, NewJob
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


def admit(jobs: Sequence[NewJob], limits: Limits = DEFAULT) -> list[Admitted]:
    """Check the jobs of one enqueue call, all or nothing."""
    bulk(len(jobs), "jobs")
    return [admit_one(job, limits) for job in jobs]


def admit_one(job: NewJob, limits: Limits) -> Admitted:
    job_id(job.id)
    return Admitted(
        job.id,
        name(job.queue, "queue"),
        name(job.task, "task"),
        to_json(job.args, "args", limits),
        priority(job.priority),
        None if job.run_at is None else moment(job.run_at, "run_at"),
        within(job.max_attempts, MAX_ATTEMPTS, "max_attempts"),
        None if job.key is None else name(job.key, "key"),
        "{}" if job.meta == {} else meta_json(job.meta, limits),
    )


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
