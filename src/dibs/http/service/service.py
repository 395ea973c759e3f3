"""The service: everything that the API and the dashboard show and do."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from dibs import why as reasons
from dibs.admin import LOOKED_AT, Admin
from dibs.app import App
from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError, DibsError
from dibs.flow import FlowHandle
from dibs.http.service import data, search, shown
from dibs.http.service.audit import Audit
from dibs.http.service.batches import Batches, change_of
from dibs.http.service.counting import Glance
from dibs.http.service.news import News
from dibs.http.service.tallies import (
    findings,
    overview,
    queue_shown,
    samples_shown,
    tally,
    task_shown,
    with_served,
)
from dibs.job import Filter, FlowState, Job, NewJob, QueueCounts, State
from dibs.opened import Opened
from dibs.redaction import Redaction
from dibs.schedules import Schedules
from dibs.scope import Limit, Rate, Scope
from dibs.store import Store
from dibs.stores import open_store
from dibs.task import Tasks
from dibs.telemetry import asks, series
from dibs.telemetry.series import Series


class NotFound(DibsError, LookupError):
    """There is no such thing."""


class Service:
    """One store, seen and changed by operators. Every change is in the audit trail, with who did it."""

    def __init__(
        self,
        app: App | None = None,
        *,
        url: str | None = None,
        store: Store | None = None,
        clock: Clock = system_clock,
        redact: Iterable[str] = (),
    ) -> None:
        """Of an app, whose tasks check what is enqueued and say what is secret, or of any store.

        ``redact``: names of arguments that are never shown, besides those that the app marks.
        """
        if app is None and url is None and store is None:
            raise ConfigurationError("a service needs an app, a URL or a store")
        self.app = app
        self.url = url if url is not None else "" if app is None else app.url
        self.clock = clock
        self._given = store
        self._opened = Opened(self._open)
        self._own = Redaction.of(redact).plus(Redaction() if app is None else app.redaction)
        self._hidden = Glance(self._told_by_workers, clock, least=10.0)
        self._counts = Glance(self._look_at_counts, clock)
        self._tasks = Glance(self._look_at_tasks, clock, least=1.0)
        self.audit_trail = Audit(self.store)
        self.batch_runner = Batches(self.store, clock, self.redaction, self.audit_trail, self._changed)
        self.news = News(self)

    # --- the store ------------------------------------------------------------------------------------------

    async def store(self) -> Store:
        """The store, set up on first use."""
        if self._given is not None:
            return self._given
        if self.app is not None and self.url == self.app.url:
            return await self.app.store()
        return await self._opened.here()

    def _open(self) -> Store:
        return open_store(self.url, clock=self.clock)

    async def admin(self) -> Admin:
        return Admin(await self.store(), self.clock)

    async def close(self) -> None:
        """End what runs in the background."""
        await self.news.close()
        await self.batch_runner.close()
        await self._opened.close()

    async def redaction(self) -> Redaction:
        """What is hidden: by the app, by whoever made this service, and by the apps of the workers that are there."""
        told, _ = await self._hidden.get()
        return self._own.plus(told)

    async def _told_by_workers(self) -> Redaction:
        told = Redaction()
        for worker in await (await self.store()).workers():
            told = told.plus(Redaction.heard(worker.info.get("redact")))
        return told

    def _changed(self) -> None:
        self._counts.forget()
        self._tasks.forget()

    # --- jobs -----------------------------------------------------------------------------------------------

    async def jobs(self, which: data.JobFilter, after: UUID | None = None, limit: int = 50) -> data.JobPage:
        """Some of the jobs, newest first."""
        found, rest, looked = await search.find(await self.store(), which, await self.redaction(), after, limit)
        now = self.clock()
        return data.JobPage(jobs=tuple(shown.row(job, now) for job in found), after=rest, looked_at=looked)

    async def job(self, id: UUID) -> data.JobDetail:
        """One job, with all that is known about it."""
        job = await self._job(id)
        return shown.detail((await self.redaction()).job(job), self.clock())

    async def _job(self, id: UUID) -> Job:
        job = await (await self.store()).get(id)
        if job is None:
            raise NotFound(f"there is no job {id}: it never was, or it was deleted or pruned")
        return job

    async def why(self, id: UUID) -> data.Why:
        """What keeps a job from running."""
        job, redaction = await self._job(id), await self.redaction()
        found = await reasons.why(await self.store(), id, self.clock())
        secrets = redaction.secrets(job)
        fields = {name: getattr(found, name) for name in data.Why.__struct_fields__}
        return data.Why(**fields | {"sentence": redaction.text(found.sentence, secrets)})

    async def enqueue(self, given: data.NewJobGiven, actor: str) -> data.Sent:
        """Store a job; the task checks its arguments, if this program knows it."""
        [sent] = await (await self.store()).enqueue([self._new(given)])
        self._changed()
        await self.audit_trail.write(actor, "enqueue", f"task {given.task}, job {sent.id}", int(sent.created))
        return data.Sent(id=sent.id, created=sent.created)

    def _new(self, given: data.NewJobGiven | data.ScheduleGiven) -> NewJob:
        """What is not said is as the task says, or as usual."""
        said = {
            field: value
            for field in ("queue", "priority", "max_attempts", "key", "run_at")
            if (value := getattr(given, field, None)) is not None
        }
        known = None if self.app is None else self.app.tasks.by_name.get(given.task)
        if known is None:
            return NewJob(task=given.task, args=given.args, **said)
        args, named = known.signature.unpack(given.args)
        return known.options(**said).job(*args, **named)

    async def change_one(self, id: UUID, given: data.BatchGiven, actor: str) -> data.Outcome:
        """One job. ``which`` of what is given does not count."""
        change = change_of(given)
        job = await self._job(id)
        changed = await (await self.admin()).apply(Filter(ids=(id,)), change)
        self._changed()
        await self.audit_trail.write(actor, given.verb, f"job {id} of {job.task}", changed.count, reason=given.reason)
        return data.Outcome(changed=changed.count)

    async def change(self, given: data.BatchGiven, actor: str) -> data.Batch:
        """Many jobs: a dry run is answered with its count, the rest goes on in the background."""
        return await self.batch_runner.change(given, actor)

    async def batch(self, id: UUID) -> data.Batch:
        """How a batch is."""
        found = await self.batch_runner.get(id)
        if found is None:
            raise NotFound(f"there is no batch {id}")
        return found

    async def batches(self) -> list[data.Batch]:
        """The newest first."""
        return await self.batch_runner.all()

    async def stop_batch(self, id: UUID, actor: str) -> data.Batch:
        """End a batch after the step that it is in; what was done stays done."""
        await self.batch(id)
        await self.batch_runner.stop(id, actor)
        return await self.batch(id)

    async def audit(self, limit: int = 100) -> data.AuditPage:
        """Who did what, the newest first."""
        return data.AuditPage(entries=await self.audit_trail.entries(limit))

    async def failures(self, which: data.JobFilter = data.JobFilter()) -> data.Failures:  # noqa: B008 - it is frozen
        """Failed jobs by error."""
        return await search.failures(await self.store(), which, await self.redaction())

    # --- everything at a glance -----------------------------------------------------------------------------

    async def counts(self) -> tuple[list[QueueCounts], datetime]:
        """Every queue, counted, and when that was: right after a change from here, else perhaps seconds ago."""
        return await self._counts.get()

    async def _look_at_counts(self) -> list[QueueCounts]:
        return await (await self.store()).counts()

    async def overview(self) -> data.Overview:
        """Everything at a glance."""
        counts, at = await self.counts()
        workers = await (await self.admin()).workers()
        measured = await self.series(timedelta(minutes=10))
        limits = await self.limits()
        listed = await self._schedules().list(ticks=1)
        return overview(
            now=self.clock(),
            counted_at=at,
            url=self.url,
            queues=[queue_shown(one, workers, limits) for one in with_served(counts, workers)],
            workers=workers,
            series=measured,
            findings=findings(counts, workers, listed, self.clock()),
        )

    async def tasks(self) -> list[data.TaskShown]:
        """Every task that has jobs, code here, or a worker."""
        (seen, complete), _ = await self._tasks.get()
        workers = [worker for worker in await (await self.admin()).workers() if worker.live]
        measured = await self.series(timedelta(hours=1))
        known = set() if self.app is None else set(self.app.tasks.by_name)
        names = {*known, *seen, *measured.tasks, *(task for worker in workers for task in worker.tasks or ())}
        return [
            task_shown(name, seen.get(name, {}), workers, complete=complete, series=measured, known=name in known)
            for name in sorted(names)
        ]

    async def _look_at_tasks(self) -> tuple[dict[str, dict[State, int]], bool]:
        return await tally(await self.store())

    async def series(self, span: timedelta) -> Series:
        """What workers recorded in so much time until now."""
        return await series.samples(await self.store(), span)

    async def samples(self, span: timedelta = timedelta(hours=2)) -> data.Samples:
        """The same, slot by slot, to be shown."""
        return samples_shown(await self.series(span))

    # --- queues ---------------------------------------------------------------------------------------------

    async def queues(self) -> list[data.QueueShown]:
        """Every queue that has jobs, settings or a live worker."""
        counts, _ = await self.counts()
        workers = await (await self.admin()).workers()
        limits = await self.limits()
        return [queue_shown(one, workers, limits) for one in with_served(counts, workers)]

    async def queue(self, name: str) -> data.QueueShown:
        """One of them."""
        for one in await self.queues():
            if one.name == name:
                return one
        raise NotFound(f"there is no queue {name}: it has no jobs, no settings and no worker")

    async def pause(self, queue: str, actor: str) -> None:
        await (await self.store()).pause(queue)
        await self._done(actor, "pause", f"queue {queue}")

    async def resume(self, queue: str, actor: str) -> None:
        await (await self.store()).resume(queue)
        await self._done(actor, "resume", f"queue {queue}")

    async def order(self, queue: str, given: data.OrderGiven, actor: str) -> None:
        """In which order the queue hands out its jobs, in place of what was set."""
        ageing = None if given.ageing is None else timedelta(seconds=given.ageing)
        await (await self.store()).configure(queue, order=given.order, ageing=ageing)
        told = given.order if ageing is None else f"{given.order}, ageing {ageing}"
        await self._done(actor, f"order {told}", f"queue {queue}")

    async def limits(self) -> list[data.LimitShown]:
        """Every limit that is set."""
        return [shown.limit(use) for use in await (await self.store()).limits()]

    async def limit(self, given: data.LimitGiven, actor: str) -> None:
        """Set a limit in place of what was set; one that says nothing takes it away."""
        scope = Scope(queue=given.queue, task=given.task, each_key=given.each_key)
        rate = None if given.rate is None else Rate(given.rate.count, timedelta(seconds=given.rate.per))
        none = given.concurrency is None and rate is None
        limit = None if none else Limit(concurrency=given.concurrency, rate=rate)
        await (await self.store()).limit(scope, limit, rank=0 if none else OPERATOR_RANK)
        where = f"queue {given.queue}" if given.queue is not None else f"task {given.task}"
        told = "take away limit" if none else f"limit {msgspec.json.encode(limit).decode()}"
        await self._done(actor, told, where + (", each key" if given.each_key else ""))

    async def _done(self, actor: str, action: str, target: str, count: int | None = None) -> None:
        self._changed()
        await self.audit_trail.write(actor, action, target, count)

    # --- workers --------------------------------------------------------------------------------------------

    async def workers(self) -> list[data.WorkerShown]:
        """Every worker, with what it runs."""
        admin, redaction, now = await self.admin(), await self.redaction(), self.clock()
        workers = await admin.workers()
        held: dict[str, list[Job]] = {}
        if any(worker.running for worker in workers):
            async for job in admin.every(Filter(states=(State.RUNNING,)), LOOKED_AT):
                held.setdefault(job.worker or "", []).append(job)
        asked = await asks.asked_to_stop(admin.store)
        return [shown.worker(one, held.get(one.name, []), asked.get(one.name), redaction, now) for one in workers]

    async def worker(self, name: str) -> data.WorkerShown:
        """One of them."""
        for one in await self.workers():
            if one.name == name:
                return one
        raise NotFound(f"there is no worker {name}: it never was, or it was not seen for a day")

    async def ask_to_stop(self, worker: str, actor: str) -> None:
        """Have a worker finish what it runs and end; it learns of it within about ten seconds."""
        await self.worker(worker)
        await asks.ask_to_stop(await self.store(), worker, actor)
        await self._done(actor, "ask to stop", f"worker {worker}")

    # --- schedules ------------------------------------------------------------------------------------------

    def _schedules(self) -> Schedules:
        return Schedules(self.store, Tasks() if self.app is None else self.app.tasks)

    async def schedules(self, ticks: int = 3) -> list[data.ScheduleShown]:
        """Every schedule, with its next ticks."""
        redaction = await self.redaction()
        return [shown.schedule(one, redaction) for one in await self._schedules().list(ticks=ticks)]

    async def schedule(self, name: str, ticks: int = 10) -> data.ScheduleShown:
        """One schedule, with more of its ticks, and its last job."""
        schedules = self._schedules()
        one = await schedules.get(name, ticks=ticks)
        return shown.schedule(one, await self.redaction(), await schedules.last_job(one))

    async def put_schedule(self, name: str, given: data.ScheduleGiven, actor: str) -> data.ScheduleShown:
        """Store a schedule, in place of one of that name that is stored."""
        rhythm: dict[str, Any] = {
            "cron": given.cron,
            "every": given.every,
            "zone": given.zone,
            "jitter": given.jitter,
            "missed": given.missed,
            "overlap": given.overlap,
            "starts_at": given.starts_at,
            "ends_at": given.ends_at,
        }
        await self._schedules().add(name, self._new(given), paused=given.paused, replace=True, **rhythm)
        await self._done(actor, "put schedule", f"schedule {name}")
        return await self.schedule(name)

    async def remove_schedule(self, name: str, actor: str) -> None:
        await self._schedules().remove(name)
        await self._done(actor, "remove schedule", f"schedule {name}")

    async def pause_schedule(self, name: str, actor: str) -> None:
        await self._schedules().pause(name)
        await self._done(actor, "pause schedule", f"schedule {name}")

    async def resume_schedule(self, name: str, actor: str) -> None:
        await self._schedules().resume(name)
        await self._done(actor, "resume schedule", f"schedule {name}")

    async def run_schedule(self, name: str, actor: str) -> data.Sent:
        """Enqueue its job now."""
        handle = await self._schedules().run(name)
        await self._done(actor, "run schedule", f"schedule {name}, job {handle.id}", int(handle.created))
        return data.Sent(id=handle.id, created=handle.created)

    # --- flows ----------------------------------------------------------------------------------------------

    async def flows(
        self, states: Sequence[FlowState] = (), after: UUID | None = None, limit: int = 50
    ) -> data.FlowPage:
        """Some of the flows, newest first."""
        page = await (await self.store()).flows(states or None, after, limit)
        return data.FlowPage(flows=tuple(shown.flow_row(flow) for flow in page.flows), after=page.after)

    async def flow(self, id: UUID) -> data.FlowDetail:
        """A flow with its steps and what each of them needs."""
        store = await self.store()
        flow = await store.flow(id)
        if flow is None:
            raise NotFound(f"there is no flow {id}: it never was, or its jobs were deleted or pruned")
        page = await store.find(Filter(flows=(id,)), limit=shown.STEPS)
        return shown.flow_detail(flow, page.jobs, self.clock(), await self.redaction())

    async def change_flow(self, id: UUID, verb: str, actor: str, *, force: bool = False) -> data.Outcome:
        """``cancel``, ``retry`` (what failed or was cancelled) or ``restart`` (all of it)."""
        await self.flow(id)
        handle = FlowHandle(id, False, self.store)
        match verb:
            case "cancel":
                count = int(await handle.cancel(force=force))
            case "retry":
                count = await handle.retry()
            case _:
                count = await handle.restart()
        await self._done(actor, f"{verb} flow", f"flow {id}", count)
        return data.Outcome(changed=count)

    # --- events ---------------------------------------------------------------------------------------------

    def events(self, job: UUID | None = None, flow: UUID | None = None) -> AsyncIterator[data.Event]:
        """What changes, as it changes: counts, workers, jobs that ended, batches; and one job or flow, if named."""
        return self.news.listen(job, flow)


OPERATOR_RANK = 1
"""Limits that an operator sets stay, whatever code declares."""
