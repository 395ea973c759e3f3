"""Limits: how much room they leave, and setting them.

What is running is counted where the jobs are, by indexes that only jobs under such limits stand in. SQLite has one
writer, so what was counted holds until the claim is done. A rate is kept as the moment when its bucket is full again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

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


class Bounds(NamedTuple):
    """A row of limit.sql."""

    concurrency: int | None
    starts: int | None
    per: int
    rank: int

    @property
    def rate(self) -> Rate | None:
        return None if self.starts is None else Rate(self.starts, timedelta(microseconds=self.per))


class Gauge:
    """What one limit leaves during one claim."""

    __slots__ = ("apart", "free", "full_at", "taken")

    def __init__(self, bounds: Bounds, running: int, full_at: int | None, now: int) -> None:
        self.free = UNLIMITED if bounds.concurrency is None else bounds.concurrency - running
        self.taken = 0
        self.apart = 0
        self.full_at = full_at or 0
        if bounds.rate is not None:
            self.apart = bounds.rate.apart
            owed = -(-max(0, self.full_at - now) // self.apart)
            self.free = min(self.free, bounds.rate.count - owed)

    def take(self, count: int) -> None:
        self.free -= count
        self.taken += count


def _bounds(db: Connection, kind: str, name: str) -> Bounds | None:
    row = db.row(sql.LIMIT, (kind, name))
    return None if row is None else Bounds(*row)


def _use(db: Connection, place: Place, now: int) -> tuple[int, int | None]:
    """How many jobs there are running, and when the bucket of the rate is full again."""
    match place.kind:
        case "queue":
            row = db.rows(sql.USE_OF_QUEUE, (place.name, now))[0]
        case "task":
            row = db.rows(sql.USE_OF_TASK, (place.name, now))[0]
        case _:
            row = _use_of_keys(db, place.name, [place.key], now)[0][1:]
    return row[0], row[1]


def _use_of_keys(db: Connection, queue: str, keys: Collection[str], now: int) -> list[Row]:
    """The same for limit keys, all at once, each with its name before it."""
    return db.rows(sql.USE_OF_KEYS, (queue, msgspec.json.encode(list(keys)).decode(), now))


class Rooms:
    """The gauges that the jobs of one queue come under, during one claim. Each is read when it is first asked for."""

    def __init__(self, db: Connection, queue: str, now: int) -> None:
        self._db = db
        self._name = queue
        self._now = now
        self._each_key = _bounds(db, "key", queue)
        self._keys: dict[str, Gauge] = {}
        self._tasks: dict[str, Gauge | None] = {}
        self._classes: dict[tuple[str, str], tuple[Gauge, ...]] = {}
        self.queue = self._read("queue", queue)
        self.alike = self._each_key is None and not db.rows(sql.TASKS_LIMITED)
        """All jobs of the queue come under the same limits."""

    def _read(self, kind: str, name: str) -> Gauge | None:
        bounds = _bounds(self._db, kind, name)
        return None if bounds is None else Gauge(bounds, *_use(self._db, Place(kind, name), self._now), self._now)

    def _task(self, task: str) -> Gauge | None:
        if task not in self._tasks:
            self._tasks[task] = self._read("task", task)
        return self._tasks[task]

    def _read_keys(self, keys: Iterable[str]) -> None:
        unread = {key for key in keys if key and key not in self._keys}
        if self._each_key is not None and unread:
            for key, running, full_at in _use_of_keys(self._db, self._name, unread, self._now):
                self._keys[key] = Gauge(self._each_key, running, full_at, self._now)

    def of(self, task: str, limit_key: str) -> tuple[Gauge, ...]:
        """The gauges of a job with this task and this limit key."""
        found = self._classes.get((task, limit_key))
        if found is None:
            self._read_keys([limit_key])
            all_of_it = (self.queue, self._task(task), self._keys.get(limit_key))
            found = self._classes[task, limit_key] = tuple(gauge for gauge in all_of_it if gauge is not None)
        return found

    def free(self, task: str, limit_key: str) -> int:
        """How many such jobs there is room for."""
        return min((gauge.free for gauge in self.of(task, limit_key)), default=UNLIMITED)

    def take_all(self, jobs: Sequence[Row]) -> bool:
        """Take room for jobs, given by task and limit key, if there is room for all of them."""
        tasks, keys = Counter(map(itemgetter(0), jobs)), Counter(map(itemgetter(1), jobs))
        self._read_keys(keys)
        wanted = [(self.queue, len(jobs))]
        wanted += [(self._task(task), count) for task, count in tasks.items()]
        wanted += [(self._keys.get(key), count) for key, count in keys.items()]
        concerned = [(gauge, count) for gauge, count in wanted if gauge is not None]
        if any(gauge.free < count for gauge, count in concerned):
            return False
        for gauge, count in concerned:
            gauge.take(count)
        return True

    def full_tasks(self) -> list[str]:
        return [task for task, gauge in self._tasks.items() if gauge is not None and gauge.free <= 0]

    def full_keys(self) -> list[str]:
        return [key for key, gauge in self._keys.items() if gauge.free <= 0]

    def close(self) -> None:
        """Keep what the rates have let through."""
        gauges = [(Place("queue", self._name), self.queue)]
        gauges += [(Place("task", task), gauge) for task, gauge in self._tasks.items()]
        gauges += [(Place("key", self._name, key), gauge) for key, gauge in self._keys.items() if gauge.apart]
        poured = [
            (*place, max(gauge.full_at, self._now) + gauge.taken * gauge.apart)
            for place, gauge in gauges
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
    there = _bounds(db, *place[:2])
    if there is not None and there.rank > rank:
        return
    db.run(sql.SET_LIMIT, (*place[:2], limit.concurrency, *rate, rank))
    if there is not None and there.rate != limit.rate:
        db.run(sql.DROP_BUCKETS, place[:2])
    if there is None:
        db.run(sql.COUNT_RUNNING, (scope.task, scope.queue))


def _place(scope: Scope) -> Place:
    if scope.task is not None:
        return Place("task", scope.task)
    assert scope.queue is not None
    return Place("key" if scope.each_key else "queue", scope.queue)


def limits(db: Connection, job: UUID | None, now: int) -> list[LimitUse]:
    """The limits that are set, or those that a job comes under."""
    if job is None:
        return [_shown(db, Place(*row[:2]), Bounds(*row[2:]), now) for row in db.rows(sql.LIMITS)]
    places = [place for row in db.rows(sql.CLASSED, (job.bytes,)) for place in _over(*row)]
    set_there = [(place, _bounds(db, *place[:2])) for place in places]
    return [_shown(db, place, bounds, now) for place, bounds in set_there if bounds is not None]


def _over(queue: str, task: str, limit_key: str) -> Iterator[Place]:
    """Where there may be limits for a job."""
    yield Place("queue", queue)
    if limit_key:
        yield Place("key", queue, limit_key)
    yield Place("task", task)


def _shown(db: Connection, place: Place, bounds: Bounds, now: int) -> LimitUse:
    """A limit, and how far it is used; of keys in general that is not said."""
    kind, name, key = place
    shown = LimitUse(
        scope=Scope(task=name) if kind == "task" else Scope(queue=name, each_key=kind == "key"),
        limit=Limit(concurrency=bounds.concurrency, rate=bounds.rate),
        rank=bounds.rank,
        key=key or None,
    )
    if kind == "key" and not key:
        return shown
    running, full_at = _use(db, place, now)
    opens_at = 0 if bounds.rate is None else rules.opens_at(bounds.rate, full_at or 0)
    return replace(shown, running=running, next_start=from_micros(opens_at) if opens_at > now else None)
