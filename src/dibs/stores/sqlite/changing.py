"""An operator's verbs on one chunk of jobs, pruning, and the settings of queues."""

from typing import NamedTuple
from uuid import UUID

from dibs import limits as rules
from dibs.clock import span_micros, to_micros
from dibs.job import (
    UNFINISHED,
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
from dibs.stores.sqlite import flows
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection
from dibs.stores.sqlite.ending import end
from dibs.stores.sqlite.filters import halves
from dibs.stores.sqlite.looking import matching


def change_chunk(db: Connection, which: Filter, change: Change, *, after: UUID | None, limit: int, now: int) -> Changed:
    """Apply the change to the first ``limit`` jobs that match and that it applies to."""
    found = halves(which, after, change.states)
    chunk = matching(db, found, sql.UNFINISHED_IDS, sql.FINISHED_IDS, limit)
    count = sum(_alter(db, Found(*row), change, now) for row in chunk)
    if isinstance(change, Requeue):
        for flow in {row[2] for row in chunk} - {None}:
            flows.resume(db, flow, now)
    return Changed(count, UUID(bytes=chunk[-1][0]) if len(chunk) == limit else None)


class Found(NamedTuple):
    """A job that matched when the call began; the end of another step may have ended it since."""

    id: bytes
    state: str
    flow: bytes | None


def _alter(db: Connection, job: Found, change: Change, now: int) -> bool:
    match change:
        case Cancel(force):
            if force or job.state != State.RUNNING:
                end(db, job.id, "cancelled", now, cancel_asked=True)
            else:
                db.run(sql.ASK_CANCEL, (job.id,))
                db.run(sql.NOTE_ASKED, (job.id,))
        case Requeue():
            if not db.run(sql.REQUEUE, (job.id, now)):
                return False
            if job.flow is not None:
                flows.keep(db, [(job.id,)])
            db.run(sql.FORGET, (job.id,))
        case Reschedule(run_at):
            db.run(sql.RESCHEDULE, (job.id, to_micros(run_at)))
        case Reprioritise(priority):
            db.run(sql.REPRIORITISE, (job.id, priority))
        case Delete():
            _delete(db, job, now)
    return True


def _delete(db: Connection, job: Found, now: int) -> None:
    """Without a trace, except that the flow of an unfinished step takes it for a cancel."""
    unfinished = job.state in UNFINISHED
    if job.flow is None:
        db.run(sql.REMOVE if unfinished else sql.FORGET, (job.id,))
        return
    if unfinished:
        end(db, job.id, "cancelled", now, cancel_asked=True)
    flows.forget(db, [(job.id, job.flow)])


def prune(db: Connection, retention: Retention, limit: int, now: int) -> int:
    """Drop old finished jobs and forget workers that are gone."""
    kept = (retention.succeeded, retention.failed, retention.cancelled)
    cutoffs = tuple(None if span is None else now - span_micros(span) for span in kept)
    dropped = db.run(sql.PRUNE, (*cutoffs, limit))
    if dropped < limit and (steps := db.rows(sql.PRUNABLE, (*cutoffs, limit - dropped))):
        flows.forget(db, steps)  # what is left of the oldest are steps alone
        dropped += len(steps)
    db.run(sql.PRUNE_WORKERS, (now - span_micros(rules.WORKERS_KEPT),))
    return dropped


def pause(db: Connection, queue: str, paused: bool) -> None:
    db.run(sql.PAUSE, (queue, int(paused)))


def configure(db: Connection, queue: str, order: str, ageing: int | None) -> None:
    db.run(sql.CONFIGURE, (queue, order, ageing))
