"""The operator's service: plain data in, plain data out. The command line, and whatever else shows jobs, stand on it.

Everything here is written above the store protocol, so it is the same on every store.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, assert_never
from uuid import UUID

import msgspec

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
    QueueCounts,
    Reprioritise,
    Requeue,
    Reschedule,
    State,
    WorkerInfo,
)
from dibs.schedules import Listed, Schedules
from dibs.store import CHUNK, Store
from dibs.stores.doctor import Finding, fail, ok, warn
from dibs.task import Tasks

LIVE = timedelta(seconds=35)
"""A worker shows itself every ten seconds: one that missed three of them is gone."""
PATIENCE = timedelta(minutes=5)
"""A queue whose oldest due job has waited longer than this is falling behind."""
LOOKED_AT = 5_000
"""The most running jobs that are looked at to find the longest and the expired ones."""

Progress = Callable[[int, int], None]
"""Called after each chunk with how many are done, and how many there were when it began."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as operators see it: what it serves, and whether it is alive."""

    name: str
    live: bool
    seen_at: datetime | None
    running: int
    queues: tuple[str, ...] | None
    """None if it never said."""
    tasks: tuple[str, ...] | None
    concurrency: int | None
    info: dict[str, Any]

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs of the queue, as far as anybody knows."""
        return self.queues is None or queue in self.queues

    def knows(self, task: str) -> bool:
        """Whether it can run the task, as far as anybody knows."""
        return self.tasks is None or task in self.tasks

    @property
    def full(self) -> bool:
        """Whether it runs as many jobs as it can at once."""
        return self.concurrency is not None and self.running >= self.concurrency


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as operators see it."""

    name: str
    paused: bool
    order: Order
    states: dict[State, int]
    due: int
    scheduled: int
    oldest_due: datetime | None
    workers: tuple[str, ...]
    """The live workers that serve it."""


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

    def __init__(self, store: Store, clock: Clock = system_clock) -> None:
        self.store = store
        self.clock = clock

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
        return (await self.store.delete(which, force=True, dry_run=True)).count

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

    async def order(self, queue: str, order: Order) -> None:
        """Say which of two equal jobs the queue hands out first."""
        await self.store.configure(queue, order=order)

    async def queues(self) -> list[Queue]:
        """Every queue that has jobs or settings, or a live worker, by name."""
        return _queues(await self.store.counts(), await self.workers())

    async def workers(self) -> list[Worker]:
        """Every worker that the store knows, by name, the living and the others."""
        now = self.clock()
        return [_worker(one, now) for one in await self.store.workers()]

    def schedules(self, tasks: Tasks | None = None) -> Schedules:
        """The schedules of the store. Arguments are checked against those ``tasks`` that are given."""
        return Schedules(self._here, tasks or Tasks())

    # --- everything at once ---------------------------------------------------------------------------------

    async def snapshot(self, jobs: int = 5) -> Snapshot:
        """What is going on: for a live screen that asks again and again."""
        workers = await self.workers()
        queues = _queues(await self.store.counts(), workers)
        running: list[Job] = []
        if _total(queues, State.RUNNING):
            running = [job async for job in self.every(Filter(states=(State.RUNNING,)), LOOKED_AT)]
        failures: Sequence[Job] = ()
        if _total(queues, State.FAILED):
            failures = (await self.page(Filter(states=(State.FAILED,)), limit=100)).jobs
        return Snapshot(
            at=self.clock(),
            queues=tuple(queues),
            workers=tuple(workers),
            running=tuple(sorted(running, key=lambda job: job.started_at or job.created_at)[:jobs]),
            failures=tuple(sorted(failures, key=lambda job: job.finished_at or job.created_at, reverse=True)[:jobs]),
        )

    async def health(self) -> list[Finding]:
        """What an operator should know about queues, workers and jobs, each with what to do."""
        counts, workers = await self.store.counts(), await self.workers()
        running = sum(one.states[State.RUNNING] for one in counts)
        leases = await self._leases(running)
        return health_of(counts, workers, await self.schedules().list(), self.clock(), leases)

    async def _leases(self, running: int) -> Finding:
        now, expired = self.clock(), 0
        if running:
            async for job in self.every(Filter(states=(State.RUNNING,)), LOOKED_AT):
                expired += job.locked_until is not None and job.locked_until <= now
        if not expired:
            return ok("leases", f"{_many(running, 'running job')}, no lease has expired")
        text = f"{expired:,} of {running:,} running jobs have an expired lease"
        return warn("leases", text, "start workers for their queues: a claim takes them over (dibs workers)")


