"""Waiting for work: one thread per handle, asleep unless somebody waits.

Another connection's commit changes ``PRAGMA data_version``. So a commit of another process is noticed at the next look,
on average after 18 ms; our own ring the bell. What a look costs is mostly that the thread wakes up.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import apsw

from dibs.clock import Clock, to_micros
from dibs.errors import StoreUnavailable
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row, translate
from dibs.stores.sqlite.hands import CLOSED

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.035
_LOOK_ANYWAY = 0.5
"""Clocks can be set: look again this often, whatever is due when."""


def ready(db: Connection, queues: Iterable[str], now: int) -> frozenset[str]:
    """Those of the queues that may have due work."""
    return frozenset(queue for queue in queues if db.rows(sql.READY, (queue, now))[0][0])


def _until_next(db: Connection, queues: Iterable[str], now: int) -> float:
    """Seconds until a job of the queues becomes claimable by itself."""
    moments = [db.rows(sql.UPCOMING, (queue, now))[0][0] for queue in queues]
    return min(((moment - now) / 1e6 for moment in moments if moment is not None), default=_LOOK_ANYWAY)


class Waiter:
    """Somebody who waits for any of some queues, or for a claim of a worker being asked to end."""

    def __init__(self, queues: frozenset[str], worker: str | None) -> None:
        self.queues = queues
        self.worker = worker
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[frozenset[str]] = self.loop.create_future()

    def tell(self, answer: frozenset[str] | Exception) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(self._resolve, answer)

    def _resolve(self, answer: frozenset[str] | Exception) -> None:
        if not self.future.done():
            if isinstance(answer, Exception):
                self.future.set_exception(answer)
            else:
                self.future.set_result(answer)


class Watcher:
    """Looks after everybody who waits on one handle. ``lock`` is held whenever it is inside SQLite."""

    def __init__(self, db: Connection, clock: Clock) -> None:
        self.db = db
        self.lock = threading.Lock()
        self._clock = clock
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._open = True
        self._waiters: set[Waiter] = set()
        self._told: dict[str, frozenset[Row]] = {}
        """The claims of a worker that were asked to end when it was last told."""
        self._thread = threading.Thread(target=self._run, name="dibs-sqlite-watcher", daemon=True)
        self._thread.start()

    def add(self, waiter: Waiter) -> None:
        with self._door:
            if not self._open:
                raise StoreUnavailable(CLOSED)
            self._waiters.add(waiter)
        self._bell.put(None)

    def remove(self, waiter: Waiter) -> None:
        with self._door:
            self._waiters.discard(waiter)

    def ring(self) -> None:
        """Something changed: look at once, if anybody waits."""
        if self._waiters:
            self._bell.put(None)

    def close(self) -> None:
        with self._door:
            self._open = False
        self._bell.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._open:
            self._bell.get()
            try:
                self._watch()
            except apsw.Error as problem:
                self._dismiss(translate(problem, self.db.options))
            except Exception as problem:  # such as a clock that fails
                self._dismiss(problem)
        self._dismiss(StoreUnavailable(CLOSED))
        with self.lock:
            self.db.close()

    def _dismiss(self, error: Exception) -> None:
        with self._door:
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.tell(error)

    def _watch(self) -> None:
        """Look whenever something may have changed, until nobody waits any more."""
        version, next_look, pause, rung = -1, 0.0, _FIRST_PAUSE, True
        while self._open and self._waiters:
            with self.lock:
                seen = self.db.rows("PRAGMA data_version")[0][0]
                if rung or seen != version or time.monotonic() >= next_look:
                    version, next_look = seen, time.monotonic() + self._look()
            rung = self._rings(max(_FIRST_PAUSE, min(pause, next_look - time.monotonic())))
            pause = _FIRST_PAUSE if rung else min(pause * 1.5, _LONGEST_PAUSE)

    def _rings(self, seconds: float) -> bool:
        """Wait for the bell, and let all of its strokes be one."""
        try:
            self._bell.get(timeout=seconds)
        except queue.Empty:
            return False
        while not self._bell.empty():
            self._bell.get()
        return True

    def _look(self) -> float:
        """Tell those whose queues have work; answers after how many seconds to look again."""
        with self._door:
            waiters = list(self._waiters)
        queues = frozenset().union(*(waiter.queues for waiter in waiters))
        with self.db.reading():
            now = to_micros(self._clock())
            found = ready(self.db, queues, now)
            pause = _until_next(self.db, queues - found, now)
            asked = self._asked({waiter.worker for waiter in waiters if waiter.worker is not None}, now)
        for waiter in waiters:
            mine = waiter.queues & found
            if mine or waiter.worker in asked:
                self.remove(waiter)
                waiter.tell(mine)
        return min(pause, _LOOK_ANYWAY)

    def _asked(self, workers: Iterable[str], now: int) -> set[str]:
        """Those of the workers that do not know yet of a claim that was asked to end."""
        news = set()
        for worker in workers:
            asked = frozenset(self.db.rows(sql.ASKED_OF, (worker, now)))
            if asked - self._told.pop(worker, frozenset()):
                news.add(worker)
            if asked:
                self._told[worker] = asked
        return news
