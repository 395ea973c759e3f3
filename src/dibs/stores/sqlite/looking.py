"""Reading: each function sees one instant of the file."""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

import msgspec

from dibs.clock import from_micros
from dibs.job import Change, Filter, Flow, FlowPage, FlowState, Job, Order, Page, QueueCounts, State, WorkerInfo
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.filters import Halves, halves
from dibs.stores.sqlite.flows import needs_of
from dibs.stores.sqlite.rows import as_flow, as_job

_FLOW = 22
"""Where the rows of get.sql and its like have the flow."""


def get(db: Connection, job: UUID) -> Job | None:
    row = db.row(sql.GET, (job.bytes,))
    return None if row is None else _as_jobs(db, [row])[0]


def find(db: Connection, which: Filter, after: UUID | None, limit: int) -> Page:
    found = matching(db, halves(which, after), sql.UNFINISHED, sql.FINISHED, limit + 1)
    jobs = tuple(_as_jobs(db, found[:limit]))
    return Page(jobs, jobs[-1].id if len(found) > limit else None)


def _as_jobs(db: Connection, rows: list[Row]) -> list[Job]:
    needs = needs_of(db, [row[0] for row in rows if row[_FLOW] is not None])
    return [as_job(row, needs.get(row[0], ())) for row in rows]


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
    settings = {
        name: (bool(paused), Order(order), None if ageing is None else timedelta(microseconds=ageing))
        for name, paused, order, ageing in db.rows(sql.SETTINGS)
    }
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
            ageing=ageing,
            states=states[name],
            scheduled=scheduled,
            oldest_due=None if oldest is None else from_micros(oldest),
        )
        for name in sorted(states)
        for paused, order, ageing in [settings.get(name, (False, Order.FIFO, None))]
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


def flow(db: Connection, which: UUID) -> Flow | None:
    row = db.row(sql.FLOW, (which.bytes,))
    return None if row is None else _as_flow(db, row)


def flows(db: Connection, states: Collection[FlowState], after: UUID | None, limit: int) -> FlowPage:
    before = None if after is None else after.bytes
    rows = [row for state in states for row in db.rows(sql.FLOWS, (str(state), before, limit + 1))]
    rows.sort(reverse=True)
    page = tuple(_as_flow(db, row) for row in rows[:limit])
    return FlowPage(page, page[-1].id if len(rows) > limit else None)


def _as_flow(db: Connection, row: Row) -> Flow:
    return as_flow(row, db.rows(sql.COUNT_STEPS, (row[0],)))
