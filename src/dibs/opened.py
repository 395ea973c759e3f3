"""Store handles: one for each event loop of each process, opened when first asked for.

A connection belongs to the loop that made it, and to the process. So a loop gets a handle of its own, a child of a
fork leaves its parent's alone, and a handle is closed when its loop ends.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from dibs import forks
from dibs.store import Store

_Life = AsyncGenerator[Store, None]


class _Place:
    """Where the handle of one loop is."""

    __slots__ = ("life", "lock", "store")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.store: Store | None = None
        self.life: _Life | None = None


class Opened:
    """The store handles of an app."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._pid = os.getpid()
        self._places: dict[asyncio.AbstractEventLoop, _Place] = {}
        forks.tell(self)

    def ready(self) -> Store | None:
        """The handle of the running loop, if it is set up."""
        if self._pid != os.getpid():  # a server that forks behind Python's back
            self.forked()
        place = self._places.get(asyncio.get_running_loop())
        return None if place is None else place.store

    async def here(self) -> Store:
        """The handle of the running loop, set up."""
        if (store := self.ready()) is not None:
            return store
        loop = asyncio.get_running_loop()
        place = self._places.setdefault(loop, _Place())
        async with place.lock:
            if place.store is None:
                await self._forget_ended()
                place.life = self._live(place)
                place.store = await anext(place.life)
                self._places[loop] = place
            return place.store

    async def close(self) -> None:
        """Close the handle of the running loop, if there is one. The next use opens another."""
        place = self._places.get(asyncio.get_running_loop())
        if place is not None and place.life is not None:
            await place.life.aclose()

    async def _live(self, place: _Place) -> _Life:
        """A handle for as long as its loop runs.

        A generator, because that is what every loop closes when it ends, if it is ended by ``asyncio.run`` or like it:
        then, on that loop, the connections can still be closed properly.
        """
        store = self._make()
        try:
            await store.setup()
            yield store
        finally:
            place.store = None
            if self._places.get(loop := asyncio.get_running_loop()) is place:
                del self._places[loop]
            await store.close()

    async def _forget_ended(self) -> None:
        """Drop the handles of loops that were closed without telling anybody."""
        for loop, place in list(self._places.items()):
            if loop.is_closed():
                self._places.pop(loop, None)
                if place.store is not None:
                    with suppress(Exception):  # its connections are as dead as their loop
                        await place.store.close()

    def forked(self) -> None:
        """This is a child: its parent's handles are left alone, and it opens its own."""
        forks.abandon(self._places)
        self._pid, self._places = os.getpid(), {}
