"""Cancels: while claims are held a wait goes on for one to be asked to end, so that nobody waits for a heartbeat."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from time import monotonic

from dibs.ending import end
from dibs.store import Store
from dibs.worker.outage import Backoff, Weather
from dibs.worker.run import Run

SPAN = 10.0
"""Seconds of one wait. The last one goes on for so long after nothing is held any more."""
PATIENCE = 0.1
"""Seconds that something has to be held before it is worth a wait: quick jobs are not."""
LOOK = 0.02
"""Seconds in which a wait has begun, so that what is asked from then on ends it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
"""How long to leave the store alone after a wait that was cut short: it may be for nothing, again and again."""


class Cancels:
    """Waits on the worker's own store handle, and has the heartbeat beat at once when there may be news.

    All it does is sooner than the heartbeat: where it fails, or the loop is blocked, that one brings the news.
    """

    def __init__(
        self, name: str, store: Store, held: Collection[Run], weather: Weather, beat: Callable[[], None]
    ) -> None:
        self._name = name
        self._store = store
        self._held = held
        self._weather = weather
        self._beat = beat
        self._news = asyncio.Event()

    def look(self) -> None:
        """Something is held."""
        self._news.set()

    async def watch(self) -> None:
        """For ever."""
        outage, noise, never = Backoff(), Backoff(FIRST_PAUSE, LONGEST_PAUSE), asyncio.Event()
        await self._until_held()
        unseen = True
        while True:
            if not self._held:
                await self._until_held()
                unseen = True
            try:
                unseen = await self._wait(unseen)
            except Exception as problem:
                self._weather.failed("waits for cancels", problem)
                unseen = True
                await outage.pause(never)
                continue
            self._weather.fine("waits for cancels")
            outage.reset()
            if unseen:
                await noise.pause(never)
            else:
                noise.reset()

    async def _until_held(self) -> None:
        while True:
            self._news.clear()
            if not self._held:
                await self._news.wait()
            await asyncio.sleep(PATIENCE)
            if self._held:
                return

    async def _wait(self, unseen: bool) -> bool:
        """One wait; answers whether it was cut short. ``unseen``: something may have been asked while nobody waited."""
        began = monotonic()
        waiting = asyncio.ensure_future(self._store.wait([], timedelta(seconds=SPAN), worker=self._name))
        try:
            if unseen:
                await asyncio.wait([waiting], timeout=LOOK)
                self._beat()
            await asyncio.wait([waiting])
            waiting.result()
            return monotonic() - began < SPAN * 0.9
        finally:
            await end([waiting])
