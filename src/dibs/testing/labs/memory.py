"""The memory store in the lab: every handle is the same object, for it has no other process to share with."""

from datetime import datetime

from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.testing.labs.base import Lab


class MemoryLab(Lab):
    """A new, empty memory store."""

    threadsafe = True

    def __init__(self) -> None:
        super().__init__()
        self._clock = FakeClock()
        self._store = MemoryStore(clock=self._clock)

    async def _open(self) -> Store:
        return self._store

    async def _set_clock(self, now: datetime) -> None:
        self._clock.now = now
