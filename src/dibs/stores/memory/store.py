"""The memory store: shortest, no tricks, one lock. What it answers is what every store has to answer."""

import asyncio
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from dibs import limits as rules
from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError
from dibs.job import (
    FINISHED,
    UNFINISHED,
    Cancel,
    Change,
    Changed,
    Claim,
    Delete,
    Enqueued,
    Filter,
    Job,
    NewJob,
    Page,
    QueueCounts,
    Report,
    Reprioritise,
    Requeue,
    Reschedule,
    Retention,
    Settlement,
    State,
    WorkerInfo,
)
from dibs.limits import Admitted, Limits, Settled
from dibs.outcome import Pulse, Verdict
from dibs.store import CHUNK
from dibs.stores.bulk import BulkVerbs
from dibs.stores.memory.flows import FlowRecord, FlowVerbs
from dibs.stores.memory.keeping import Keeping
from dibs.stores.memory.queues import QueueVerbs
from dibs.stores.memory.records import Lane, Record


class MemoryStore(FlowVerbs, QueueVerbs, Keeping, BulkVerbs):
    """Jobs in this process's memory, gone when it ends; safe to use from several threads."""

    def __init__(self, *, clock: Clock = system_clock, limits: Limits = rules.DEFAULT) -> None:
        super().__init__()
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._jobs: dict[UUID, Record] = {}
        self._flows: dict[UUID, FlowRecord] = {}
        self._lanes: dict[str, Lane] = {}
        self._seen: dict[str, tuple[datetime, dict[str, Any]]] = {}
        self._waiting: list[tuple[frozenset[str], asyncio.AbstractEventLoop, asyncio.Event]] = []

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = system_clock) -> "MemoryStore":
        """A new, empty store; ``memory://`` has no options and no name to share it by."""
        if url != "memory://":
            raise ConfigurationError(f"a memory store has no options: use memory://, not {url}")
        return cls(clock=clock)

    async def setup(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to give back; the jobs stay for as long as this object does."""

    # --- the life of a job ----------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        admitted = rules.admit(jobs, self._limits)
        with self._lock:
            now = self._clock()
            return [self._add(job, now) for job in admitted]

    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        there = job.id if job.id in self._jobs else self._lane(job.queue).keys.get(job.key or "")
        if there is not None:
            return Enqueued(there, created=False)
        self._store(Record.of(job, now))
        return Enqueued(job.id, created=True)

    def _store(self, record: Record) -> None:
        self._jobs[record.id] = record
        if record.state is State.QUEUED:
            self._put_back(record, record.run_at)
        else:
            self._lane(record.queue)

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        known = rules.claimable(queue, worker, limit, lease, tasks)
        with self._lock:
            now = self._clock()
            lane = self._lanes.get(queue)
            if lane is None or lane.paused:
                return []
            lane.ripen(now)
            claims: list[Claim] = []
            passed: list[Record] = []
            while len(claims) < limit and (record := lane.next(now)) is not None:
                if known is not None and record.task not in known:
                    passed.append(record)
                elif self._recover(record, now):
                    self._take(record, worker, now, lease)
                    claims.append(record.as_claim())
            for record in passed:
                lane.put(record)
            return claims

    def _recover(self, record: Record, now: datetime) -> bool:
        """Close the books on an attempt whose lease expired. True if the job may run again."""
        if record.state is State.RUNNING:
            record.blame(now, rules.LEASE_EXPIRED)
            if record.cancel_asked:
                self._finish(record, State.CANCELLED, now)
            elif record.attempts >= record.max_attempts:
                self._finish(record, State.FAILED, now)
        return record.state in UNFINISHED

    def _take(self, record: Record, worker: str, now: datetime, lease: timedelta) -> None:
        record.state, record.worker, record.outcome = State.RUNNING, worker, None
        record.attempts += 1
        record.epoch += 1
        record.started_at, record.locked_until = now, now + lease
        self._lanes[record.queue].look_at(record, record.locked_until)

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        about = rules.beating(worker, claims, lease, info, self._limits)
        said = rules.reports(reports, claims)
        with self._lock:
            now = self._clock()
            _, known = self._seen.get(worker, (now, {}))
            self._seen[worker] = (now, known if about is None else msgspec.json.decode(about))
            pulses = [self._beat(worker, claim, now, lease) for claim in claims]
            for claim, pulse in zip(claims, pulses, strict=True):
                if pulse is not Pulse.LOST and claim.id in said:
                    self._jobs[claim.id].report = said[claim.id]
            return pulses

    def _beat(self, worker: str, claim: Claim, now: datetime, lease: timedelta) -> Pulse:
        record = self._jobs.get(claim.id)
        if record is None or not record.held_by(worker, claim.epoch, now):
            return Pulse.LOST
        assert record.locked_until is not None
        record.locked_until = max(record.locked_until, now + lease)
        self._lanes[record.queue].look_at(record, record.locked_until)
        return Pulse.CANCEL if record.cancel_asked else Pulse.HELD

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        items = rules.settleable(settlements, self._limits)
        with self._lock:
            now = self._clock()
            return [self._settle(item, now) for item in items]

    def _settle(self, item: Settled, now: datetime) -> Verdict:
        record = self._jobs.get(item.id)
        if record is None:
            return Verdict.LOST
        if record.held_by(item.worker, item.epoch, now):
            self._end_attempt(record, item, now)
            record.outcome = item.kind
            return Verdict.ACCEPTED
        again = (record.worker, record.epoch, record.outcome) == (item.worker, item.epoch, item.kind)
        return Verdict.ACCEPTED if again else Verdict.LOST

    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        if item.steps and (problem := self._misfit(record, item)) is not None:
            item = replace(item, kind="failed", error=problem)
        if item.error is not None:
            record.blame(now, item.error, item.traceback)
        match item.kind:
            case "succeeded":
                record.result = item.result
                if item.steps:
                    self._add_steps(record, item.steps, now)
                self._finish(record, State.SUCCEEDED, now)
            case "failed":
                self._finish(record, State.FAILED, now)
            case "cancelled":
                self._finish(record, State.CANCELLED, now)
            case _ if record.cancel_asked:
                self._finish(record, State.CANCELLED, now)
            case "retry" if record.attempts >= record.max_attempts:
                self._finish(record, State.FAILED, now)
            case "retry":
                self._put_back(record, now + item.delay)
            case "snoozed":
                record.attempts -= 1
                self._put_back(record, now + item.delay)
            case "released":
                record.attempts -= 1
                self._put_back(record, record.run_at)

    async def sweep(self, limit: int = CHUNK) -> int:
        rules.limit(limit)
        with self._lock:
            now = self._clock()
            running = (r for r in self._jobs.values() if r.state is State.RUNNING and r.claimable(now))
            expired = sorted(running, key=lambda record: (record.locked_until, record.id))[:limit]
            for record in expired:
                if self._recover(record, now):
                    self._put_back(record, record.run_at)
            return len(expired)

    def _put_back(self, record: Record, run_at: datetime) -> None:
        record.state, record.run_at, record.locked_until = State.QUEUED, run_at, None
        lane = self._lane(record.queue)
        if record.key is not None:
            lane.keys[record.key] = record.id
        lane.look_at(record, run_at)
        self._wake(record.queue)

    def _finish(self, record: Record, state: State, now: datetime) -> None:
        self._close(record, state, now)
        if record.flow is not None:
            self._ended(record, now)

    def _close(self, record: Record, state: State, now: datetime) -> None:
        record.state, record.finished_at, record.locked_until = state, now, None
        if record.key is not None:
            self._free_key(record)

    def _free_key(self, record: Record) -> None:
        keys = self._lanes[record.queue].keys
        if record.key is not None and keys.get(record.key) == record.id:
            del keys[record.key]

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        with self._lock:
            record = self._jobs.get(job)
            return None if record is None else record.as_job()

    async def find(self, which: Filter, after: UUID | None = None, limit: int = 100) -> Page:
        rules.chosen(which, change=False)
        rules.limit(limit)
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

    async def counts(self) -> list[QueueCounts]:
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
            states=states,
            scheduled=sum(run_at > now for run_at in queued),
            oldest_due=min((run_at for run_at in queued if run_at <= now), default=None),
        )

    async def workers(self) -> list[WorkerInfo]:
        with self._lock:
            running = self._running()
            return [
                WorkerInfo(name=name, seen_at=seen_at, running=running.get(name, 0), info=info)
                for name in sorted(self._seen.keys() | running.keys())
                for seen_at, info in [self._seen.get(name, (None, {}))]
            ]

    def _running(self) -> dict[str, int]:
        running: dict[str, int] = {}
        for record in self._jobs.values():
            if record.state is State.RUNNING and record.worker is not None:
                running[record.worker] = running.get(record.worker, 0) + 1
        return running

    # --- an operator's verbs --------------------------------------------------------------------------------

    async def _count(self, which: Filter, change: Change, after: UUID | None) -> int:
        with self._lock:
            return len(self._matching(which, after, change.states))

    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        with self._lock:
            now = self._clock()
            chunk = self._matching(which, after, change.states)[:limit]
            count = sum(self._alter(record, change, now) for record in chunk)
            if isinstance(change, Requeue):
                for flow in {record.flow for record in chunk if record.flow is not None}:
                    self._begin_again(self._flows[flow], now)
            return Changed(count, chunk[-1].id if len(chunk) == limit else None)

    def _alter(self, record: Record, change: Change, now: datetime) -> bool:
        lane = self._lanes[record.queue]
        match change:
            case Cancel(force):
                self._cancel(record, now, force=force)
            case Requeue():
                if record.key in lane.keys:
                    return False
                record.attempts, record.cancel_asked, record.worker = 0, False, None
                record.started_at = record.finished_at = record.result = record.outcome = None
                record.report = Report(log=record.report.log)
                self._put_back(record, now)
            case Reschedule(run_at):
                record.run_at = run_at
                lane.look_at(record, run_at)
                self._wake(record.queue)
            case Reprioritise(priority):
                record.priority = priority
                lane.look_at(record, record.run_at)
            case Delete():
                if record.flow is not None:
                    self._cancel(record, now, force=True)
                self._drop(record)
        return True

    def _cancel(self, record: Record, now: datetime, *, force: bool) -> None:
        if record.state in FINISHED:  # by the cancel of another step, in this very call
            return
        record.cancel_asked = True
        if force or record.state is not State.RUNNING:
            record.outcome = None
            self._finish(record, State.CANCELLED, now)

    def _drop(self, record: Record) -> None:
        self._free_key(record)
        del self._jobs[record.id]
        if record.flow is not None:
            self._forget_step(record)

    async def prune(self, retention: Retention, limit: int = CHUNK) -> int:
        rules.limit(limit)
        with self._lock:
            now = self._clock()
            old = [record for record in self._jobs.values() if _outlived(record, retention, now)]
            old.sort(key=lambda record: (record.finished_at, record.id))
            for record in old[:limit]:
                self._drop(record)
            running = self._running()
            for name, (seen_at, _) in list(self._seen.items()):
                if seen_at <= now - rules.WORKERS_KEPT and name not in running:
                    del self._seen[name]
            return len(old[:limit])


def _outlived(record: Record, retention: Retention, now: datetime) -> bool:
    if record.finished_at is None:
        return False
    kept: timedelta | None = getattr(retention, record.state.value)
    return kept is not None and record.finished_at <= now - kept
