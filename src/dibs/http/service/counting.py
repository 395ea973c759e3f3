"""A look at the store that may be expensive, shared by all who ask."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Generic, TypeVar

from dibs.clock import Clock
from dibs.errors import DibsError

T = TypeVar("T")

SHARE = 20.0
"""A look that took a second is good for twenty: the store spends a twentieth of its time on it, at most."""
LONGEST = 10.0
"""Seconds for which it is good at most."""
STALE = 60.0
"""Up to this age an old answer is given while the new one is being fetched."""


class Glance(Generic[T]):
    """Remembers what it saw: not at all where looking is cheap, for some seconds where there are millions of jobs."""

    def __init__(
        self, look: Callable[[], Awaitable[T]], clock: Clock, *, least: float = 0.0, share: float = SHARE
    ) -> None:
        """``share``: for how many times as long as it took it is good; 0: only those who ask at once share it."""
        self._look = look
        self._share = share
        self._clock = clock
        self._least = least
        self._seen: tuple[T, datetime] | None = None
        self._at = 0.0
        self._good_for = 0.0
        self._looking: asyncio.Task[tuple[T, datetime]] | None = None
        self._valid = True

    async def get(self) -> tuple[T, datetime]:
        """What there is, and when that was seen."""
        age = time.monotonic() - self._at
        if self._seen is not None and age <= self._good_for:
            return self._seen
        looking = self._refresh()
        if self._seen is not None and age <= STALE and self._good_for > 1.0:
            looking.add_done_callback(_noted)
            return self._seen
        return await asyncio.shield(looking)

    def known(self) -> tuple[T, datetime] | None:
        """What is still good, or not too old to be given while it is looked at again; None if there is nothing such."""
        age = time.monotonic() - self._at
        if self._seen is None or age <= self._good_for:
            return self._seen
        if age > STALE or self._good_for <= 1.0:
            return None
        if self._looking is None or self._looking.done():
            self._refresh().add_done_callback(_noted)
        return self._seen

    async def within(self, seconds: float) -> tuple[T, datetime] | None:
        """The same, or None if it takes longer than that: it is then looked at in the background, for the next one.

        Whoever asks while it is being looked at does not wait at all, and there is one look at a time.
        """
        if (known := self.known()) is not None:
            return known
        if self._looking is not None and not self._looking.done():
            return None
        looking = self._refresh()
        await asyncio.wait([looking], timeout=seconds)
        if looking.done():
            return looking.result()
        looking.add_done_callback(_noted)
        return None

    def forget(self) -> None:
        """Something was changed from here: the next one to ask sees it."""
        self._seen = None
        self._valid = False

    def _refresh(self) -> asyncio.Task[tuple[T, datetime]]:
        if self._looking is None or self._looking.done() or not self._valid:
            self._valid = True
            self._looking = asyncio.create_task(self._fetch(), name="dibs-glance")
        return self._looking

    async def _fetch(self) -> tuple[T, datetime]:
        started = time.monotonic()
        seen = (await self._look(), self._clock())
        if self._valid:  # else something was changed since this began
            self._at = time.monotonic()
            self._good_for = max(self._least, min(LONGEST, (self._at - started) * self._share))
            self._seen = seen
        return seen


def _noted(task: "asyncio.Task[object]") -> None:
    """Whoever asks when the old answer is too old gets the error himself."""
    with suppress(DibsError, asyncio.CancelledError):
        task.result()
