"""The careful claim: from job to job in the order of the queue, judging each.

For queues that age or have limits, and while there are jobs whose leases or whose time expired. Jobs are read by pages
and written all at once, so it costs little more than taking them blindly.
"""

from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

import msgspec

from dibs import limits as rules
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.ending import end
from dibs.stores.sqlite.rooms import Rooms
from dibs.stores.sqlite.rows import Attempt, Standing, blamed
from dibs.stores.sqlite.taking import First, take

PATIENCE = 50
"""A claim that is held back more often than this sets aside what it passed."""
MOST_ASIDE = 1_000
"""So many are set aside by one claim. What else is full it passes without looking, unless there are jobs to end."""
_AT_ONCE = 20
"""Where jobs of several priorities take turns, so many of each are read at first."""

_BEFORE_ALL = (-(2**63), b"")
_AFTER_ALL = b"\xff" * 17
_MOST_URGENT = rules.PRIORITIES[0] - 1


class Wanted(NamedTuple):
    """What a claim asks for; ``tasks`` is a JSON array, times are in microseconds."""

    queue: str
    worker: str
    limit: int
    lease: int
    tasks: str | None


def verdict(attempt: Attempt | Standing, asked: int, now: int) -> str | None:
    """How a job ends whose lease expired; None if it may run again."""
    if asked:
        return "cancelled"
    if attempt.attempts >= attempt.max_attempts:
        return "failed"
    return "cancelled" if attempt.expires_at is not None and attempt.expires_at <= now else None


