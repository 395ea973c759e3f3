"""Limits in code: every worker says what its code declares, none leads."""

import asyncio
from collections.abc import Mapping
from random import uniform

from dibs.errors import StoreUnavailable
from dibs.limiting import TELL_EVERY, tell
from dibs.scope import Limit, Scope
from dibs.store import Store
from dibs.worker.log import log
from dibs.worker.outage import Backoff, Weather

PART = "limits"


class Declaring:
    """Before the first claim, and from time to time: others may have forgotten a limit, or it is gone from the code."""

    def __init__(self, name: str, store: Store, declared: Mapping[Scope, Limit], weather: Weather) -> None:
        self._name = name
        self._store = store
        self._declared = declared
        self._weather = weather
        self._told = not declared
        self._complaint = ""

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

    def _complain(self, problem: Exception) -> None:
        """Once."""
        if str(problem) != self._complaint:
            self._complaint = str(problem)
            log.warning("%s: the limits of the code cannot be put into the store: %s", self._name, problem)

    async def _tell(self) -> None:
        try:
            await tell(self._store, self._declared)
        except StoreUnavailable as problem:
            self._weather.failed(PART, problem)
            self._told = False
        except Exception as problem:  # not allowed to, most likely: the worker works without
            self._complain(problem)
            self._told = True
        else:
            self._weather.fine(PART)
            self._told = True
