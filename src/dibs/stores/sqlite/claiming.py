"""Taking jobs out of the line, and what becomes of those whose owners went away."""

from typing import NamedTuple

from dibs import limits as rules
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.rows import Attempt, blamed

_BEFORE_ALL = rules.PRIORITIES[0] - 1


class Wanted(NamedTuple):
    """What a claim asks for; ``tasks`` is a JSON array, times are in microseconds."""

    queue: str
    worker: str
    limit: int
    lease: int
    tasks: str | None


Taken = list[tuple[int, list[Row]]]
"""Rows of take.sql by priority, each list in the order of the queue."""


def claim(db: Connection, wanted: Wanted, now: int) -> tuple[Taken, int]:
    """Step from priority to priority that has due jobs, taking the first ones of each; says until when."""
    taken: Taken = []
    locked_until = now + wanted.lease
    paused, lifo, unseen, expired, priority = db.rows(sql.LOOK, (wanted.queue, now))[0]
    if paused:
        return taken, locked_until
    if unseen:
        db.run(sql.LINE_UP, (wanted.queue, now))
        priority = _next_priority(db, wanted.queue, _BEFORE_ALL, now)
    left = wanted.limit
    while priority is not None:
        if unseen or expired:
            _clear_the_way(db, (wanted.queue, priority, now, left, wanted.tasks), now, lifo)
        rows = db.rows(
            sql.TAKE[lifo],
            (wanted.queue, priority, now, left, wanted.tasks, wanted.worker, locked_until),
        )
        if rows:
            if len(rows) > 1:
                rows.sort(key=_place, reverse=lifo)
            taken.append((priority, rows))
            left -= len(rows)
        priority = _next_priority(db, wanted.queue, priority, now) if left else None
    return taken, locked_until


def _next_priority(db: Connection, queue: str, before: int, now: int) -> int | None:
    found = db.rows(sql.NEXT_PRIORITY, (queue, before, now))
    return found[0][0] if found else None


def _place(row: Row) -> Row:
    return row[:2]


def _clear_the_way(db: Connection, ahead: Row, now: int, lifo: int) -> None:
    """Make the jobs that are about to be taken plain queued ones.

    Those whose leases expired are ended or put back into their places; as one that ends makes room for the
    next, look again until there is none.
    """
    while rows := db.rows(sql.EXPIRED_AHEAD[lifo], ahead):
        for row in rows:
            recover(db, Attempt(*row), now)


def recover(db: Connection, attempt: Attempt, now: int) -> None:
    """Close the books on an attempt whose lease expired."""
    errors = blamed(attempt, now, rules.LEASE_EXPIRED)
    if attempt.cancel_asked:
        retire(db, attempt.id, "cancelled", now, errors=errors)
    elif attempt.attempts >= attempt.max_attempts:
        retire(db, attempt.id, "failed", now, errors=errors)
    else:
        db.run(sql.PUT_BACK, (attempt.id, attempt.run_at, attempt.attempts, None, errors))


def retire(
    db: Connection,
    job: bytes,
    state: str,
    now: int,
    *,
    outcome: str | None = None,
    errors: str | None = None,
    cancel_asked: bool = False,
) -> None:
    """Move an unfinished job to the history."""
    db.run(sql.RETIRE, (job, state, now, outcome, errors, int(cancel_asked)))
    db.run(sql.REMOVE, (job,))


def sweep(db: Connection, limit: int, now: int) -> int:
    """Recover expired jobs of all queues, the longest expired first."""
    rows = db.rows(sql.EXPIRED, (now, limit))
    for row in rows:
        recover(db, Attempt(*row), now)
    return len(rows)
