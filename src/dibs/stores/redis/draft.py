"""What a claim without scripts would write: the transaction of ``watch.py``, put together job by job."""

from collections.abc import Iterable
from typing import Any

import msgspec

from dibs.job import Claim
from dibs.limits import ERRORS_KEPT, LEASE_EXPIRED
from dibs.stores.redis import values
from dibs.stores.redis.rooms import Group, Rooms
from dibs.stores.redis.values import Record
from dibs.stores.redis.wire import Command

_ID = 32


class Wanted(msgspec.Struct, frozen=True):
    """What one claim asks for."""

    queue: bytes
    worker: str
    lease: int
    tasks: frozenset[bytes] | None

    def knows(self, task: bytes) -> bool:
        return self.tasks is None or task in self.tasks


class Candidate(msgspec.Struct, frozen=True):
    """A job that looked claimable: where it stands, and whether it is running with an expired lease."""

    place: bytes
    lane: bytes
    """Its task; or task, tab and limit key of one that was set aside."""
    expired: bool

    @classmethod
    def from_lease(cls, lease: bytes) -> "Candidate":
        return cls(lease[_ID:55] + lease[:_ID], lease[55:], expired=True)

    @property
    def id(self) -> bytes:
        return self.place[-_ID:]

    @property
    def task(self) -> bytes:
        return self.lane.partition(b"\t")[0]

    @property
    def lease(self) -> bytes:
        """Its member in the set of leases."""
        return self.id + self.place[:-_ID] + self.task

    def still(self, record: Record | None, now: int) -> bool:
        """It is what it looked like."""
        if record is None or (record.priority + record.run_at).encode() != self.place[:-_ID]:
            return False
        if self.expired:
            return record.state == "r" and record.locked_until <= now
        return record.state == "q"


def in_order(candidates: Iterable[Candidate], settings: bytes) -> list[Candidate]:
    """As the queue hands them out, each once."""
    found = {one.place: one for one in candidates}
    places = sorted(found)
    if b"l" in settings:
        places = sorted(sorted(found, reverse=True), key=lambda place: place[:5])
    elif ageing := values.ageing(settings):
        places.sort(key=lambda place: (int(place[5:23]) + int(place[:5]) * ageing, place[-_ID:]))
    return [found[place] for place in places]


