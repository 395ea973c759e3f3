"""What a claim without scripts would write: the transaction of ``watch.py``, put together job by job."""

from collections.abc import Iterable
from typing import Any

import msgspec

from dibs.job import Claim
from dibs.limits import ERRORS_KEPT, LEASE_EXPIRED
from dibs.stores.redis import values
from dibs.stores.redis.link import Command
from dibs.stores.redis.values import Record

_ID = 32


class Wanted(msgspec.Struct, frozen=True):
    """What one claim asks for."""

    queue: bytes
    worker: str
    lease: int
    tasks: frozenset[bytes] | None


class Candidate(msgspec.Struct, frozen=True):
    """A job that looked claimable: where it stands, and whether it is running with an expired lease."""

    place: bytes
    task: bytes
    expired: bool

    @classmethod
    def from_lease(cls, lease: bytes) -> "Candidate":
        return cls(lease[_ID:55] + lease[:_ID], lease[55:], expired=True)

    @property
    def id(self) -> bytes:
        return self.place[-_ID:]

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


def in_order(candidates: Iterable[Candidate], lifo: bool) -> list[Candidate]:
    """As the queue hands them out."""
    found = sorted(candidates, key=lambda one: one.place, reverse=lifo)
    return sorted(found, key=lambda one: one.place[:5]) if lifo else found


class Draft:
    """Collects what happens to each job, and the commands that make it so."""

    def __init__(self, root: bytes, wanted: Wanted, now: int) -> None:
        self._root, self._now = root, now
        self.wanted = wanted
        self._sets: list[bytes] = []
        self._drops: dict[bytes, list[bytes]] = {}
        self._adds: dict[bytes, list[Any]] = {}
        self._others: list[Command] = []
        self._held: dict[str, int] = {}
        self.claims: list[Claim] = []
        self.stale = False
        """Something was not what it looked like: another look is worth it."""
        self.ending: bytes | None = None
        """The lease of a step that has come to its end."""

    def consider(self, one: Candidate, record: Record | None, body: bytes | None, inputs: dict[str, Any]) -> None:
        """Take the job, or close its books, if it is still what it looked like.

        The end of a step may reach any other of its flow, and only a script can do that in one piece. So it is left
        to one, and those behind it have to wait for what comes of it.
        """
        if self.ending is not None:
            return
        if record is None or not one.still(record, self._now):
            self.stale = True
            if record is None:
                self._forget(one)
            return
        if one.expired and record.flow and record.spent:
            self.ending = one.lease
            return
        if one.expired:
            self._recover(one, record)
            if record.state != "r":
                self._save(one, record)
                self.stale = True  # it was passed, not taken
                return
        else:
            self._drop(b"o:" + self.wanted.queue + b"\t" + one.task, one.place)
        self._take(one, record, body or b"null", inputs)

    def _forget(self, one: Candidate) -> None:
        """A job that is gone must not be looked at for ever."""
        queue = self.wanted.queue
        self._drop(b"o:" + queue + b"\t" + one.task, one.place)
        self._drop(b"l:" + queue, one.lease)
        self._drop(b"x:" + queue, one.lease)

    def _take(self, one: Candidate, record: Record, body: bytes, inputs: dict[str, Any]) -> None:
        wanted = self.wanted
        record.state, record.worker, record.outcome = "r", wanted.worker, ""
        record.attempts += 1
        record.epoch += 1
        record.started_at, record.locked_until = self._now, self._now + wanted.lease
        self._add(b"l:" + wanted.queue, record.locked_until, one.lease)
        self._hold(wanted.worker, 1)
        self._save(one, record)
        self.claims += values.claims_of([one.id], [record], [body], {one.id: inputs})

    def _recover(self, one: Candidate, r: Record) -> None:
        """As ``recover`` in ``lua/prelude.lua``."""
        queue = self.wanted.queue
        self._drop(b"l:" + queue, one.lease)
        self._drop(b"x:" + queue, one.lease)
        self._drop(b"late:" + queue, one.place + one.task)
        self._hold(r.worker, -1)
        error = (r.attempts, r.epoch, r.worker, r.started_at, self._now, LEASE_EXPIRED, "")
        errors = self._root + b"e:" + one.id
        self._others.append(("RPUSH", errors, values.pack(error)))
        self._others.append(("LTRIM", errors, -ERRORS_KEPT, -1))
        if not r.spent:
            return
        r.state = "c" if r.cancel_asked else "f"
        r.finished_at, r.locked_until = self._now, 0
        self._add(b"f:%s:%s" % (r.state.encode(), queue), self._now, one.id)
        if r.key:
            # A job that is not finished holds its key: it is nobody else's to free.
            self._others.append(("HDEL", self._root + b"k:" + queue, r.key))

    def _save(self, one: Candidate, record: Record) -> None:
        self._sets += (self._root + b"j:" + one.id, values.pack(record))

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
        ]
