"""What the tests of the SQLite store share: conditions to wait for, in the place of times."""

import time

from dibs.stores.sqlite import SQLiteStore
from tests.unit.working import until


async def held_up(store: SQLiteStore) -> None:
    """Until the writer stands before somebody else's lock, with whatever it was asked for before."""
    assert store._open is not None
    patience, since = store._open.writer.db.patience, time.monotonic()
    await until(lambda: patience.waited_at > since)


async def looked(store: SQLiteStore, waiting: int = 1) -> None:
    """Until so many wait, and the watcher has looked for them."""
    assert store._open is not None
    watcher, looks = store._open.watcher, 0
    look = watcher._look

    def counting() -> float:
        nonlocal looks
        pause = look()
        looks += 1
        return pause

    await until(lambda: len(watcher._waiters) == waiting)
    watcher._look = counting  # type: ignore[method-assign]
    watcher.ring()
    await until(lambda: looks)
    watcher._look = look  # type: ignore[method-assign]
