"""Limits in memory: what runs is counted when there may be no room, so nothing has to be given back."""

import threading
from collections import Counter
from datetime import datetime
from uuid import UUID

from dibs import limits as rules
from dibs.clock import Clock, from_micros, to_micros
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.stores.memory.records import Record

Bucket = tuple[Scope, str | None]
"""A scope, and, where each key has its own limit, which one."""


class LimitVerbs:
    """``limit``, ``limits``, and whether a claim may take a job."""

    _clock: Clock
    _lock: threading.Lock
    _jobs: dict[UUID, Record]
    _held: dict[int, Record]
    """Those that are claimed, by their ids as numbers, which are hashed faster."""

    def __init__(self) -> None:
        super().__init__()
        self._limited: dict[Scope, tuple[int, Limit]] = {}
        self._full_at: dict[Bucket, int] = {}
        self._held_in: Counter[Bucket] = Counter()
        """How many are held under limits: at least as many as run, since leases may have expired."""

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        rules.scope(scope)
        rules.rank(rank)
        wanted = None if limit is None else rules.limited(limit)
        with self._lock:
            there = self._limited.get(scope)
            if wanted is None:
                self._limited.pop(scope, None)
            elif there is None or there[0] <= rank:
                self._limited[scope] = (rank, wanted)
            if _rate(there) != _rate(self._limited.get(scope)):
                self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if bucket[0] != scope}
            self._held_in = Counter(bucket for record in self._held.values() for bucket in self._buckets(record))

    async def limits(self, job: UUID | None = None) -> list[LimitUse]:
        with self._lock:
            now = self._clock()
            record = None if job is None else self._jobs.get(job)
            buckets = [(scope, None) for scope in self._limited] if job is None else self._buckets(record)
            return [self._use(*bucket, now) for bucket in sorted(buckets, key=_place)]

    def _buckets(self, record: Record | None) -> list[Bucket]:
        """What the job comes under, if there is one."""
        return [
            (scope, record.limit_key if scope.each_key else None)
            for scope in self._limited
            if record is not None and _concerns(scope, record)
        ]

    def _use(self, scope: Scope, key: str | None, now: datetime) -> LimitUse:
        rank, limit = self._limited[scope]
        unknown = scope.each_key and key is None
        opens_at = now if unknown or limit.rate is None else self._opens_at((scope, key), limit.rate)
        return LimitUse(
            scope=scope,
            limit=limit,
            rank=rank,
            key=key,
            running=None if unknown else self._running_in((scope, key), now),
            next_start=opens_at if opens_at > now else None,
        )

    def _hold(self, record: Record) -> None:
        """It is claimed, perhaps again."""
        id_ = record.id.int
        if id_ not in self._held:
            self._held[id_] = record
            for bucket in self._buckets(record) if self._limited else ():
                self._held_in[bucket] += 1

    def _let_go(self, record: Record) -> None:
        """If it is held."""
        if self._held.pop(record.id.int, None) is not None and self._limited:
            for bucket in self._buckets(record):
                self._held_in[bucket] -= 1
                if not self._held_in[bucket]:
                    del self._held_in[bucket]

    # --- in a claim -----------------------------------------------------------------------------------------

    def _admit(self, record: Record, now: datetime) -> bool:
        """Whether all limits have room for the job; then it has its share of each rate, else of none."""
        buckets = self._buckets(record)
        if not all(self._has_room(bucket, now) for bucket in buckets):
            return False
        for bucket in buckets:
            if (rate := self._limited[bucket[0]][1].rate) is not None:
                self._full_at[bucket] = rules.after_start(rate, self._full_at.get(bucket, 0), to_micros(now))
        return True

    def _has_room(self, bucket: Bucket, now: datetime) -> bool:
        _, limit = self._limited[bucket[0]]
        most = limit.concurrency
        if most is not None and self._held_in[bucket] >= most and self._running_in(bucket, now) >= most:
            return False
        return limit.rate is None or self._opens_at(bucket, limit.rate) <= now

    def _opens_at(self, bucket: Bucket, rate: Rate) -> datetime:
        return from_micros(rules.opens_at(rate, self._full_at.get(bucket, 0)))

    def _running_in(self, bucket: Bucket, now: datetime) -> int:
        scope, key = bucket
        return sum(
            record.holds(now) and _concerns(scope, record) and key in (None, record.limit_key)
            for record in self._held.values()
        )

    def _forget_full_buckets(self, now: datetime) -> None:
        """They are like those that were never used."""
        self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if full_at > to_micros(now)}


def _concerns(scope: Scope, record: Record) -> bool:
    if scope.each_key and record.limit_key is None:
        return False
    return scope.queue == record.queue if scope.task is None else scope.task == record.task


def _place(bucket: Bucket) -> tuple[bool, str, bool]:
    """Queues first, a queue's own limit before that of its keys; then tasks."""
    scope = bucket[0]
    return scope.queue is None, scope.queue or scope.task or "", scope.each_key


def _rate(setting: tuple[int, Limit] | None) -> Rate | None:
    return None if setting is None else setting[1].rate
