"""Limits: how much room they leave, and setting them.

What is running is counted where the jobs are, by indexes that only jobs under such limits stand in. SQLite has one
writer, so what was counted holds until the claim is done. A rate is kept as the moment when its bucket is full again.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros, span_micros
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row

UNLIMITED = 1 << 62


class Place(NamedTuple):
    """What a limit is about: a queue, a task, or a key of a queue; ``key`` is empty for the others."""

    kind: str
    name: str
    key: str = ""


class Gauge:
    """What one limit leaves during one claim."""

    __slots__ = ("apart", "free", "full_at", "place", "taken")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.free = UNLIMITED
        self.apart = 0
        """Microseconds between two starts, 0 without a rate."""
        self.full_at = 0
        """When the bucket of the rate is full again."""
        self.taken = 0

    def take(self) -> None:
        self.free -= 1
        self.taken += 1


def _gauge(db: Connection, place: Place, now: int) -> Gauge | None:
    row = db.row(sql.LIMIT, (place.kind, place.name))
    if row is None:
        return None
    concurrency, starts, per, _ = row
    gauge = Gauge(place)
    if starts is not None:
        gauge.apart, gauge.full_at = Rate(starts, timedelta(microseconds=per)).apart, _full_at(db, place)
        owed = -(-max(0, gauge.full_at - now) // gauge.apart)
        gauge.free = starts - owed
    if concurrency is not None:
        gauge.free = min(gauge.free, concurrency - _running(db, place, now))
    return gauge


def _full_at(db: Connection, place: Place) -> int:
    row = db.row(sql.BUCKET, place)
    return 0 if row is None else row[0]


def _running(db: Connection, place: Place, now: int) -> int:
    match place.kind:
        case "queue":
            rows = db.rows(sql.RUNNING_OF_QUEUE, (place.name, now))
        case "key":
            rows = db.rows(sql.RUNNING_OF_KEY, (place.name, place.key, now))
        case _:
            rows = db.rows(sql.RUNNING_OF_TASK, (place.name, now))
    return int(rows[0][0])


class Rooms:
    """The gauges that the jobs of one queue come under, during one claim. Each is read when it is first asked for."""

    def __init__(self, db: Connection, queue: str, now: int) -> None:
        self._db = db
        self._queue = queue
        self._now = now
        self._gauges: dict[Place, Gauge | None] = {}
        self._classes: dict[tuple[str, str], tuple[Gauge, ...]] = {}
        self.queue = self._at(Place("queue", queue))

    def _at(self, place: Place) -> Gauge | None:
        if place not in self._gauges:
            self._gauges[place] = _gauge(self._db, place, self._now)
        return self._gauges[place]

    def of(self, task: str, limit_key: str) -> tuple[Gauge, ...]:
        """The gauges of a job with this task and this limit key."""
        found = self._classes.get((task, limit_key))
        if found is None:
            key = self._at(Place("key", self._queue, limit_key)) if limit_key else None
            all_of_it = (self.queue, self._at(Place("task", task)), key)
            found = self._classes[task, limit_key] = tuple(gauge for gauge in all_of_it if gauge is not None)
        return found

    def free(self, task: str, limit_key: str) -> int:
        """How many such jobs there is room for."""
        return min((gauge.free for gauge in self.of(task, limit_key)), default=UNLIMITED)

    def counted(self, task: str) -> bool:
        """Whether the task has a limit."""
        return self._at(Place("task", task)) is not None

    def full(self, kind: str) -> list[str]:
        """The names of the full tasks, or the full keys."""
        full = (gauge.place for gauge in self._gauges.values() if gauge is not None and gauge.free <= 0)
        return [place.key or place.name for place in full if place.kind == kind]

    def close(self) -> None:
        """Keep what the rates have let through."""
        now = self._now
        poured = [
            (*gauge.place, max(gauge.full_at, now) + gauge.taken * gauge.apart)
            for gauge in self._gauges.values()
            if gauge is not None and gauge.taken and gauge.apart
        ]
        if poured:
            self._db.run_all(sql.POUR, poured)


# --- setting and showing --------------------------------------------------------------------------------------


def set_limit(db: Connection, scope: Scope, limit: Limit | None, rank: int) -> None:
    """Set a limit, unless one of a higher rank is there, or take it away."""
    place = _place(scope)
    if limit is None:
        db.run(sql.DROP_LIMIT, place[:2])
        db.run(sql.DROP_BUCKETS, place[:2])
        return
    rate = (None, None) if limit.rate is None else (limit.rate.count, span_micros(limit.rate.per))
    there = db.row(sql.LIMIT, place[:2])
    if there is not None and there[3] > rank:
        return
    db.run(sql.SET_LIMIT, (*place[:2], limit.concurrency, *rate, rank))
    if there is not None and there[1:3] != rate:
        db.run(sql.DROP_BUCKETS, place[:2])
    if scope.task is not None and there is None:
        db.run(sql.COUNT_RUNNING, (scope.task,))


def _place(scope: Scope) -> Place:
    if scope.task is not None:
        return Place("task", scope.task)
    assert scope.queue is not None
    return Place("key" if scope.each_key else "queue", scope.queue)


def limits(db: Connection, job: UUID | None, now: int) -> list[LimitUse]:
    """The limits that are set, or those that a job comes under."""
    if job is None:
        return [_use(db, Place(*row[:2]), row, now) for row in db.rows(sql.LIMITS)]
    places = [place for row in db.rows(sql.CLASSED, (job.bytes,)) for place in _over(*row)]
    rows = [(place, db.row(sql.LIMIT, place[:2])) for place in places]
    return [_use(db, place, (*place[:2], *row), now) for place, row in rows if row is not None]


def _over(queue: str, task: str, limit_key: str) -> Iterator[Place]:
    """Where there may be limits for a job."""
    yield Place("queue", queue)
    if limit_key:
        yield Place("key", queue, limit_key)
    yield Place("task", task)


def _use(db: Connection, place: Place, row: Row, now: int) -> LimitUse:
    """A row of limits.sql, and how far it is used; of keys in general that is not said."""
    kind, name, concurrency, starts, per, rank = row
    rate = None if starts is None else Rate(starts, timedelta(microseconds=per))
    use = LimitUse(
        scope=Scope(task=name) if kind == "task" else Scope(queue=name, each_key=kind == "key"),
        limit=Limit(concurrency=concurrency, rate=rate),
        rank=rank,
        key=place.key or None,
    )
    if kind == "key" and not place.key:
        return use
    opens_at = 0 if rate is None else rules.opens_at(rate, _full_at(db, place))
    return msgspec.structs.replace(
        use, running=_running(db, place, now), next_start=from_micros(opens_at) if opens_at > now else None
    )
