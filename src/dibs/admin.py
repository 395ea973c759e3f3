"""The operator's service: plain data in, plain data out. The command line, and whatever else shows jobs, stand on it.

Everything here is written above the store protocol, so it is the same on every store.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import assert_never
from uuid import UUID

import msgspec

from dibs import health
from dibs.clock import Clock, system_clock
from dibs.flow import FlowHandle
from dibs.job import (
    Cancel,
    Change,
    Changed,
    Delete,
    Enqueued,
    Filter,
    Flow,
    FlowPage,
    FlowState,
    Job,
    NewJob,
    Order,
    Page,
    Reprioritise,
    Requeue,
    Reschedule,
    State,
)
from dibs.limiting import RunTimeLimits, has_no_room
from dibs.overview import LIVE, Queue, Worker, queues_of, total, worker_of
from dibs.redaction import Redaction
from dibs.schedules import Schedules
from dibs.store import CHUNK, Store
from dibs.stores.doctor import Finding, ok, warn
from dibs.task import Tasks

__all__ = ["LIVE", "Admin", "Progress", "Queue", "Snapshot", "Worker"]

LOOKED_AT = 5_000
"""The most jobs that are looked at to find the longest running and the expired ones."""
STEPS_LOOKED_AT = 1_000
"""The most steps that are looked at for what others of their flows must not tell."""

Progress = Callable[[int, int], None]
"""Called after each chunk with how many are done, and how many there were when it began."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a live screen shows, at about one instant."""

    at: datetime
    queues: tuple[Queue, ...]
    workers: tuple[Worker, ...]
    running: tuple[Job, ...]
    """Those that have been running longest, longest first."""
    failures: tuple[Job, ...]
    """Failed jobs, the last to fail first, of the hundred newest."""