class Draft:
    """Collects what happens to each job, and the commands that make it so."""

    def __init__(self, root: bytes, wanted: Wanted, size: int, now: int, rooms: Rooms | None) -> None:
        self._root, self._size, self._now = root, size, now
        self.rooms = rooms
        self.wanted = wanted
        self._sets: list[bytes] = []
        self._drops: dict[bytes, list[bytes]] = {}
        self._adds: dict[bytes, list[Any]] = {}
        self._others: list[Command] = []
        self._held: dict[str, int] = {}
        self.claims: list[Claim] = []
        self.stale = False
        """Something was not what it looked like: another look is worth it."""
        self.ending: list[bytes] = []
        """Jobs that are not to be started any more."""
        self.aside: list[bytes] = []
        """Jobs that the limit of their key holds back."""

    @property
    def robbed(self) -> list[str]:
        """Workers whose leases had expired."""
        return [worker for worker, more in self._held.items() if more < 0]

    def consider(self, one: Candidate, record: Record | None, body: bytes | None, inputs: dict[str, Any]) -> None:
        """Take the job, if it is still what it looked like and may be started.

        The end of a job may reach others, and only a script can do that in one piece. So it is left to one, and those
        behind it have to wait for what comes of it.
        """
        if len(self.claims) == self._size:
            return
        if record is None or not one.still(record, self._now):
            self.stale = True
            if record is None:
                self._forget(one)
        elif record.is_over(self._now):
            self.ending.append(one.id)
        elif self.ending:
            self._size = len(self.claims)
        elif self._has_room(one, record):
            self._take(one, record, body or b"null", inputs)

    def _forget(self, one: Candidate) -> None:
        """A job that is gone must not be looked at for ever."""
        queue = self.wanted.queue
        self._drop(b"o:" + queue + b"\t" + one.lane, one.place)
        self._drop(b"l:" + queue, one.lease)
        self._drop(b"x:" + queue, one.lease)

    def _has_room(self, one: Candidate, record: Record) -> bool:
        group = group_of(record)
        if self.rooms is None or self.rooms.open(group):
            return True
        if not one.expired and record.mark != values.ASIDE and self.rooms.full_key(group[1]):
            self.aside.append(one.id)
        return False

    def _take(self, one: Candidate, record: Record, body: bytes, inputs: dict[str, Any]) -> None:
        wanted = self.wanted
        if one.expired:
            self._close_books(one, record)
        else:
            self._leave(one, record)
        record.state, record.worker, record.outcome = "r", wanted.worker, ""
        record.attempts += 1
        record.epoch += 1
        record.started_at, record.locked_until = self._now, self._now + wanted.lease
        self._add(b"l:" + wanted.queue, record.locked_until, one.lease)
        self._count_in(one, record)
        self._hold(wanted.worker, 1)
        self._sets += (self._root + b"j:" + one.id, record.packed())
        self.claims += values.claims_of([one.id], [record], [body], {one.id: inputs})

    def _leave(self, one: Candidate, record: Record) -> None:
        """As ``leave`` in ``lua/life.lua``, of a queued job."""
        queue = self.wanted.queue
        lane = one.task + b"\t" + record.limit_key.encode() if record.mark == values.ASIDE else one.task
        self._drop(b"o:" + queue + b"\t" + lane, one.place)
        record.mark = 0
        if record.expires_at:
            self._drop(b"y:" + queue, one.id)

    def _close_books(self, one: Candidate, r: Record) -> None:
        """As ``close_books`` in ``lua/life.lua``, of a job whose lease expired."""
        queue = self.wanted.queue
        self._drop(b"l:" + queue, one.lease)
        self._drop(b"x:" + queue, one.lease)
        self._drop(b"late:" + queue, one.place + one.task)
        if r.mark == values.COUNTED:
            self._drop(b"c:t:" + one.task, one.id)
            r.mark = 0
        self._hold(r.worker, -1)
        error = (r.attempts, r.epoch, r.worker, r.started_at, self._now, LEASE_EXPIRED, "")
        errors = self._root + b"e:" + one.id
        self._others.append(("RPUSH", errors, values.pack(error)))
        self._others.append(("LTRIM", errors, -ERRORS_KEPT, -1))

    def _count_in(self, one: Candidate, record: Record) -> None:
        """Where limits count it."""
        task, key = group_of(record)
        if self.rooms is not None and self.rooms.start((task, key)):
            record.count()
            self._add(b"c:t:" + task, record.locked_until, one.id)
        if key:
            self._add(b"c:k:" + self.wanted.queue + b"\t" + key, record.locked_until, one.id)

    def _drop(self, index: bytes, member: bytes) -> None:
        self._drops.setdefault(self._root + index, []).append(member)

    def _add(self, index: bytes, score: int, member: bytes) -> None:
        self._adds.setdefault(self._root + index, []).extend((score, member))

    def _hold(self, worker: str, more: int) -> None:
        self._held[worker] = self._held.get(worker, 0) + more

    def commands(self) -> list[Command]:
        """All of it, for one transaction."""
        held = self._root + b"held"
        return [
            *([("MSET", *self._sets)] if self._sets else []),
            *(("ZREM", key, *members) for key, members in self._drops.items()),
            *(("ZADD", key, *pairs) for key, pairs in self._adds.items()),
            *self._others,
            *(("HINCRBY", held, worker, more) for worker, more in self._held.items() if more),
            *(self.rooms.commands() if self.rooms is not None and self.claims else ()),
        ]


def group_of(record: Record) -> Group:
    """Which limits it comes under."""
    return record.task.encode(), record.limit_key.encode()
