"""What can be seen of the jobs in memory."""

import threading
from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from dibs import limits as rules
from dibs.clock import Clock
from dibs.job import Filter, Job, Page, QueueCounts, State, WorkerInfo
from dibs.stores.memory.lane import Lane
from dibs.stores.memory.records import Record


class Looking:
    """``get``, ``find``, ``counts``, ``workers``."""

    _clock: Clock
    _lock: threading.Lock
    _jobs: dict[UUID, Record]
    _held: dict[int, Record]
    _lanes: dict[str, Lane]
    _seen: dict[str, tuple[datetime, dict[str, Any]]]

    async def get(self, job: UUID) -> Job | None:
        with self._lock:
            record = self._jobs.get(job)
            return None if record is None else record.as_job()

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        rules.chosen(which, change=False)
        rules.limit(limit)
        rules.most(most)
        with self._lock:
            found = self._matching(which, after, frozenset(State))
            jobs = tuple(record.as_job() for record in found[:limit])
            return Page(jobs, jobs[-1].id if len(found) > limit else None)

    def _matching(self, which: Filter, after: UUID | None, states: frozenset[State]) -> list[Record]:
        found = (
            record
            for record in self._jobs.values()
            if record.state in states and (after is None or record.id < after) and record.matches(which)
        )
        return sorted(found, key=lambda record: record.id, reverse=True)

    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        rules.most(most)
        with self._lock:
            now = self._clock()
            busy = {record.queue for record in self._jobs.values()}
            lanes = sorted(self._lanes.items())
            return [self._tally(name, lane, now) for name, lane in lanes if name in busy or lane.configured]

    def _tally(self, name: str, lane: Lane, now: datetime) -> QueueCounts:
        states = dict.fromkeys(State, 0)
        queued: list[datetime] = []
        for record in self._jobs.values():
            if record.queue == name:
                states[record.state] += 1
                if record.state is State.QUEUED:
                    queued.append(record.run_at)
        return QueueCounts(
            queue=name,
            paused=lane.paused,
            order=lane.order,
            ageing=lane.ageing,
            states=states,
            scheduled=sum(run_at > now for run_at in queued),
            oldest_due=min((run_at for run_at in queued if run_at <= now), default=None),
        )

    async def workers(self) -> list[WorkerInfo]:
        with self._lock:
            running = self._running()
            return [
                WorkerInfo(name=name, seen_at=seen_at, running=running[name], info=info)
                for name in sorted(self._seen.keys() | running.keys())
                for seen_at, info in [self._seen.get(name, (None, {}))]
            ]

    def _running(self) -> Counter[str]:
        """How many jobs each worker has."""
        return Counter(record.worker for record in self._held.values() if record.worker is not None)
