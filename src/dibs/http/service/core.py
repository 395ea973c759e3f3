"""What every part of the service stands on: the store, what is hidden, the trail, and what is looked at seldom."""

from collections.abc import Iterable
from functools import reduce

from dibs.admin import Admin
from dibs.app import App
from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError, DibsError
from dibs.http.service import data, search
from dibs.http.service.audit import Audit
from dibs.http.service.batches import Batches
from dibs.http.service.counting import Glance
from dibs.http.service.tallies import There, tally
from dibs.job import NewJob, QueueCounts
from dibs.opened import Opened
from dibs.overview import Worker
from dibs.redaction import Redaction
from dibs.store import Store
from dibs.stores import open_store

COUNTED = 3_000
"""Of each state, while there was no time to count all jobs."""


class NotFound(DibsError, LookupError):
    """There is no such thing."""


class Core:
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
        self._own = Redaction.of(redact)
        self._hidden = Glance(self._told_by_workers, clock, least=10.0)
        self._counts = Glance(self._look_at_counts, clock)
        self._some = Glance(self._look_at_some, clock)
        self._workers = Glance(self._look_at_workers, clock, share=0)
        self._tasks = Glance(self._look_at_tasks, clock)
        self._failures = Glance(self._look_at_failures, clock)
        self.audit_trail = Audit(self.store)
        self.batch_runner = Batches(self.store, clock, self.redaction, self.audit_trail, self._changed)

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
        await self.batch_runner.close()
        await self._opened.close()

    async def redaction(self) -> Redaction:
        """What is hidden: by the app, by whoever made this service, and by the apps of the workers that are there."""
        told, _ = await self._hidden.get()
        known = self._own.plus(told)
        return known if self.app is None else known.plus(self.app.redaction)  # its tasks may be declared later

    async def _told_by_workers(self) -> Redaction:
        workers, _ = await self._workers.get()
        told = (Redaction.heard(worker.info.get("redact")) for worker in workers)
        return reduce(Redaction.plus, told, Redaction())

    async def _look_at_counts(self) -> list[QueueCounts]:
        return await (await self.store()).counts()

    async def _look_at_some(self) -> list[QueueCounts]:
        return await (await self.store()).counts(most=COUNTED)

    async def _look_at_workers(self) -> list[Worker]:
        return await (await self.admin()).workers()

    async def _look_at_tasks(self) -> tuple[dict[str, There], bool]:
        return await tally(await self.store(), self.clock())

    async def _look_at_failures(self) -> data.Failures:
        return await search.failures(await self.store(), data.JobFilter(), await self.redaction(), self.clock())

    def _changed(self) -> None:
        self._counts.forget()
        self._some.forget()
        self._workers.forget()
        self._tasks.forget()
        self._failures.forget()

    async def _done(self, actor: str, action: str, target: str, count: int | None = None) -> None:
        self._changed()
        await self.audit_trail.write(actor, action, target, count)

    def _new(self, given: data.NewJobGiven | data.ScheduleGiven) -> NewJob:
        """What is not said is as the task says, or as usual."""
        said = {
            field: value
            for field in ("queue", "priority", "max_attempts", "key", "run_at", "expires_at", "limit_key")
            if (value := getattr(given, field, None)) is not None
        }
        known = None if self.app is None else self.app.tasks.by_name.get(given.task)
        if known is None:
            return NewJob(task=given.task, args=given.args, **said)
        args, named = known.signature.unpack(given.args)
        return known.options(**said).job(*args, **named)
