"""Limits: how much room they leave, and setting them.

How many jobs are held under a limit is kept by claims alone: whoever ends one leaves it as it is, so it may be too
much, but never too little. Where it leaves no room, what is running is counted where the jobs are, by indexes that only
jobs under limits stand in. SQLite has one writer, so what was counted holds until the claim is done. A rate is kept as
the moment when its bucket is full again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from dibs import limits as rules
from dibs.clock import from_micros, span_micros
from dibs.scope import Limit, LimitUse, Scope
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.gauges import UNLIMITED, Bounds, Gauge


class Place(NamedTuple):
    """What a limit is about: a queue, a task, or a key of a queue; ``key`` is empty for the others."""

    kind: str
    name: str
    key: str = ""


def _bounds(db: Connection, kind: str, name: str) -> Bounds | None:
    row = db.row(sql.LIMIT, (kind, name))
    return None if row is None else Bounds(*row)


def _use(db: Connection, kind: str, name: str, now: int) -> tuple[int, int, int]:
    """Of a queue or a task: how many jobs are running, how many are held, when the bucket of the rate is full again."""
    running, held, full_at = db.rows(sql.USE_OF_QUEUE if kind == "queue" else sql.USE_OF_TASK, (name, now))[0]
    return running, held, full_at or 0


def _use_of_keys(db: Connection, queue: str, now: int) -> tuple[Counter[str], Counter[str]]:
    """How many jobs of each limit key are running, and how many are held."""
    running: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for (key, valid), count in Counter(db.rows(sql.USE_OF_KEYS, (queue, now))).items():
        held[key] += count
        if valid:
            running[key] += count
    return running, held


def _full_at(db: Connection, queue: str, keys: str) -> dict[str, int]:
    """When the buckets of limit keys, given as JSON, are full again; without those that are full."""
    return dict(db.rows(sql.BUCKETS_OF_KEYS, (queue, keys)))


class Rooms:
    """The gauges that the jobs of one queue come under, during one claim. Each is read when it is first asked for."""

    def __init__(self, db: Connection, queue: str, limit: int, now: int) -> None:
        self._db = db
        self._name = queue
        self._limit = limit
        self._now = now
        self._queue = self._read("queue", queue)
        each_key = _bounds(db, "key", queue)
        self._keys = None if each_key is None else Gauge("key", queue, each_key, now)
        self._tasks_limited = bool(db.rows(sql.TASKS_LIMITED))
        self._tasks: dict[str, Gauge | None] = {}
        self._classes: dict[tuple[str, str], list[tuple[Gauge, str]]] = {}
        self.alike = self._keys is None and not self._tasks_limited
        """All jobs of the queue come under the same limits."""

    def _read(self, kind: str, name: str) -> Gauge | None:
        """Counted at once if there may be less room than the claim asks for."""
        bounds = _bounds(self._db, kind, name)
        if bounds is None:
            return None
        gauge = Gauge(kind, name, bounds, self._now)
        held, full_at = self._db.rows(sql.KNOWN_USE, (kind, name))[0]
        gauge.read([""], {"": held or 0}, {"": full_at or 0})
        if not gauge.sure and gauge.free[""] < self._limit:
            running, held, _ = _use(self._db, kind, name, self._now)
            gauge.count({"": running}, {"": held})
        return gauge

    def _task(self, task: str) -> Gauge | None:
        if task not in self._tasks:
            self._tasks[task] = self._read("task", task)
        return self._tasks[task]

    def _read_keys(self, gauge: Gauge, keys: Iterable[str]) -> None:
        unread = [key for key in keys if key not in gauge.free]
        if unread:
            wanted = _json(unread)
            held: dict[str, int] = dict(self._db.rows(sql.KNOWN_USE_OF_KEYS, (self._name, wanted)))
            gauge.read(unread, held, {} if gauge.rate is None else _full_at(self._db, self._name, wanted))

    def count_keys(self) -> None:
        """Be sure how many jobs of each limit key are running."""
        if self._keys is not None and not self._keys.sure:
            self._keys.count(*_use_of_keys(self._db, self._name, self._now))

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
        """How many such jobs there is surely room for; once ``count_keys`` was asked for, how many exactly."""
        return min((gauge.free[key] for gauge, key in self.of(task, limit_key)), default=UNLIMITED)

    def has_room(self, task: str, limit_key: str) -> bool:
        """Whether there is room for one more such job."""
        if self.free(task, limit_key) > 0:
            return True
        self.count_keys()
        return self.free(task, limit_key) > 0

    def take_in_queue(self, count: int) -> None:
        """Take room for jobs where all are alike."""
        if self._queue is not None:
            self._queue.take({"": count})

    def wrote(self) -> None:
        """What was taken so far is running: the keys may be counted yet, all else was before anything was taken."""
        if self._keys is not None and not self._keys.sure:
            self._keys.wrote()

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
            if any(left < 0 for left in self._keys.without(keys).values()):
                self.count_keys()
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
        self.count_keys()
        return [] if self._keys is None else [key for key, free in self._keys.free.items() if free <= 0]

    def close(self) -> None:
        """Keep what was taken, and what the rates have let through."""
        gauges = [gauge for gauge in (self._queue, self._keys, *self._tasks.values()) if gauge is not None]
        if used := [row for gauge in gauges for row in gauge.used()]:
            self._db.run_all(sql.KEEP_USE, used)
        if poured := [row for gauge in gauges for row in gauge.poured()]:
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
        db.run(sql.DROP_USE, place[:2])
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
        db.run(sql.FILL_USE, place[:2])


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
    if kind == "key":
        running, full_at = _use_of_keys(db, name, now)[0][key], _full_at(db, name, _json([key])).get(key, 0)
    else:
        running, _, full_at = _use(db, kind, name, now)
    opens_at = 0 if bounds.rate is None else rules.opens_at(bounds.rate, full_at)
    return replace(shown, running=running, next_start=from_micros(opens_at) if opens_at > now else None)
