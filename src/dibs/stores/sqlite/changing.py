"""An operator's verbs on one chunk of jobs, pruning, and the settings of queues."""

from uuid import UUID

from dibs import limits as rules
from dibs.clock import span_micros, to_micros
from dibs.job import (
    Cancel,
    Change,
    Changed,
    Delete,
    Filter,
    Reprioritise,
    Requeue,
    Reschedule,
    Retention,
    State,
)
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.claiming import retire
from dibs.stores.sqlite.connect import Connection
from dibs.stores.sqlite.filters import halves
from dibs.stores.sqlite.looking import matching


def change_chunk(db: Connection, which: Filter, change: Change, *, after: UUID | None, limit: int, now: int) -> Changed:
    """Apply the change to the first ``limit`` jobs that match and that it applies to."""
    found = halves(which, after, change.states)
    chunk = matching(db, found, sql.UNFINISHED_IDS, sql.FINISHED_IDS, limit)
    count = sum(_alter(db, job, state, change, now) for job, state in chunk)
    return Changed(count, UUID(bytes=chunk[-1][0]) if len(chunk) == limit else None)


def _alter(db: Connection, job: bytes, state: str, change: Change, now: int) -> bool:
    match change:
        case Cancel(force):
            if force or state != State.RUNNING:
                retire(db, job, "cancelled", now, cancel_asked=True)
            else:
                db.run(sql.ASK_CANCEL, (job,))
        case Requeue():
            if not db.run(sql.REQUEUE, (job, now)):
                return False
            db.run(sql.FORGET, (job,))
        case Reschedule(run_at):
            db.run(sql.RESCHEDULE, (job, to_micros(run_at)))
        case Reprioritise(priority):
            db.run(sql.REPRIORITISE, (job, priority))
        case Delete():
            db.run(sql.REMOVE if state in ("waiting", "queued", "running") else sql.FORGET, (job,))
    return True


def prune(db: Connection, retention: Retention, limit: int, now: int) -> int:
    """Drop old finished jobs and forget workers that are gone."""
    kept = (retention.succeeded, retention.failed, retention.cancelled)
    cutoffs = (None if span is None else now - span_micros(span) for span in kept)
    dropped = db.run(sql.PRUNE, (*cutoffs, limit))
    db.run(sql.PRUNE_WORKERS, (now - span_micros(rules.WORKERS_KEPT),))
    return dropped


def pause(db: Connection, queue: str, paused: bool) -> None:
    db.run(sql.PAUSE, (queue, int(paused)))


def configure(db: Connection, queue: str, order: str) -> None:
    db.run(sql.CONFIGURE, (queue, order))
