"""Taking the first jobs of one priority, all at once."""

from operator import itemgetter
from typing import NamedTuple

import apsw
import msgspec

from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row, many

FEW = 10
"""So many are taken by one statement that gives them row by row."""
_PLACE = itemgetter(0, 1)
"""Where a row stands in its priority."""

_Due = tuple[int, str, int, int, str, str, int, int, int, str | None, str, str | None, str]
_decode = msgspec.json.Decoder(list[_Due]).decode
_unhex = bytes.fromhex


class First(NamedTuple):
    """Which jobs: the parameters of first_due.sql, and the first ones of take.sql."""

    queue: str
    priority: int
    now: int
    limit: int
    tasks: str | None


def take(db: Connection, first: First, worker: str, until: int, *, lifo: int, limited: bool) -> list[Row]:
    """Claim the first jobs, where none in line is running. Gives the rows of take.sql, in the order of the queue."""
    if first.limit > FEW:
        try:
            return _take_many(db, first, worker, until, lifo=lifo, limited=limited)
        except apsw.TooBigError:  # together their arguments are longer than a text of SQLite may be
            pass
    rows = db.rows(sql.TAKE[lifo], (*first, worker, until, limited))
    if len(rows) > 1:
        rows.sort(key=_PLACE, reverse=bool(lifo))
    return rows


def _take_many(db: Connection, first: First, worker: str, until: int, *, lifo: int, limited: bool) -> list[Row]:
    """Look first, then claim: two steps, however many jobs.

    Each row that SQLite gives is a step, and after each the thread waits for the interpreter. Where others keep that
    busy, such as handlers that compute, it waits for 5 ms each time.
    """
    due = _decode(db.rows(sql.FIRST_DUE[lifo], first)[0][0])
    rows: list[Row] = [
        (run_at, _unhex(id_), *values, _unhex(flow) if flow else None, step, meta)
        for run_at, id_, *values, flow, step, meta in due
    ]
    rows.sort(key=_PLACE, reverse=bool(lifo))  # they are in order: SQLite says so nowhere
    if rows:
        db.run(sql.TAKE_ALL, (many([row[1] for row in rows]), worker, until, first.now, limited))
    return rows
