"""Live events: one look at the store a second for all who listen, and none when nobody does."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from dibs.errors import DibsError
from dibs.http.service import shown
from dibs.http.service.batches import TooMany
from dibs.http.service.counting import SHARE
from dibs.http.service.data import Event
from dibs.job import Filter

if TYPE_CHECKING:
    from dibs.http.service.service import Service

EVERY = 1.0
"""Seconds between two looks."""
LISTENERS = 200
"""So many may listen at once."""
LOOKED_AT = 10_000
"""How many jobs are looked at to find those that ended, where no index leads to them."""
ENDED = 50
"""So many jobs that ended are named in one event."""
MARGIN = timedelta(seconds=2)
"""The clock of a store may be a little off ours."""

Key = tuple[str, str]


class _Listener:
    """What one of those who listen has not heard yet. Of two events about the same thing only the last counts: so
    somebody slow costs no memory."""

    def __init__(self, job: UUID | None, flow: UUID | None) -> None:
        self.job = job
        self.flow = flow
        self.pending: dict[Key, Event] = {}
        self.news = asyncio.Event()
        self.over = False

    def tell(self, key: Key, event: Event) -> None:
        self.pending[key] = event
        self.news.set()


class News:
    """Looks while somebody listens."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._listeners: set[_Listener] = set()
        self._looking: asyncio.Task[None] | None = None
        self._last: dict[Key, bytes] = {}
        self._reported: deque[UUID] = deque(maxlen=1_000)
        self._ended_since = service.clock()
        self._ended_again = 0.0
        self.every = EVERY

    async def listen(self, job: UUID | None = None, flow: UUID | None = None) -> AsyncIterator[Event]:
        """First how everything is, then what changes. Ends when the service is closed."""
        if len(self._listeners) >= LISTENERS:
            raise TooMany(f"{LISTENERS} are listening already: try again later")
        me = _Listener(job, flow)
        self._listeners.add(me)
        try:
            await self._greet(me)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_for_ever(), name="dibs-news")
            while not me.over or me.pending:
                await me.news.wait()
                me.news.clear()
                while me.pending:
                    yield me.pending.pop(next(iter(me.pending)))
        finally:
            self._listeners.discard(me)

    def let_go(self) -> None:
        """End all streams: a server that stops waits for them."""
        for each in self._listeners:
            each.over = True
            each.news.set()

    async def close(self) -> None:
        """Let everybody go, and look no more."""
        self.let_go()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    # --- looking --------------------------------------------------------------------------------------------

    async def _greet(self, me: _Listener) -> None:
        for key, event in await self._everything({me.job} - {None}, {me.flow} - {None}):  # type: ignore[arg-type]
            if self._concerns(me, key):
                me.tell(key, event)

    async def _look_for_ever(self) -> None:
        self._ended_since, self._ended_again = self._service.clock(), 0.0
        while self._listeners:
            # While the store is away nothing is told: those who listen hear of it when it is back.
            with suppress(DibsError):
                self._tell([*await self._changed(), *await self._ended()])
            await asyncio.sleep(self.every)
        self._last.clear()

    def _tell(self, news: list[tuple[Key, Event]]) -> None:
        for key, event in news:
            for each in self._listeners:
                if self._concerns(each, key):
                    each.tell(key, event)

    @staticmethod
    def _concerns(each: _Listener, key: Key) -> bool:
        name, id = key
        match name:
            case "job":
                return str(each.job) == id
            case "flow":
                return str(each.flow) == id
        return True

    async def _changed(self) -> list[tuple[Key, Event]]:
        jobs = {each.job for each in self._listeners if each.job is not None}
        flows = {each.flow for each in self._listeners if each.flow is not None}
        news = []
        for key, event in await self._everything(jobs, flows):
            encoded = msgspec.json.encode(event.data)
            if self._last.get(key) != encoded:
                self._last[key] = encoded
                news.append((key, event))
        return news

    async def _everything(self, jobs: set[UUID], flows: set[UUID]) -> list[tuple[Key, Event]]:
        service = self._service
        counts, _ = await service.counts()
        told: list[tuple[Key, Event]] = [_event("counts", "", {"queues": [_queue(one) for one in counts]})]
        workers = await (await service.admin()).workers()
        alive = [{"name": one.name, "live": one.live, "running": one.running} for one in workers]
        told.append(_event("workers", "", {"workers": alive}))
        told += [_event("batch", str(batch.id), batch) for batch in service.batch_runner.running()]
        told += await self._jobs(jobs)
        for id in flows:
            flow = await (await service.store()).flow(id)
            if flow is not None:
                detail = await service.flow(id)
                told.append(_event("flow", str(id), detail))
        return told

    async def _jobs(self, ids: set[UUID]) -> list[tuple[Key, Event]]:
        if not ids:
            return []
        service = self._service
        page = await (await service.store()).find(Filter(ids=tuple(ids)), limit=len(ids))
        redaction, now = await service.redaction(), service.clock()
        return [_event("job", str(job.id), shown.row(redaction.job(job), now)) for job in page.jobs]

    async def _ended(self) -> list[tuple[Key, Event]]:
        """The jobs that ended since the last look, as far as they are few enough to name.

        Not every store finds them without looking at all that ended: the longer a look took, the later comes the next.
        """
        started = time.monotonic()
        if started < self._ended_again:
            return []
        since, self._ended_since = self._ended_since, self._service.clock()
        page = await (await self._service.store()).find(
            Filter(finished_since=since - MARGIN), limit=ENDED, most=LOOKED_AT
        )
        self._ended_again = time.monotonic() + (time.monotonic() - started) * SHARE
        fresh = [job for job in page.jobs if job.id not in self._reported]
        self._reported.extend(job.id for job in fresh)
        if not fresh:
            return []
        jobs = [{"id": job.id, "task": job.task, "queue": job.queue, "state": job.state} for job in fresh]
        return [_event("ended", "", {"jobs": jobs, "more": page.after is not None})]


def _event(name: Any, id: str, data: Any) -> tuple[Key, Event]:
    return (name, id), Event(name=name, data=data)


def _queue(one: Any) -> dict[str, Any]:
    told = {"name": one.queue, "paused": one.paused, "states": one.states, "scheduled": one.scheduled}
    return {**told, "more": sorted(one.more)}
