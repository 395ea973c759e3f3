"""The SQLite store in the lab: every handle has its own connections, as another process would."""

import os
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from dibs.store import Store
from dibs.stores.sqlite import SQLiteStore
from dibs.testing.clock import FakeClock
from dibs.testing.labs.base import Lab


class SQLiteLab(Lab):
    """An empty file: the one at ``path``, or one in a temporary folder that goes away with it."""

    threadsafe = True

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._clock = FakeClock()
        self._folder: TemporaryDirectory[str] | None = None
        self._given = path

    async def start(self) -> None:
        if self._given is None:
            self._folder = TemporaryDirectory(prefix="dibs-")
        self.path = Path(self._folder.name, "jobs.db") if self._folder else Path(self._given or "")
        self.url = f"sqlite:///{self.path.absolute()}"
        self._empty()
        await super().start()

    def _empty(self) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)

    async def stop(self) -> None:
        await super().stop()
        if self._folder is not None:
            self._folder.cleanup()

    async def _open(self) -> Store:
        return SQLiteStore(self.path, clock=self._clock, synchronous="normal")

    async def _set_clock(self, now: datetime) -> None:
        self._clock.now = now
