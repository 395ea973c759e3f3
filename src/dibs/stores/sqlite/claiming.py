"""Taking jobs out of the line, and what becomes of those whose time is over."""

from dibs import limits as rules
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.ending import end
from dibs.stores.sqlite.flows import needs_of
from dibs.stores.sqlite.rows import Attempt, Taken, blamed
from dibs.stores.sqlite.taking import First, take
from dibs.stores.sqlite.walking import Walk, Wanted, verdict

_FLOW = 10
"""Where the rows of take.sql have the flow."""


def claim(db: Connection, wanted: Wanted, now: int) -> Taken:
    """Take the first jobs of the queue. Where nothing has to be judged, priority by priority, all at once."""
    paused, lifo, ageing, expired, late, limited, aside, priority = db.rows(sql.LOOK, (wanted.queue, now))[0]
    if paused:
        rows = []
    elif expired or late or limited or aside or ageing is not None:
        walk = Walk(db, wanted, now, lifo=lifo, ageing=ageing)
        rows = walk.take(expired=expired, late=late, aside=aside, priority=priority)
    else:
        rows = _at_once(db, wanted, lifo, priority, now)
    steps = [row[1] for row in rows if row[_FLOW] is not None]
    return Taken(rows, now + wanted.lease, needs_of(db, steps) if steps else {})


def _at_once(db: Connection, wanted: Wanted, lifo: int, priority: int | None, now: int) -> list[Row]:
    """Step from priority to priority that has due jobs, taking the first ones of each."""
    taken: list[Row] = []
    left = wanted.limit
    while priority is not None:
        first = First(wanted.queue, priority, now, left, wanted.tasks)
        rows = take(db, first, wanted.worker, now + wanted.lease, lifo=lifo, limited=False)
        taken += rows
        left -= len(rows)
        if not left:
            break
        found = db.rows(sql.NEXT_PRIORITY, (wanted.queue, priority, now))
        priority = found[0][0] if found else None
    return taken


def sweep(db: Connection, limit: int, now: int) -> int:
    """Recover expired jobs of all queues, the longest expired first, then end what must not start any more."""
    rows = db.rows(sql.EXPIRED, (now, limit))
    late = _late(db, limit - len(rows), now) if len(rows) < limit else []
    for row in rows:
        _recover(db, Attempt(*row), now)
    for job in late:
        end(db, job, "cancelled", now)
    db.run(sql.DROP_FULL_BUCKETS, (now,))
    db.run(sql.DROP_IDLE_USE)
    db.run(sql.DROP_ASKED)
    return len(rows) + len(late)


def _recover(db: Connection, attempt: Attempt, now: int) -> None:
    """Close the books on an attempt whose lease expired."""
    errors = blamed(attempt, now, rules.LEASE_EXPIRED)
    asked = attempt.cancel_asked
    if attempt.flow is not None:  # the end of another step may have asked since
        asked = db.rows(sql.ASKED, (attempt.id,))[0][0]
    state = verdict(attempt, asked, now)
    if state is not None:
        end(db, attempt.id, state, now, errors=errors)
    else:
        db.run(sql.PUT_BACK, (attempt.id, attempt.run_at, attempt.attempts, None, errors))


def _late(db: Connection, limit: int, now: int) -> list[bytes]:
    """Queued jobs of all queues that must not start any more, the longest first."""
    queues = [row[0] for row in db.rows(sql.EXPIRING_QUEUES)]
    found = [row for queue in queues for row in db.rows(sql.NOT_IN_TIME, (queue, now, limit))]
    return [job for _, job in sorted(found)[:limit]]