class Admin:
    """An operator's verbs over one store."""

    def __init__(self, store: Store, clock: Clock = system_clock, redaction: Redaction | None = None) -> None:
        """``redaction``: what an app marks as secret, if one is known here."""
        self.store = store
        self.clock = clock
        self._redaction = redaction or Redaction()

    async def redaction(self) -> Redaction:
        """What is never shown: what the app marks that is known here, and what workers tell that theirs do.

        The verbs below give jobs as they are: whoever shows them to somebody shows them through this.
        """
        known = self._redaction
        for worker in await self.store.workers():
            known = known.plus(Redaction.heard(worker.info.get("redact")))
        return known

    # --- jobs -----------------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Iterable[NewJob], *, chunk: int = CHUNK) -> list[Enqueued]:
        """Store jobs, a chunk at a time; each chunk is all or nothing."""
        rest, answers = iter(jobs), list[Enqueued]()
        while some := list(islice(rest, chunk)):
            answers += await self.store.enqueue(some)
        return answers

    async def get(self, job: UUID) -> Job | None:
        """One job, or None."""
        return await self.store.get(job)

    async def page(self, which: Filter, after: UUID | None = None, limit: int = 100) -> Page:
        """Some of the jobs that match, newest first."""
        return await self.store.find(which, after, limit)

    async def every(self, which: Filter, limit: int | None = None) -> AsyncIterator[Job]:
        """The jobs that match, newest first, page by page; the first ``limit`` of them if given."""
        left, after = limit, None
        while left is None or left > 0:
            page = await self.store.find(which, after, min(CHUNK, CHUNK if left is None else left))
            for job in page.jobs:
                yield job
            left = None if left is None else left - len(page.jobs)
            after = page.after
            if after is None:
                return

    async def count(self, which: Filter) -> int:
        """How many jobs match. By queue and state that costs little however many there are; else each is looked at."""
        if which == Filter(queues=which.queues, states=which.states, everything=which.everything):
            return sum(
                number
                for one in await self.store.counts()
                if which.queues is None or one.queue in which.queues
                for state, number in one.states.items()
                if which.states is None or state in which.states
            )
        return (await self.store.count(which)).count

    async def change(
        self,
        which: Filter,
        change: Change,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        chunk: int = CHUNK,
    ) -> int:
        """Apply an operator's verb to all jobs that match; answers how many it changed.

        Done in chunks, each atomic: if it is cut short, what was done stays done, and calling again does the rest.
        With ``dry_run`` nothing changes, and the answer is how many would.
        """
        total = 0
        if dry_run or progress is not None:
            total = (await self.apply(which, change, dry_run=True, limit=chunk)).count
        if dry_run:
            return total
        done, after = 0, None
        while True:
            changed = await self.apply(which, change, after=after, limit=chunk)
            done += changed.count
            if progress is not None:
                progress(done, max(done, total))
            after = changed.after
            if after is None:
                return done

    async def apply(
        self, which: Filter, change: Change, *, dry_run: bool = False, after: UUID | None = None, limit: int = CHUNK
    ) -> Changed:
        """One step of ``change``: a chunk behind ``after``, atomic."""
        store = self.store
        match change:
            case Cancel(force):
                return await store.cancel(which, force=force, dry_run=dry_run, after=after, limit=limit)
            case Requeue():
                return await store.requeue(which, dry_run=dry_run, after=after, limit=limit)
            case Reschedule(run_at):
                return await store.reschedule(which, run_at, dry_run=dry_run, after=after, limit=limit)
            case Reprioritise(priority):
                return await store.reprioritise(which, priority, dry_run=dry_run, after=after, limit=limit)
            case Delete(force):
                return await store.delete(which, force=force, dry_run=dry_run, after=after, limit=limit)
        assert_never(change)

    async def expired(self, which: Filter) -> int:
        """Of those that match, how many have a time to expire that has passed: requeued, they would end again.

        Of many, the newest are looked at.
        """
        now, count = self.clock(), 0
        async for job in self.every(which, LOOKED_AT):
            count += job.expires_at is not None and job.expires_at <= now
        return count

    # --- flows ----------------------------------------------------------------------------------------------

    def flow(self, flow: UUID) -> FlowHandle:
        """One flow: to look at it and its steps, to cancel it, to run it again."""
        return FlowHandle(flow, False, self._here)

    async def _here(self) -> Store:
        return self.store

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        """Some of the flows in any of these states, newest first."""
        return await self.store.flows(states, after, limit)

    async def every_flow(self, states: Collection[FlowState] | None = None) -> AsyncIterator[Flow]:
        """The flows in any of these states, newest first, page by page."""
        after: UUID | None = None
        while True:
            page = await self.store.flows(states, after, CHUNK)
            for flow in page.flows:
                yield flow
            after = page.after
            if after is None:
                return

    # --- queues and workers ---------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        """Give out no more jobs of the queue."""
        await self.store.pause(queue)

    async def resume(self, queue: str) -> None:
        """Give out jobs of the queue again."""
        await self.store.resume(queue)

    async def order(self, queue: str, order: Order, ageing: timedelta | None = None) -> None:
        """Say which of two equal jobs the queue hands out first, and whether waiting makes a job more urgent."""
        await self.store.configure(queue, order=order, ageing=ageing)

    def limits(self, tasks: Tasks | None = None) -> RunTimeLimits:
        """The limits of the store: set, reset, list. Those that ``tasks`` declare count as in code."""
        return RunTimeLimits(self._here, {} if tasks is None else tasks.limits)

    async def queues(self) -> list[Queue]:
        """Every queue that has jobs or settings, or a live worker, by name."""
        return queues_of(await self.store.counts(), await self.workers())

    async def workers(self) -> list[Worker]:
        """Every worker that the store knows, by name, the living and the others."""
        now = self.clock()
        return [worker_of(one, now) for one in await self.store.workers()]

    def schedules(self, tasks: Tasks | None = None) -> Schedules:
        """The schedules of the store. Arguments are checked against those ``tasks`` that are given."""
        return Schedules(self._here, tasks or Tasks())

    # --- everything at once ---------------------------------------------------------------------------------

    async def snapshot(self, jobs: int = 5) -> Snapshot:
        """What is going on: for a live screen that asks again and again."""
        workers = await self.workers()
        queues = queues_of(await self.store.counts(), workers)
        running: list[Job] = []
        if total(queues, State.RUNNING):
            running = [job async for job in self.every(Filter(states=(State.RUNNING,)), LOOKED_AT)]
        failures: Sequence[Job] = ()
        if total(queues, State.FAILED):
            failures = (await self.page(Filter(states=(State.FAILED,)), limit=100)).jobs
        redaction = await self.redaction()
        running = sorted(running, key=lambda job: job.started_at or job.created_at)[:jobs]
        failures = sorted(failures, key=lambda job: job.finished_at or job.created_at, reverse=True)[:jobs]
        return Snapshot(
            at=self.clock(),
            queues=tuple(queues),
            workers=tuple(workers),
            running=tuple(await as_shown(self.store, running, redaction)),
            failures=tuple(await as_shown(self.store, failures, redaction)),
        )

    async def health(self) -> list[Finding]:
        """What an operator should know about queues, workers and jobs, each with what to do."""
        workers = await self.workers()
        queues = queues_of(await self.store.counts(), workers)
        limited = {use.scope.queue or "" for use in await self.store.limits() if has_no_room(use)}
        leases = await self._leases(total(queues, State.RUNNING))
        return health.findings(queues, workers, await self.schedules().list(), limited, self.clock(), leases)

    async def _leases(self, running: int) -> Finding:
        now, expired = self.clock(), 0
        if running:
            async for job in self.every(Filter(states=(State.RUNNING,)), LOOKED_AT):
                expired += job.locked_until is not None and job.locked_until <= now
        if not expired:
            return ok("leases", f"{health.many(running, 'running job')}, no lease has expired")
        text = f"{expired:,} of {running:,} running jobs have an expired lease"
        return warn("leases", text, "start workers for their queues: a claim takes them over (dibs workers)")


async def as_shown(store: Store, jobs: Sequence[Job], redaction: Redaction) -> list[Job]:
    """The jobs without what ``redaction`` hides in them, or in a step of their flow that may have handed it on."""
    flows = {job.flow for job in jobs if job.inputs and job.flow is not None}
    if not flows:
        return [redaction.job(job) for job in jobs]
    steps = await store.find(Filter(flows=tuple(flows)), limit=STEPS_LOOKED_AT)
    secrets = redaction.secrets(steps.jobs)
    return [redaction.job(job, secrets if job.inputs else ()) for job in jobs]
