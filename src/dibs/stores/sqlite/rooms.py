"""Limits: how much room they leave, and setting them.

What is running is counted where the jobs are, by indexes that only jobs under such limits stand in. SQLite has one
writer, so what was counted holds until the claim is done. A rate is kept as the moment at which its bucket is full again.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from dibs.clock import from_micros, span_micros
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection

UNLIMITED = 1 << 62


class Place(NamedTuple):
    """What a limit is about: a queue, a task, or a key of a queue; ``key`` is empty for the others."""

    kind: str
    name: str
    key: str = ""


class Gauge:
    """What one limit leaves during one claim."""

    __slots__ = ("apart", "concurrency", "free", "place", "taken", "tat")

    def __init__(self, place: Place, concurrency: int | None, apart: int, tat: int) -> None:
        self.place = place
        self.concurrency = concurrency
        self.apart = apart
        """Microseconds between two starts, 0 without a rate."""
        self.tat = tat
        self.free = UNLIMITED
        self.taken = 0

    def take(self) -> None:
        self.free -= 1
        self.taken += 1


def _gauge(db: Connection, place: Place, now: int) -> Gauge | None:
    row = db.row(sql.LIMIT, (place.kind, place.name))
    if row is None:
        return None
    concurrency, starts, per, _ = row
    if starts is None:
        gauge = Gauge(place, concurrency, 0, 0)
    else:
        gauge = Gauge(place, concurrency, -(-per // starts), _tat(db, place))
        gauge.free = max(0, starts - -(-max(0, gauge.tat - now) // gauge.apart))
    if concurrency is not None:
        gauge.free = min(gauge.free, concurrency - _running(db, place, now))
    return gauge


def _tat(db: Connection, place: Place) -> int:
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
            (*gauge.place, max(gauge.tat, now) + gauge.taken * gauge.apart)
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
    found = db.row(sql.CLASSED, (job.bytes,))
    return [] if found is None else list(_uses(db, *found, now))


def _uses(db: Connection, queue: str, task: str, limit_key: str, now: int) -> Iterable[LimitUse]:
    places = [Place("queue", queue), Place("key", queue, limit_key), Place("task", task)]
    for place in places:
        if place.kind == "key" and not limit_key:
            continue
        if (row := db.row(sql.LIMIT, place[:2])) is not None:
            yield _use(db, place, (*place[:2], *row), now)


def _use(db: Connection, place: Place, row: tuple[str, str, int | None, int, int, int], now: int) -> LimitUse:
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
    running = _running(db, place, now)
    return msgspec.structs.replace(use, running=running, next_start=_next_start(rate, _tat(db, place), now))


def _next_start(rate: Rate | None, tat: int, now: int) -> datetime | None:
    if rate is None or (tat - now) <= (rate.count - 1) * rate.apart:
        return None
    return from_micros(tat - (rate.count - 1) * rate.apart)
