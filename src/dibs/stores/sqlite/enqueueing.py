"""Storing jobs: in a transaction of ours, or through any driver in a transaction of the caller's."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from dibs.clock import to_micros
from dibs.job import Enqueued
from dibs.limits import Admitted
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection

Execute = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]
"""Runs one statement with ``?`` placeholders and gives its rows: all that is needed of a driver."""


def _params(job: Admitted, now: int) -> tuple[Any, ...]:
    run_at = now if job.run_at is None else to_micros(job.run_at)
    return (
        job.id.bytes,
        job.queue,
        job.task,
        job.priority,
        run_at,
        now,
        job.max_attempts,
        job.key,
        job.meta,
        job.args,
    )


def enqueue(db: Connection, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """All at once if none is known and no key is busy, which is nearly always so; otherwise one by one."""
    if len(jobs) == 1:
        created = db.run(sql.ENQUEUE_ALL, _params(jobs[0], now)) == 1
        return [Enqueued(jobs[0].id, True) if created else _there(db.rows, jobs[0])]
    db.rows("SAVEPOINT dibs_all")
    if db.run_all(sql.ENQUEUE_ALL, [_params(job, now) for job in jobs]) == len(jobs):
        db.rows("RELEASE dibs_all")
        return [Enqueued(job.id, True) for job in jobs]
    db.rows("ROLLBACK TO dibs_all")
    db.rows("RELEASE dibs_all")
    return enqueue_each(db.rows, jobs, now)


def enqueue_each(execute: Execute, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """One by one, saying of each whether it is new; ``now`` in microseconds."""
    return [Enqueued(job.id, True) if execute(sql.ENQUEUE, _params(job, now)) else _there(execute, job) for job in jobs]


def _there(execute: Execute, job: Admitted) -> Enqueued:
    """The job that kept this one out."""
    if not execute(sql.KNOWN, (job.id.bytes, job.id.bytes)):
        holder = execute(sql.KEY_HOLDER, (job.queue, job.key))
        return Enqueued(UUID(bytes=bytes(holder[0][0])), False)
    return Enqueued(job.id, False)
