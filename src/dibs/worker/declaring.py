"""Limits in code: every worker says what its code declares, none leads."""

import asyncio
from collections.abc import Mapping
from random import uniform

from dibs.limiting import TELL_EVERY, tell
from dibs.scope import Limit, Scope
from dibs.store import Store
from dibs.worker.outage import Backoff, Weather

PART = "limits"


class Declaring:
    """Before the first claim, and from time to time: others may have forgotten a limit, or it is gone from the code."""

    def __init__(self, store: Store, declared: Mapping[Scope, Limit], weather: Weather) -> None:
        self._store = store
        self._declared = declared
        self._weather = weather
        self._told = not declared

    async def first(self) -> None:
        """Once, as well as it goes: a worker does not wait for it if the store has other troubles."""
        if self._declared:
            await self._tell()

    async def run(self) -> None:
        """For ever."""
        backoff, never = Backoff(), asyncio.Event()
        while True:
            if self._told:
                backoff.reset()
                await asyncio.sleep(TELL_EVERY.total_seconds() * uniform(0.75, 1.25))
            else:
                await backoff.pause(never)
            await self._tell()

    async def _tell(self) -> None:
        try:
            await tell(self._store, self._declared)
        except Exception as problem:
            self._weather.failed(PART, problem)
            self._told = False
        else:
            self._weather.fine(PART)
            self._told = True
