"""Reading: each function sees one instant of the file."""

from collections.abc import Collection
from uuid import UUID

import msgspec

from dibs.clock import from_micros, to_micros
from dibs.job import FINISHED, Counted, Filter, Flow, FlowPage, FlowState, Job, Page, State, WorkerInfo
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.filters import UNSUCCESSFUL, Halves, halves
from dibs.stores.sqlite.flows import needs_of
from dibs.stores.sqlite.rows import as_flow, as_job, as_uuid

_LAST = b"\xff" * 17
"""Behind every id."""
FEW = 5_000
"""Jobs that are read, and then sorted, rather than looked for in the order of all."""
_FLOW = 22
"""Where the rows of get.sql and its like have the flow."""


def get(db: Connection, job: UUID) -> Job | None:
    row = db.row(sql.GET, (job.bytes,))
    return None if row is None else _as_jobs(db, [row])[0]


def find(db: Connection, which: Filter, after: UUID | None, limit: int, most: int | None = None) -> Page:
    chosen = halves(which, after)
    if chosen.finished and _few_ended(db, which, chosen):
        chosen = chosen.by_end()
    floor = None if most is None or chosen.few else _floor(db, chosen, after, most)
    found = matching(db, chosen if floor is None else chosen.above(floor), sql.UNFINISHED, sql.FINISHED, limit + 1)
    jobs = tuple(_as_jobs(db, found[:limit]))
    if len(found) > limit:
        return Page(jobs, jobs[-1].id)
    return Page(jobs, None if floor is None else as_uuid(floor))


def _few_ended(db: Connection, which: Filter, chosen: Halves) -> bool:
    """Whether few jobs ended in the time that is asked for: then they are found by that."""
    if which.finished_since is None:
        return False
    params = {"since": to_micros(which.finished_since), "limit": FEW}
    ended = [db.rows(sql.COUNT_ENDED, {**params, "state": str(state)})[0][0] for state in chosen.states & FINISHED]
    return bool(sum(ended) < FEW)


def _floor(db: Connection, which: Halves, after: UUID | None, most: int) -> bytes | None:
    """The id of the last job that is looked at; None if all of them are."""
    behind = {"after": _LAST if after is None else after.bytes, "most": most}
    ended = which.states & FINISHED
    asked = [(sql.FLOOR_UNFINISHED, behind)] if which.unfinished else []
    if ended and ended <= UNSUCCESSFUL:
        asked += [(sql.FLOOR_ENDED, {**behind, "state": str(state)}) for state in ended]
    elif which.finished:
        asked.append((sql.FLOOR_FINISHED, behind))
    return max((row[0] for statement, params in asked for row in db.rows(statement, params)), default=None)


def _as_jobs(db: Connection, rows: list[Row]) -> list[Job]:
    needs = needs_of(db, [row[0] for row in rows if row[_FLOW] is not None])
    return [as_job(row, needs.get(row[0], ())) for row in rows]


def matching(db: Connection, which: Halves, unfinished: str, finished: str, limit: int) -> list[Row]:
    """Rows of both tables, newest id first. The two statements give the same columns, the id first."""
    parts = [unfinished.format(where=where) for where in which.unfinished]
    parts += [finished.format(where=where) for where in which.finished]
    if not parts:
        return []
    statement = " UNION ALL ".join(parts) + " ORDER BY id DESC LIMIT :limit"
    return db.rows(statement, {**which.params, "limit": limit})


def count(
    db: Connection, which: Filter, states: frozenset[State], after: UUID | None, most: int | None = None
) -> Counted:
    chosen = halves(which, after, states)
    tables = [("dibs_jobs", where) for where in chosen.unfinished]
    tables += [("dibs_history", where) for where in chosen.finished]
    found, left = 0, -1 if most is None else most  # of a limit below 0 SQLite makes none
    for table, where in tables:
        statement = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where} LIMIT :left)"  # noqa: S608
        found += db.rows(statement, {**chosen.params, "left": left})[0][0]
        left = -1 if most is None else most - found
    return Counted(found, complete=most is None or found < most)


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
