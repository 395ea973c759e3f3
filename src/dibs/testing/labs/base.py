"""What the contract suite needs to know about the store that it tests."""

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

from dibs.store import Store
from dibs.testing.clock import START


class Lab(ABC):
    """An empty store, as many handles on it as a test wants, and its clock.

    ``start`` empties the store, ``stop`` closes all handles. The store's clock stands still: only
    ``set_clock`` moves it, for all handles at once.
    """

    url: str | None = None
    """Where ``open_store`` in another process finds this store; None if no other process can."""

    threadsafe = False
    """Whether one handle may be used from several threads, each with a loop of its own."""

    passes_over = False
    """Whether a claim or a sweep may pass over a job that another call is changing at that very moment."""

    at_length = True
    """False makes the longest tests short: for a second way or version of a store that is tested at length."""

    race_jobs = 200_000
    """How many jobs the largest race is about in the long run; a tenth of it otherwise."""

    over: AsyncExitStack | None = None
    """Closed after the last test, for what a lab keeps from test to test: it belongs to the loop of all of them.
    None where each test has a loop of its own, as outside of the suite."""

    def __init__(self) -> None:
        self.now = START
        self._handles: list[Store] = []

    @abstractmethod
    async def _open(self) -> Store:
        """Make another handle on the same data; ``open`` sets it up."""

    @abstractmethod
    async def _set_clock(self, now: datetime) -> None:
        """Make ``now`` the time of the store, for every handle."""

    async def start(self) -> None:
        """Begin with an empty store, at the start of time."""
        await self._set_clock(self.now)

    async def stop(self) -> None:
        """Close every handle that was opened."""
        for store in self._handles:
            await store.close()

    async def open(self) -> Store:
        """Another handle on the same data, as another process would have."""
        store = await self._open()
        await store.setup()
        self._handles.append(store)
        return store

    async def share(self) -> str | None:
        """Put the store on the real clock and answer its ``url``: other processes come now.

        A lab whose clock lives in the store itself has to put the real one back here. The lab's own
        handles and its clock are not used after that.
        """
        return self.url

    async def set_clock(self, now: datetime) -> None:
        """Set the store's clock, forwards or backwards."""
        self.now = now
        await self._set_clock(now)

    async def advance(self, seconds: float) -> None:
        """Move the store's clock."""
        await self.set_clock(self.now + timedelta(seconds=seconds))
