"""Taking jobs out of the line, and what becomes of those whose owners went away."""

from typing import NamedTuple

from dibs import limits as rules
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.ending import end
from dibs.stores.sqlite.flows import needs_of
from dibs.stores.sqlite.rows import Attempt, Taken, blamed

_BEFORE_ALL = rules.PRIORITIES[0] - 1


class Wanted(NamedTuple):
    """What a claim asks for; ``tasks`` is a JSON array, times are in microseconds."""

    queue: str
    worker: str
    limit: int
    lease: int
    tasks: str | None


_FLOW = 9
"""Where the rows of take.sql have the flow."""


def claim(db: Connection, wanted: Wanted, now: int) -> Taken:
    """Step from priority to priority that has due jobs, taking the first ones of each."""
    taken: list[tuple[int, list[Row]]] = []
    locked_until = now + wanted.lease
    paused, lifo, unseen, expired, priority = db.rows(sql.LOOK, (wanted.queue, now))[0]
    if paused:
        return Taken(taken, locked_until, {})
    if unseen:
        db.run(sql.LINE_UP, (wanted.queue, now))
        priority = _next_priority(db, wanted.queue, _BEFORE_ALL, now)
    left = wanted.limit
    while priority is not None:
        some = left
        if unseen or expired:
            some = _clear_the_way(db, (wanted.queue, priority, now, left, wanted.tasks), now, lifo)
        rows = db.rows(
            sql.TAKE[lifo],
            (wanted.queue, priority, now, some, wanted.tasks, wanted.worker, locked_until),
        )
        if rows:
            if len(rows) > 1:
                rows.sort(key=_place, reverse=lifo)
            taken.append((priority, rows))
            left -= len(rows)
        if not left:
            break
        if len(rows) < some:
            priority = _next_priority(db, wanted.queue, priority, now)
    steps = [row[1] for _, rows in taken for row in rows if row[_FLOW] is not None]
    return Taken(taken, locked_until, needs_of(db, steps) if steps else {})


def _next_priority(db: Connection, queue: str, before: int, now: int) -> int | None:
    found = db.rows(sql.NEXT_PRIORITY, (queue, before, now))
    return found[0][0] if found else None


def _place(row: Row) -> Row:
    return row[:2]


def _clear_the_way(db: Connection, ahead: Row, now: int, lifo: int) -> int:
    """Make the jobs that are about to be taken plain queued ones; answers how many of them may be taken at once.

    Those whose leases expired are ended or put back into their places; as one that ends makes room for the
    next, look again until there is none. With a step among them it goes one by one: if it ends, those before
    it are taken and those behind it are not.
    """
    queue, priority, _, limit, tasks = ahead
    while rows := db.rows(sql.EXPIRED_AHEAD[lifo], (queue, priority, now, limit, tasks)):
        if limit > 1 and any(Attempt(*row).flow is not None for row in rows):
            limit = 1
            continue
        for row in rows:
            recover(db, Attempt(*row), now)
    return int(limit)


def recover(db: Connection, attempt: Attempt, now: int) -> None:
    """Close the books on an attempt whose lease expired."""
    errors = blamed(attempt, now, rules.LEASE_EXPIRED)
    asked = attempt.cancel_asked
    if attempt.flow is not None:  # the end of another step may have asked since
        asked = db.rows(sql.ASKED, (attempt.id,))[0][0]
    if asked:
        end(db, attempt.id, "cancelled", now, errors=errors)
    elif attempt.attempts >= attempt.max_attempts:
        end(db, attempt.id, "failed", now, errors=errors)
    else:
        db.run(sql.PUT_BACK, (attempt.id, attempt.run_at, attempt.attempts, None, errors))


def sweep(db: Connection, limit: int, now: int) -> int:
    """Recover expired jobs of all queues, the longest expired first."""
    rows = db.rows(sql.EXPIRED, (now, limit))
    for row in rows:
        recover(db, Attempt(*row), now)
    return len(rows)
