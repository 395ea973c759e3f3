"""Limits: how much room they leave, and setting them.

What is running is counted where the jobs are, by indexes that only jobs under such limits stand in. SQLite has one
writer, so what was counted holds until the claim is done. A rate is kept as the moment when its bucket is full again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """What one limit leaves during one claim: for each limit key, or, under the empty key, for all it is about."""

    __slots__ = ("_full_at", "_now", "_taken", "concurrency", "free", "rate")

    def __init__(self, bounds: Bounds, now: int) -> None:
        self.concurrency = UNLIMITED if bounds.concurrency is None else bounds.concurrency
        self.rate = bounds.rate
        self.free: dict[str, int] = {}
        self._now = now
        self._full_at: dict[str, int] = {}
        self._taken: Counter[str] = Counter()

    def read(self, running: Iterable[Row], full_at: Mapping[str, int]) -> None:
        """Told how many jobs are running, by keys, and when which buckets are full again."""
        most = self.concurrency
        self.free.update({key: most - count for key, count in running})
        if self.rate is not None:
            self._full_at.update(full_at)
            for key, then in full_at.items():
                owed = -(-max(0, then - self._now) // self.rate.apart)
                self.free[key] = min(self.free[key], self.rate.count - owed)

    def without(self, counts: Mapping[str, int]) -> dict[str, int]:
        """What would be left for these keys; less than nothing if there is no room."""
        free = self.free
        return {key: free[key] - count for key, count in counts.items()}

    def take(self, counts: Mapping[str, int], left: Mapping[str, int] | None = None) -> None:
        """Take room, told what is left then, if that is known already."""
        self.free.update(self.without(counts) if left is None else left)
        if self.rate is not None:
            self._taken.update(counts)

    def poured(self) -> list[tuple[str, int]]:
        """The keys whose buckets have been taken from, with the moments when they are full again."""
        if self.rate is None:
            return []
        apart = self.rate.apart
        return [(key, max(self._full_at[key], self._now) + count * apart) for key, count in self._taken.items()]


def _bounds(db: Connection, kind: str, name: str) -> Bounds | None:
    row = db.row(sql.LIMIT, (kind, name))
    return None if row is None else Bounds(*row)


def _use(db: Connection, place: Place, now: int) -> tuple[int, int]:
    """How many jobs there are running, and when the bucket of the rate is full again."""
    match place.kind:
        case "queue":
            row = db.rows(sql.USE_OF_QUEUE, (place.name, now))[0]
        case "task":
            row = db.rows(sql.USE_OF_TASK, (place.name, now))[0]
        case _:
            keys = _json([place.key])
            row = (
                db.rows(sql.RUNNING_OF_KEYS, (place.name, keys, now))[0][1],
                _full_at(db, place.name, keys).get(place.key),
            )
    return row[0], row[1] or 0


def _full_at(db: Connection, queue: str, keys: str) -> dict[str, int]:
    """When the buckets of limit keys, given as JSON, are full again; without those that are full."""
    return dict(db.rows(sql.BUCKETS_OF_KEYS, (queue, keys)))


class Rooms:
    """The gauges that the jobs of one queue come under, during one claim. Each is read when it is first asked for."""

    def __init__(self, db: Connection, queue: str, now: int) -> None:
        self._db = db
        self._name = queue
        self._now = now
        self._queue = self._read("queue", queue)
        each_key = _bounds(db, "key", queue)
        self._keys = None if each_key is None else Gauge(each_key, now)
        self._tasks_limited = bool(db.rows(sql.TASKS_LIMITED))
        self._tasks: dict[str, Gauge | None] = {}
        self._classes: dict[tuple[str, str], list[tuple[Gauge, str]]] = {}
        self.alike = self._keys is None and not self._tasks_limited
        """All jobs of the queue come under the same limits."""

    def _read(self, kind: str, name: str) -> Gauge | None:
        bounds = _bounds(self._db, kind, name)
        if bounds is None:
            return None
        gauge = Gauge(bounds, self._now)
        running, full_at = _use(self._db, Place(kind, name), self._now)
        gauge.read([("", running)], {"": full_at})
        return gauge

    def _task(self, task: str) -> Gauge | None:
        if task not in self._tasks:
            self._tasks[task] = self._read("task", task)
        return self._tasks[task]

    def _read_keys(self, gauge: Gauge, keys: Iterable[str]) -> None:
        unread = [key for key in keys if key not in gauge.free]
        if unread:
            wanted = _json(unread)
            running = self._db.rows(sql.RUNNING_OF_KEYS, (self._name, wanted, self._now))
            full_at = {} if gauge.rate is None else dict.fromkeys(unread, 0) | _full_at(self._db, self._name, wanted)
            gauge.read(running, full_at)

    @property
    def free_in_queue(self) -> int:
        """How much the limit of the queue leaves."""
        return UNLIMITED if self._queue is None else self._queue.free[""]

    def of(self, task: str, limit_key: str) -> list[tuple[Gauge, str]]:
        """The gauges of a job with this task and this limit key, and under which key it stands in each."""
        found = self._classes.get((task, limit_key))
        if found is None:
            found = [(gauge, "") for gauge in (self._queue, self._task(task)) if gauge is not None]
            if self._keys is not None and limit_key:
                self._read_keys(self._keys, [limit_key])
                found.append((self._keys, limit_key))
            self._classes[task, limit_key] = found
        return found

    def free(self, task: str, limit_key: str) -> int:
        """How many such jobs there is room for."""
        return min((gauge.free[key] for gauge, key in self.of(task, limit_key)), default=UNLIMITED)

    def take_in_queue(self, count: int) -> None:
        """Take room for jobs where all are alike."""
        if self._queue is not None:
            self._queue.take({"": count})

    def take_all(self, jobs: Sequence[Row]) -> bool:
        """Take room for jobs, given by task and limit key, if there is room for all of them."""
        wanted: list[tuple[Gauge | None, Mapping[str, int]]] = [(self._queue, {"": len(jobs)})]
        if self._tasks_limited:
            tasks = Counter(map(itemgetter(0), jobs))
            wanted += [(self._task(task), {"": count}) for task, count in tasks.items()]
        if self._keys is not None:
            keys = Counter(map(itemgetter(1), jobs))
            del keys[""]
            self._read_keys(self._keys, keys)
            wanted.append((self._keys, keys))
        taken = [(gauge, counts, gauge.without(counts)) for gauge, counts in wanted if gauge is not None and counts]
        if any(min(left.values()) < 0 for _, _, left in taken):
            return False
        for gauge, counts, left in taken:
            gauge.take(counts, left)
        return True

    def full_tasks(self) -> list[str]:
        return [task for task, gauge in self._tasks.items() if gauge is not None and gauge.free[""] <= 0]

    def full_keys(self) -> list[str]:
        return [] if self._keys is None else [key for key, free in self._keys.free.items() if free <= 0]

    def close(self) -> None:
        """Keep what the rates have let through."""
        gauges = [("queue", self._name, self._queue), ("key", self._name, self._keys)]
        gauges += [("task", task, gauge) for task, gauge in self._tasks.items()]
        poured = [
            (kind, name, *bucket) for kind, name, gauge in gauges if gauge is not None for bucket in gauge.poured()
        ]
        if poured:
            self._db.run_all(sql.POUR, poured)


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


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
    opens_at = 0 if bounds.rate is None else rules.opens_at(bounds.rate, full_at)
    return replace(shown, running=running, next_start=from_micros(opens_at) if opens_at > now else None)
