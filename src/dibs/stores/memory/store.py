"""The memory store: shortest, no tricks, one lock. What it answers is what every store has to answer."""

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
    Counted,
    Delete,
    Enqueued,
    Filter,
    NewJob,
    OnConflict,
    Report,
    Reprioritise,
    Requeue,
    Reschedule,
    Retention,
    Settlement,
    State,
)
from dibs.limits import Admitted, Limits, Settled
from dibs.outcome import Pulse, Verdict
from dibs.store import CHUNK
from dibs.stores.bulk import BulkVerbs
from dibs.stores.memory.flows import FlowRecord, FlowVerbs
from dibs.stores.memory.keeping import Keeping
from dibs.stores.memory.lane import Lane
from dibs.stores.memory.limiting import LimitVerbs
from dibs.stores.memory.looking import Looking
from dibs.stores.memory.queues import QueueVerbs
from dibs.stores.memory.records import Record


class MemoryStore(QueueVerbs, LimitVerbs, FlowVerbs, Looking, Keeping, BulkVerbs):
    """Jobs in this process's memory, gone when it ends; safe to use from several threads."""

    embedded = True

    def __init__(self, *, clock: Clock = system_clock, limits: Limits = rules.DEFAULT) -> None:
        super().__init__()
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._jobs: dict[UUID, Record] = {}
        self._held: dict[int, Record] = {}
        self._flows: dict[UUID, FlowRecord] = {}
        self._lanes: dict[str, Lane] = {}
        self._seen: dict[str, tuple[datetime, dict[str, Any]]] = {}

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
        if job.id in self._jobs:
            return Enqueued(job.id, created=False)
        holder = None if job.key is None else self._lane(job.queue).holder(job.key, now)
        if holder is None:
            self._store(Record.of(job, now))
            return Enqueued(job.id, created=True)
        changed = job.on_conflict is not OnConflict.EXISTING and holder.state is State.QUEUED
        if changed:
            holder.become(job, now)
            self._put_back(holder, holder.run_at)
        return Enqueued(holder.id, created=False, changed=changed)

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
                elif record.end(now) is not None:
                    self._is_over(record, now)
                elif not self._limited or self._admit(record, now):
                    self._take(record, worker, now, lease)
                    claims.append(record.as_claim())
                else:
                    passed.append(record)
            for record in passed:
                lane.put(record)
            return claims

    def _is_over(self, record: Record, now: datetime) -> bool:
        """End a claimable job that is not to be started (again). False if it may be."""
        if (end := record.end(now)) is None:
            return False
        record.outcome = None
        self._close_books(record, now)
        self._finish(record, end, now)
        return True

    def _close_books(self, record: Record, now: datetime) -> None:
        """On an attempt whose lease expired, if there was one."""
        if record.state is State.RUNNING:
            record.blame(now, rules.LEASE_EXPIRED)

    def _take(self, record: Record, worker: str, now: datetime, lease: timedelta) -> None:
        self._close_books(record, now)
        record.state, record.worker, record.outcome = State.RUNNING, worker, None
        record.attempts += 1
        record.epoch += 1
        record.started_at, record.locked_until = now, now + lease
        self._hold(record)
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

    async def sweep(self, limit: int = CHUNK, *, not_within: timedelta | None = None) -> int:
        rules.sweeping(limit, not_within)
        with self._lock:
            now = self._clock()
            late = (record for record in self._held.values() if not record.holds(now))
            queued = (record for record in self._jobs.values() if record.state is State.QUEUED)
            expired = (record for record in queued if record.end(now) is not None)
            found = sorted(late, key=lambda record: (record.locked_until, record.id))
            found += sorted(expired, key=lambda record: (record.expires_at, record.id))
            for record in found[:limit]:
                if record.state in UNFINISHED and not self._is_over(record, now):
                    self._close_books(record, now)
                    self._put_back(record, record.run_at)
            return len(found[:limit])

    def _put_back(self, record: Record, run_at: datetime) -> None:
        record.state, record.run_at, record.locked_until = State.QUEUED, run_at, None
        self._let_go(record)
        lane = self._lane(record.queue)
        if record.key is not None:
            lane.take_key(record)
        if run_at <= record.created_at:
            lane.put(record)  # it is due
        else:
            lane.look_at(record, run_at)
        self._wake(record.queue)

    def _finish(self, record: Record, state: State, now: datetime) -> None:
        self._close(record, state, now)
        if record.flow is not None:
            self._ended(record, now)

    def _close(self, record: Record, state: State, now: datetime) -> None:
        record.state, record.finished_at, record.locked_until = state, now, None
        self._let_go(record)
        if record.key is not None and not record.busy(now):
            self._lanes[record.queue].free_key(record)

    # --- an operator's verbs --------------------------------------------------------------------------------

    async def _count(
        self, which: Filter, states: frozenset[State], after: UUID | None = None, most: int | None = None
    ) -> Counted:
        with self._lock:
            return Counted(len(self._matching(which, after, states)))

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
                holder = lane.holder(record.key, now)
                if holder is not None and holder.state in UNFINISHED:
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
        self._ask(record)
        if force or record.state is not State.RUNNING:
            record.outcome = None
            self._finish(record, State.CANCELLED, now)

    def _drop(self, record: Record) -> None:
        self._lanes[record.queue].free_key(record)
        self._let_go(record)
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
            self._forget_full_buckets(now)
            running = self._running()
            self._asked &= running.keys()
            for name, (seen_at, _) in list(self._seen.items()):
                if seen_at <= now - rules.WORKERS_KEPT and name not in running:
                    del self._seen[name]
            return len(old[:limit])


def _outlived(record: Record, retention: Retention, now: datetime) -> bool:
    if record.finished_at is None:
        return False
    kept: timedelta | None = getattr(retention, record.state.value)
    return kept is not None and record.finished_at <= now - kept