class Walk:
    """One careful claim."""

    def __init__(self, db: Connection, wanted: Wanted, now: int, *, lifo: int, ageing: int | None) -> None:
        self._db = db
        self._wanted = wanted
        self._now = now
        self._lifo = lifo
        self._ageing = ageing
        self._rooms = Rooms(db, wanted.queue, wanted.limit, now)
        self._taken: list[Row] = []
        self._unwritten: list[Row] = []
        self._held: list[int] = []
        self._shaken: set[bytes] = set()
        """Flows that a step of has ended: their other steps may not be any more what was read of them."""
        self._overdue = False
        """There may be jobs that have to end."""

    def take(self, *, expired: int, late: int, aside: int, priority: int | None) -> list[Row]:
        """Claim what there is and there is room for; gives what take.sql gives.

        Told whether there are jobs whose leases expired, that must not start any more, that were set aside, and the
        first priority that has jobs in line.
        """
        if expired:
            self._db.run(sql.LINE_UP, (self._wanted.queue, self._now))
        self._overdue = bool(expired or late)
        if aside:
            self._bring_back()
        if self._ageing is None and not self._overdue:
            self._take_together(self._behind(_MOST_URGENT) if aside else priority)
        if self._left() > 0:
            for job in self._line():
                self._judge(job)
                if self._left() <= 0:
                    break
        self._write()
        if self._overdue and len(self._taken) < self._wanted.limit and self._rooms.free_in_queue <= 0:
            self._end_overdue()
        self._rooms.close()
        if len(self._held) > PATIENCE:
            self._db.run_all(sql.SET_ASIDE, [(row,) for row in self._held[:MOST_ASIDE]])
        return self._taken

    def _take_together(self, priority: int | None) -> None:
        """As long as there is room for all that come next, take them at once, priority by priority."""
        db, wanted, now, alike = self._db, self._wanted, self._now, self._rooms.alike
        while priority is not None and (left := self._left()) > 0:
            first = First(wanted.queue, priority, now, left, wanted.tasks)
            if not alike and not self._rooms.take_all(db.rows(sql.NEXT_CLASSES[self._lifo], first)):
                return
            rows = take(db, first, wanted.worker, now + wanted.lease, lifo=self._lifo, limited=not alike)
            if alike:
                self._rooms.take_in_queue(len(rows))
            self._rooms.wrote()
            self._taken += rows
            priority = self._behind(priority) if len(rows) < left else None

    def _left(self) -> int:
        """How many more may be taken, as far as the call and the queue are concerned."""
        return min(self._wanted.limit - len(self._taken), self._rooms.free_in_queue)

    # --- the line -------------------------------------------------------------------------------------------

    def _line(self) -> Iterator[Standing]:
        """Due jobs, queued or with expired leases, in the order of the queue."""
        if self._ageing is None:
            priority = self._behind(_MOST_URGENT)
            while priority is not None:
                yield from self._lane(priority, self._wanted.limit)
                priority = self._behind(priority)
        else:
            first = min(self._wanted.limit, _AT_ONCE)
            lanes = [self._lane(row[0], first) for row in self._db.rows(sql.LANES, (self._wanted.queue, self._now))]
            yield from merge(*lanes, key=self._aged_place)

    def _behind(self, priority: int) -> int | None:
        found = self._db.rows(sql.NEXT_PRIORITY, (self._wanted.queue, priority, self._now))
        return found[0][0] if found else None

    def _aged_place(self, job: Standing) -> tuple[int, bytes]:
        return job.run_at + job.priority * (self._ageing or 0), job.id

    def _lane(self, priority: int, size: int) -> Iterator[Standing]:
        """The jobs of one priority, page by page; what came to the line before the last one read is not looked for."""
        wanted, place = self._wanted, (self._now, _AFTER_ALL) if self._lifo else _BEFORE_ALL
        while True:
            params: Row = (wanted.queue, priority, self._now, *place, wanted.tasks, size)
            if self._overdue or len(self._held) < MOST_ASIDE:
                rows = self._db.rows(sql.WALK[self._lifo], params)
            else:
                full = (_json(self._rooms.full_tasks()), _json(self._rooms.full_keys()))
                rows = self._db.rows(sql.WALK_ON[self._lifo], (*params, *full))
            yield from map(Standing._make, rows)
            if len(rows) < size:
                return
            place, size = (rows[-1][1], rows[-1][0]), min(4 * size, MOST_ASIDE)

    # --- judging --------------------------------------------------------------------------------------------

    def _judge(self, read: Standing) -> None:
        """End the job, take it, or leave it as it is."""
        job = self._as_it_is(read) if self._shaken else read
        if job is None or self._ends(job):
            return
        if not self._rooms.has_room(job.task, job.limit_key):
            if job.locked_until is None:
                self._held.append(job.row)
            return
        gauges = self._rooms.of(job.task, job.limit_key)
        for gauge, key in gauges:
            gauge.take({key: 1})
        errors = None if job.locked_until is None else blamed(job.attempt(), self._now, rules.LEASE_EXPIRED)
        self._unwritten.append(
            (job.row, self._wanted.worker, self._now + self._wanted.lease, self._now, errors, bool(gauges))
        )
        self._taken.append(job.taken())

    def _ends(self, job: Standing) -> bool:
        """End the job if its time is over."""
        now = self._now
        running = job.locked_until is not None
        if running:
            state = verdict(job, job.cancel_asked, now)
        else:
            state = "cancelled" if job.expires_at is not None and job.expires_at <= now else None
        if state is None:
            return False
        errors = blamed(job.attempt(), now, rules.LEASE_EXPIRED) if running else None
        if job.flow is not None:  # those before it are running when it ends, those behind it are not
            self._write()
            self._shaken.add(job.flow)
        end(self._db, job.id, state, now, errors=errors)
        return True

    def _end_overdue(self) -> None:
        """The queue is full: of the jobs behind, only those that end need no room."""
        found = self._db.rows(sql.OVERDUE, (self._wanted.queue, self._now, self._wanted.tasks))
        jobs = [Standing._make(row) for row in found]
        jobs.sort(key=lambda job: (job.run_at, job.id), reverse=bool(self._lifo))
        jobs.sort(key=(lambda job: job.priority) if self._ageing is None else self._aged_place)
        for job in jobs:
            if (now := self._as_it_is(job)) is not None:
                self._ends(now)

    def _as_it_is(self, job: Standing) -> Standing | None:
        """The job as it is now, if it still stands in line."""
        if job.flow not in self._shaken:
            return job
        found = self._db.row(sql.STANDING, (job.row,))
        return None if found is None else Standing._make(found)

    def _write(self) -> None:
        """What was taken until now is running."""
        if self._unwritten:
            self._db.run_all(sql.TAKE_ONE, self._unwritten)
            self._unwritten = []
            self._rooms.wrote()

    # --- what was set aside ---------------------------------------------------------------------------------

    def _bring_back(self) -> None:
        """Put as many of the jobs that were set aside back into the line as there is room for, and those that end."""
        wanted, db = self._wanted, self._db
        if self._overdue:
            db.run(sql.BRING_BACK_OVERDUE, (wanted.queue, self._now))
        self._rooms.count_keys()
        tasks = None if wanted.tasks is None else set(msgspec.json.decode(wanted.tasks))
        for line, priority, task, limit_key in db.rows(sql.CLASSES, (wanted.queue,)):
            if tasks is not None and task not in tasks:
                continue
            count = min(self._rooms.free(task, limit_key), wanted.limit)
            if count > 0:
                db.run(sql.BRING_BACK[self._lifo], (wanted.queue, line, priority, count))


def _json(values: list[str]) -> str:
    return msgspec.json.encode(values).decode()