def health_of(
    counts: Iterable[QueueCounts],
    workers: Sequence[Worker],
    schedules: Sequence[Listed],
    now: datetime,
    *others: Finding,
) -> list[Finding]:
    """What an operator should know about queues, workers and schedules that were looked at before."""
    queues = _queues(counts, workers)
    findings = [_served(queue, now) for queue in queues if queue.due]
    return [
        *(findings or [ok("queues", f"{_many(len(queues), 'queue')}, no job is due")]),
        *_alive(workers),
        *others,
        _failed(queues),
        *_scheduled(schedules),
    ]


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _total(queues: Iterable[Queue], state: State) -> int:
    return sum(queue.states[state] for queue in queues)


def _worker(one: WorkerInfo, now: datetime) -> Worker:
    info = one.info
    patience = max(LIVE, timedelta(seconds=_number(info.get("lease")) or 0))
    seen = one.seen_at
    live = one.running > 0 if seen is None else now - seen <= patience and not info.get("stopped_at")
    concurrency = _number(info.get("concurrency"))
    return Worker(
        name=one.name,
        live=live,
        seen_at=seen,
        running=one.running,
        queues=_names(info.get("queues")),
        tasks=_names(info.get("tasks")),
        concurrency=None if concurrency is None else int(concurrency),
        info=info,
    )


def _names(value: Any) -> tuple[str, ...] | None:
    # What a worker says of itself is any JSON: a list, or queues with their weights.
    return tuple(str(name) for name in value) if isinstance(value, list | dict) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _queues(counts: Iterable[QueueCounts], workers: Sequence[Worker]) -> list[Queue]:
    known = {one.queue: one for one in counts}
    served = {queue for worker in workers if worker.live for queue in worker.queues or ()}
    return [_queue(name, known.get(name), workers) for name in sorted({*known, *served})]


def _queue(name: str, counted: QueueCounts | None, workers: Sequence[Worker]) -> Queue:
    states = dict.fromkeys(State, 0) if counted is None else counted.states
    scheduled = 0 if counted is None else counted.scheduled
    return Queue(
        name=name,
        paused=counted is not None and counted.paused,
        order=Order.FIFO if counted is None else counted.order,
        states=states,
        due=states[State.QUEUED] - scheduled,
        scheduled=scheduled,
        oldest_due=None if counted is None else counted.oldest_due,
        workers=tuple(worker.name for worker in workers if worker.live and worker.serves(name)),
    )


def _served(queue: Queue, now: datetime) -> Finding:
    name = f"queue {queue.name}"
    if queue.paused:
        return warn(name, f"paused, {_many(queue.due, 'due job')} waiting", f"run dibs queues resume {queue.name}")
    if not queue.workers:
        text = f"no live worker serves it, {_many(queue.due, 'due job')} waiting"
        return fail(name, text, f"start one: dibs work APP --queues {queue.name}")
    late = None if queue.oldest_due is None else now - queue.oldest_due
    if late is not None and late > PATIENCE:
        minutes = int(late.total_seconds() // 60)
        text = f"the oldest of {queue.due:,} due jobs has waited for {minutes:,} min"
        return warn(name, text, "add workers, or raise --concurrency")
    return ok(name, f"{_many(queue.due, 'due job')}, {_many(len(queue.workers), 'live worker')}")


def _alive(workers: Sequence[Worker]) -> list[Finding]:
    live = sum(worker.live for worker in workers)
    # One that ended and holds nothing is no news; one that holds jobs did not end in good order.
    lost = [worker for worker in workers if not worker.live and worker.running]
    if live:
        findings = [ok("workers", _many(live, "live worker"))]
    else:
        findings = [warn("workers", "no live worker", "start one: dibs work APP")]
    for worker in lost[:10]:
        since = "ever" if worker.seen_at is None else f"since {worker.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        text = f"not seen {since}, holds {_many(worker.running, 'job')}"
        findings.append(warn(f"worker {worker.name}", text, "see why it ended; its jobs are taken over by others"))
    return findings


def _failed(queues: Iterable[Queue]) -> Finding:
    count = _total(queues, State.FAILED)
    if not count:
        return ok("failures", "no failed jobs")
    return warn("failures", _many(count, "failed job"), "look at them: dibs jobs list --state failed")


def _scheduled(schedules: Sequence[Listed]) -> list[Finding]:
    """Nothing where there are none: most stores have none."""
    findings = []
    for one in schedules:
        name = f"schedule {one.name}"
        if one.problem is not None:
            findings.append(warn(name, one.problem, "workers that can read it run it; see dibs schedules show"))
        elif one.late is not None:
            text = f"nobody enqueued its tick of {one.late:%Y-%m-%d %H:%M:%S} UTC"
            findings.append(fail(name, text, "start a worker: dibs work APP"))
    if schedules and not findings:
        paused = sum(one.paused for one in schedules)
        findings.append(ok("schedules", f"{_many(len(schedules), 'schedule')}, {paused} paused"))
    return findings
