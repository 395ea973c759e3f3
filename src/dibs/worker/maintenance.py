"""Maintenance: any worker does it, none leads. Each call is small, so nobody waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from random import uniform

from dibs.errors import StoreUnavailable
from dibs.job import Retention
from dibs.store import Store
from dibs.telemetry import sampler as sampling
from dibs.worker.log import log
from dibs.worker.outage import Backoff, Weather

PRUNE_EVERY = 300.0
SWEEPS = 8
"""Sweeps by many workers in the time in which one makes one, at most: others are content with what was swept."""
CHUNK = 500
PAUSE = 0.05
"""Seconds between two chunks, for the others."""
LEAVING = 1.0
"""Seconds that the last sample may take when the worker ends."""


class Maintenance:
    """Sweeps about every half lease, and prunes what the retention does not keep every few minutes.

    And writes samples of what this worker does, if it is to.
    """

    def __init__(
        self,
        store: Store,
        weather: Weather,
        lease: timedelta,
        retention: Retention | None,
        sampler: sampling.Sampler | None,
    ) -> None:
        self._store = store
        self._weather = weather
        self._sweep_every = lease.total_seconds() / 2
        self._retention = retention
        self._sampler = sampler
        self._complaint = ""
        """What was last said of samples; it is said once."""

    async def sweep(self) -> None:
        """For ever."""
        await self._every("sweeps", self._sweep_every, self._sweep_once)

    async def prune(self) -> None:
        """For ever."""
        if self._retention is not None:
            await self._every("prunes", PRUNE_EVERY, self._prune_once)

    async def sample(self) -> None:
        """For ever."""
        if self._sampler is not None:
            await self._every("samples", sampling.EVERY, self._sample_once)

    async def leave(self) -> None:
        """Write what was done last; a store that is away now will not miss it."""
        if self._sampler is not None:
            with suppress(Exception):
                async with asyncio.timeout(LEAVING):
                    await self._sampler.leave()

    async def _every(self, part: str, seconds: float, work: Callable[[], Awaitable[int]]) -> None:
        backoff, never = Backoff(), asyncio.Event()
        # Workers that start together do not work together.
        await asyncio.sleep(seconds * uniform(0.0, 1.0))
        while True:
            try:
                full = await work() == CHUNK
            except Exception as problem:
                self._weather.failed(part, problem)
                await backoff.pause(never)
                continue
            self._weather.fine(part)
            backoff.reset()
            await asyncio.sleep(PAUSE if full else seconds * uniform(0.75, 1.25))

    async def _sample_once(self) -> int:
        """What is wrong with samples, other than that the store is away, is no fault of the worker's work."""
        assert self._sampler is not None
        try:
            await self._sampler.look()
        except StoreUnavailable:
            raise
        except Exception as problem:
            if str(problem) != self._complaint:
                self._complaint = str(problem)
                log.warning("no samples can be written: %s", problem)
        return 0

    async def _sweep_once(self) -> int:
        return await self._store.sweep(CHUNK, not_within=timedelta(seconds=self._sweep_every / SWEEPS))

    async def _prune_once(self) -> int:
        assert self._retention is not None
        return await self._store.prune(self._retention, CHUNK)
