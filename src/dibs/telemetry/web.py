"""``/metrics``, ``/healthz`` and ``/readyz`` of a server: what is in the store. Needs ``dibs[web,metrics]``."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING

from dibs.store import Store
from dibs.telemetry import exposition
from dibs.telemetry.metrics import Counted, Family, store_families

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

EVERY = 15.0
"""Seconds for which figures of a store are good: scrapes, however many, make it count no more often than that."""
PATIENCE = 5.0
"""Seconds that a scrape waits for figures; after that it gets those from before."""
FORGOTTEN = 300.0
"""Seconds after which figures are no longer shown as if they were true."""


class StoreFigures:
    """The figures of a store, counted now and then, whoever asks.

    ``store`` gives the store's handle of the running loop, as ``app.store`` does.
    """

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        *,
        every: float = EVERY,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._every = every
        self._clock = clock
        self._counted: Counted | None = None
        self._counted_at = 0.0
        self._asked_at: float | None = None
        self._counting: asyncio.Task[None] | None = None
        self.up = False
        """Whether the store answered when it was last asked."""

    async def families(self) -> list[Family]:
        """The metrics of the store: counted now if that is due and does not take too long, else those from before."""
        await self.look()
        age = self._clock() - self._counted_at
        counted = self._counted if age <= FORGOTTEN else None
        return store_families(counted, up=self.up, age=age)

    async def look(self) -> None:
        """Have the store asked if that is due; one call at a time, and its end is waited for no longer than needed."""
        now = self._clock()
        if self._counting is None and (self._asked_at is None or now - self._asked_at >= self._every):
            self._asked_at = now
            self._counting = asyncio.create_task(self._count())
        if self._counting is not None:
            await asyncio.wait([self._counting], timeout=PATIENCE)

    async def _count(self) -> None:
        try:
            store = await self._store()
            queues, workers = await store.counts(), await store.workers()
            self._counted = Counted((await store.kept(())).now, queues, workers)
            self._counted_at, self.up = self._clock(), True
        except Exception:  # a store that is away is what the figure ``dibs_store_up`` is for
            self.up = False
        finally:
            self._counting = None


def metrics_routes(store: Callable[[], Awaitable[Store]], *, every: float = EVERY) -> "list[Route]":
    """Routes for a Starlette application: ``Starlette(routes=[*metrics_routes(app.store), …])``.

    ``/healthz`` answers as long as the server does; ``/readyz`` if the store has answered lately, too.
    """
    exposition.require()
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    figures = StoreFigures(store, every=every)

    async def metrics(request: "Request") -> "Response":
        families = [*await figures.families(), *exposition.registered()]
        content_type, body = exposition.exposed(families, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type, "cache-control": "no-store"})

    async def healthz(_: "Request") -> "Response":
        return PlainTextResponse("ok\n")

    async def readyz(_: "Request") -> "Response":
        await figures.look()
        return PlainTextResponse("ok\n") if figures.up else PlainTextResponse("the store is away\n", 503)

    return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
