"""Waiting for the end of many jobs at once: one look at the store for all who wait, not one for each."""

import asyncio
from contextlib import suppress
from uuid import UUID

from dibs.errors import StoreUnavailable
from dibs.handle import OpenStore
from dibs.job import FINISHED, Filter, Job
from dibs.limits import BULK

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25


class Waiters:
    """Those who wait for jobs, in one event loop. The store is looked at only while somebody waits."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._futures: dict[UUID, list[asyncio.Future[Job]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def ended(self, id: UUID, seconds: float) -> Job | None:
        """The job, if it ends in that time; else None."""
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(id, []).append(future)
        self._news.set()  # somebody new: look often again
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_ever(), name="dibs-http-waiters")
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            self._forget(id, future)

    def _forget(self, id: UUID, future: asyncio.Future[Job]) -> None:
        futures = self._futures.get(id, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._futures.pop(id, None)

    async def _look_for_ever(self) -> None:
        pause = FIRST_PAUSE
        while self._futures:
            self._news.clear()
            with suppress(StoreUnavailable):  # those who wait ask themselves when their time is up
                if await self._look():
                    pause = FIRST_PAUSE
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
                    pause = FIRST_PAUSE
            pause = min(pause * 1.5, LONGEST_PAUSE)

    async def _look(self) -> bool:
        """Tell those whose job has ended; whether there were any."""
        store, some = await self._store(), False
        waited = list(self._futures)
        for start in range(0, len(waited), BULK):
            ids = tuple(waited[start : start + BULK])
            page = await store.find(Filter(ids=ids, states=tuple(FINISHED)), limit=BULK)
            for job in page.jobs:
                some = True
                for future in self._futures.get(job.id, ()):
                    if not future.done():
                        future.set_result(job)
        return some
