"""The service: everything that the API and the dashboard show and do."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from dibs import why as reasons
from dibs.admin import LOOKED_AT, as_shown
from dibs.http.service import data, search, shown
from dibs.http.service.batches import change_of
from dibs.http.service.core import NotFound
from dibs.http.service.news import News
from dibs.http.service.planned import Planned
from dibs.http.service.tallies import (
    There,
    findings,
    overview,
    queue_shown,
    samples_shown,
    task_shown,
)
from dibs.job import Filter, Job, QueueCounts, State
from dibs.limiting import RunTimeLimits, limit_in_words
from dibs.overview import queues_of
from dibs.scope import Rate
from dibs.telemetry import asks, series
from dibs.telemetry.series import Series

__all__ = ["NotFound", "Service"]


PATIENCE = 0.03
"""Seconds that whoever asks waits for all jobs to be counted."""
RECENTLY = timedelta(minutes=10)
"""What rates are measured over."""


class Service(Planned):
    """One store, seen and changed by operators. Every change is in the audit trail, with who did it."""

    # --- jobs -----------------------------------------------------------------------------------------------

    async def jobs(self, which: data.JobFilter, after: UUID | None = None, limit: int = 50) -> data.JobPage:
        """Some of the jobs, newest first."""
        found, rest, looked = await search.find(await self.store(), which, await self.redaction(), after, limit)
        now = self.clock()
        return data.JobPage(jobs=tuple(shown.row(job, now) for job in found), after=rest, looked_at=looked)

    async def job(self, id: UUID) -> data.JobDetail:
        """One job, with all that is known about it."""
        job = await self._job(id)
        [safe] = await as_shown(await self.store(), [job], await self.redaction())
        return shown.detail(safe, self.clock())

    async def _job(self, id: UUID) -> Job:
        job = await (await self.store()).get(id)
        if job is None:
            raise NotFound(f"there is no job {id}: it never was, or it was deleted or pruned")
        return job

    async def why(self, id: UUID) -> data.Why:
        """What keeps a job from running."""
        await self._job(id)
        found = await reasons.why(await self.store(), id, self.clock(), await self.redaction())
        return data.Why(**{name: getattr(found, name) for name in data.Why.__struct_fields__})

    async def enqueue(self, given: data.NewJobGiven, actor: str) -> data.Sent:
        """Store a job; the task checks its arguments, if this program knows it."""
        [sent] = await (await self.store()).enqueue([self._new(given)])
        self._changed()
        await self.audit_trail.write(actor, "enqueue", f"task {given.task}, job {sent.id}", int(sent.created))
        return data.Sent(id=sent.id, created=sent.created)

    async def change_one(self, id: UUID, given: data.BatchGiven, actor: str) -> data.Outcome:
        """One job. ``which`` of what is given does not count."""
        change = change_of(given)
        job = await self._job(id)
        changed = await (await self.admin()).apply(Filter(ids=(id,)), change)
        self._changed()
        await self.audit_trail.write(actor, given.verb, f"job {id} of {job.task}", changed.count, reason=given.reason)
        return data.Outcome(changed=changed.count)

    async def change(self, given: data.BatchGiven, actor: str, *, most: int | None = None) -> data.Batch:
        """Many jobs: a dry run is answered with its count, up to about ``most``; the rest goes on in the background."""
        return await self.batch_runner.change(given, actor, most=most)

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
        """Failed jobs by error; without a filter perhaps as they were seconds ago, where there are many."""
        if which == data.JobFilter():
            return (await self._failures.get())[0]
        return await search.failures(await self.store(), which, await self.redaction(), self.clock())

    # --- everything at a glance -----------------------------------------------------------------------------

    async def counts(self) -> tuple[list[QueueCounts], datetime]:
        """Every queue, counted, and when that was: right after a change from here, else perhaps seconds ago.

        Where there are many, and nobody has counted for a minute, only the first thousands of each state are counted at
        first, and those states are named in ``more``; all jobs are then counted in the background.
        """
        if (known := self._counts.known()) is not None:
            return known
        some = await self._some.get()
        if not any(one.more for one in some[0]):
            return some  # that are all
        return await self._counts.within(PATIENCE) or some

    async def overview(self) -> data.Overview:
        """Everything at a glance."""
        (counts, at), (workers, _), measured, limits, listed = await asyncio.gather(
            self.counts(),
            self._workers.get(),
            self.series(RECENTLY),
            self._limits().list(),
            self._schedules().list(ticks=1),
        )
        queues = queues_of(counts, workers)
        return overview(
            now=self.clock(),
            counted_at=at,
            url=self.url,
            queues=[queue_shown(one, [shown.limit(limit) for limit in limits], measured) for one in queues],
            workers=workers,
            series=measured,
            findings=findings(queues, workers, listed, limits, self.clock()),
        )

    async def tasks(self) -> list[data.TaskShown]:
        """Every task that has jobs, code here, or a worker."""
        (seen, complete), _ = await self._tasks.get()
        workers = [worker for worker in (await self._workers.get())[0] if worker.live]
        measured = await self.series(timedelta(hours=1))
        known = set() if self.app is None else set(self.app.tasks.by_name)
        names = {*known, *seen, *measured.tasks, *(task for worker in workers for task in worker.tasks or ())}
        return [
            task_shown(name, seen.get(name, There()), workers, complete=complete, series=measured, known=name in known)
            for name in sorted(names)
        ]

    async def series(self, span: timedelta) -> Series:
        """What workers recorded in so much time until now."""
        return await series.samples(await self.store(), span)

    async def samples(self, span: timedelta = timedelta(hours=2)) -> data.Samples:
        """The same, slot by slot, to be shown."""
        return samples_shown(await self.series(span))

    # --- queues ---------------------------------------------------------------------------------------------

    async def queues(self) -> list[data.QueueShown]:
        """Every queue that has jobs, settings or a live worker."""
        (counts, _), (workers, _), limits, measured = await asyncio.gather(
            self.counts(), self._workers.get(), self.limits(), self.series(RECENTLY)
        )
        return [queue_shown(one, limits, measured) for one in queues_of(counts, workers)]

    async def queue(self, name: str) -> data.QueueShown:
        """One of them."""
        for _ in range(2):
            for one in await self.queues():
                if one.name == name:
                    return one
            self._counts.forget()  # it may be new since they were counted
            await self._counts.get()  # or have old jobs alone, and so many others have newer ones
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
        return [shown.limit(use) for use in await self._limits().list()]

    async def limit(self, given: data.LimitGiven, actor: str) -> None:
        """Set a limit in place of what was set or is in the code; one that says nothing takes it away again."""
        scope: dict[str, Any] = {"queue": given.queue, "task": given.task, "each_key": given.each_key}
        rate = None if given.rate is None else Rate(given.rate.count, timedelta(seconds=given.rate.per))
        where = (f"queue {given.queue}" if given.queue is not None else f"task {given.task}") + (
            ", each key" if given.each_key else ""
        )
        if given.concurrency is None and rate is None:
            await self._limits().reset(**scope)
            await self._done(actor, "reset limit", where)
        else:
            limit = await self._limits().set(**scope, concurrency=given.concurrency, rate=rate)
            await self._done(actor, f"limit to {limit_in_words(limit)}", where)

    def _limits(self) -> RunTimeLimits:
        return RunTimeLimits(self.store, {} if self.app is None else self.app.tasks.limits)

    # --- workers --------------------------------------------------------------------------------------------

    async def workers(self) -> list[data.WorkerShown]:
        """Every worker, with what it runs."""
        admin, now = await self.admin(), self.clock()
        (workers, _), redaction = await asyncio.gather(self._workers.get(), self.redaction())
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

    # --- events ---------------------------------------------------------------------------------------------

    @cached_property
    def news(self) -> News:
        return News(self)

    async def close(self) -> None:
        """End what runs in the background."""
        await self.news.close()
        await super().close()

    def events(self, job: UUID | None = None, flow: UUID | None = None) -> AsyncIterator[data.Event]:
        """What changes, as it changes: counts, workers, jobs that ended, batches; and one job or flow, if named."""
        return self.news.listen(job, flow)
