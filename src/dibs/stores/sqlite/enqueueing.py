"""Storing jobs: in a transaction of ours, or through any driver in a transaction of the caller's."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from dibs.clock import span_micros, to_micros
from dibs.job import Enqueued, OnConflict, State
from dibs.limits import Admitted
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection

Execute = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]
"""Runs one statement with ``?`` placeholders and gives its rows: all that is needed of a driver."""


def _params(job: Admitted, now: int) -> tuple[Any, ...]:
    return (
        job.id.bytes,
        job.queue,
        job.task,
        job.priority,
        now if job.run_at is None else to_micros(job.run_at),
        now,
        job.max_attempts,
        job.key,
        None if job.unique_for is None else now + span_micros(job.unique_for),
        None if job.expires_at is None else to_micros(job.expires_at),
        job.limit_key or "",
        job.meta,
        job.args,
    )


def enqueue(db: Connection, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """All at once if none is known and no key is busy, which is nearly always so; otherwise one by one."""
    if len(jobs) == 1:
        created = db.run(sql.ENQUEUE_ALL, _params(jobs[0], now)) == 1
        return [Enqueued(jobs[0].id, True) if created else _there(db.rows, jobs[0], now)]
    db.rows("SAVEPOINT dibs_all")
    if db.run_all(sql.ENQUEUE_ALL, [_params(job, now) for job in jobs]) == len(jobs):
        db.rows("RELEASE dibs_all")
        return [Enqueued(job.id, True) for job in jobs]
    db.rows("ROLLBACK TO dibs_all")
    db.rows("RELEASE dibs_all")
    return enqueue_each(db.rows, jobs, now)


def enqueue_each(execute: Execute, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """One by one, saying of each whether it is new; ``now`` in microseconds."""
    return [
        Enqueued(job.id, True) if execute(sql.ENQUEUE, _params(job, now)) else _there(execute, job, now) for job in jobs
    ]


def _there(execute: Execute, job: Admitted, now: int) -> Enqueued:
    """The job that kept this one out, and what it becomes if it may."""
    if execute(sql.KNOWN, (job.id.bytes, job.id.bytes)):
        return Enqueued(job.id, False)
    holder = execute(sql.KEY_HOLDER, (job.queue, job.key, job.queue, job.key, now))[0]
    changes = job.on_conflict is not OnConflict.EXISTING and holder[1] == State.QUEUED
    if changes:
        execute(sql.BECOME, _becoming(job, holder, now))
    return Enqueued(UUID(bytes=bytes(holder[0])), False, changes)


def _becoming(job: Admitted, holder: Sequence[Any], now: int) -> tuple[Any, ...]:
    """The parameters of become.sql: what was asked for now, in place of what the queued job was."""
    id_, _, created_at, due = holder
    run_at = now if job.run_at is None else to_micros(job.run_at)
    if job.on_conflict is OnConflict.DEBOUNCE:
        latest = run_at if job.max_delay is None else created_at + span_micros(job.max_delay)
        run_at = max(due, min(run_at, latest))
    return (
        job.task,
        job.priority,
        run_at,
        job.max_attempts,
        None if job.unique_for is None else created_at + span_micros(job.unique_for),
        None if job.expires_at is None else to_micros(job.expires_at),
        job.limit_key or "",
        job.meta,
        job.args,
        bytes(id_),
    )
