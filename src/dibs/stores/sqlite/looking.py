"""Reading: each function sees one instant of the file."""

from uuid import UUID

import msgspec

from dibs.clock import from_micros
from dibs.job import Change, Filter, Job, Order, Page, QueueCounts, State, WorkerInfo
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.filters import Halves, halves
from dibs.stores.sqlite.rows import as_job


def get(db: Connection, job: UUID) -> Job | None:
    row = db.row(sql.GET, (job.bytes,))
    return None if row is None else as_job(row)


def find(db: Connection, which: Filter, after: UUID | None, limit: int) -> Page:
    found = matching(db, halves(which, after), sql.UNFINISHED, sql.FINISHED, limit + 1)
    jobs = tuple(map(as_job, found[:limit]))
    return Page(jobs, jobs[-1].id if len(found) > limit else None)


def matching(db: Connection, which: Halves, unfinished: str, finished: str, limit: int) -> list[Row]:
    """Rows of both tables, newest id first. The two statements give the same columns, the id first."""
    parts = []
    if which.unfinished is not None:
        parts.append(unfinished.format(where=which.unfinished))
    if which.finished is not None:
        parts.append(finished.format(where=which.finished))
    if not parts:
        return []
    statement = " UNION ALL ".join(parts) + " ORDER BY id DESC LIMIT :limit"
    return db.rows(statement, {**which.params, "limit": limit})


def count(db: Connection, which: Filter, change: Change, after: UUID | None) -> int:
    unfinished, finished, params = halves(which, after, change.states)
    total = 0
    if unfinished is not None:
        total += db.rows(f"SELECT count(*) FROM dibs_jobs WHERE {unfinished}", params)[0][0]  # noqa: S608
    if finished is not None:
        total += db.rows(f"SELECT count(*) FROM dibs_history WHERE {finished}", params)[0][0]  # noqa: S608
    return total


def counts(db: Connection, now: int) -> list[QueueCounts]:
    settings = {name: (bool(paused), Order(order)) for name, paused, order in db.rows(sql.SETTINGS)}
    states: dict[str, dict[State, int]] = {name: dict.fromkeys(State, 0) for name in settings}
    line: dict[str, tuple[int, int | None]] = {}
    count = sql.COUNT_UNFINISHED if db.rows(sql.EXPIRED_IN_LINE) else sql.COUNT_INDEXED
    for queue, state, number, scheduled, oldest in db.rows(count, (now,)):
        states.setdefault(queue, dict.fromkeys(State, 0))[State(state)] = number
        if state == State.QUEUED:
            line[queue] = (scheduled, oldest)
    for queue, state, number in db.rows(sql.COUNT_FINISHED):
        states.setdefault(queue, dict.fromkeys(State, 0))[State(state)] = number
    return [
        QueueCounts(
            queue=name,
            paused=paused,
            order=order,
            states=states[name],
            scheduled=scheduled,
            oldest_due=None if oldest is None else from_micros(oldest),
        )
        for name in sorted(states)
        for paused, order in [settings.get(name, (False, Order.FIFO))]
        for scheduled, oldest in [line.get(name, (0, None))]
    ]


def workers(db: Connection) -> list[WorkerInfo]:
    return [
        WorkerInfo(
            name=name,
            seen_at=None if seen_at is None else from_micros(seen_at),
            running=running,
            info={} if info is None else msgspec.json.decode(info),
        )
        for name, seen_at, info, running in db.rows(sql.WORKERS)
    ]
