"""Waiting for work: one thread per handle, asleep unless somebody waits.

Another connection's commit changes ``PRAGMA data_version``; our own ring the bell. Where the system tells of writes to
the log, the look comes a moment after the write, when the commit is about to be there. Elsewhere there is a look
every 25 ms, and what a look costs is mostly that the thread wakes up.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import apsw

from dibs.clock import Clock, to_micros
from dibs.errors import StoreUnavailable
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.bell import Bell, Woken
from dibs.stores.sqlite.connect import Connection, Row, translate
from dibs.stores.sqlite.hands import CLOSED

_FIRST_PAUSE = 0.001
"""After a write: the commit follows when the disk has it."""
_LONGEST_PAUSE = 0.025
_REST = 0.25
"""Between looks where the system tells of writes: in case it does not after all."""
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


class _Pace:
    """How long it is until the next look: a moment after a write, then ever longer, until its commit must be there."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._pause = _FIRST_PAUSE
        self._rested = False
        self._announced = False
        """Somebody has written since the last commit was found: a slow disk may keep it for a while."""

    def wait(self, most: float) -> bool:
        """Until it is time, or somebody writes; whether it was the bell.

        A commit takes several writes, so none of them ends the first millisecond.
        """
        resting = self._bell.follows() and self._pause >= _LONGEST_PAUSE
        left = max(_FIRST_PAUSE, min(_REST if resting else self._pause, most))
        woken = Woken.TIME if resting else self._bell.wait(_FIRST_PAUSE)
        if woken is Woken.TIME and (resting or left > _FIRST_PAUSE):
            woken = self._bell.wait(left - (0 if resting else _FIRST_PAUSE), writes=True)
        self._rested = resting and woken is Woken.TIME
        self._announced = self._announced or woken is Woken.WRITE
        self._pause = _FIRST_PAUSE if woken is Woken.WRITE else min(self._pause * 1.5, _LONGEST_PAUSE)
        return woken is Woken.STROKE

    def found_news(self) -> None:
        """A commit was found. If nobody had told of its write, nobody will tell of the next one."""
        if self._rested and not self._announced and not self._bell.written():
            self._bell.forsake()
        self._announced = False


class Watcher:
    """Looks after everybody who waits on one handle. ``lock`` is held whenever it is inside SQLite."""

    def __init__(self, db: Connection, clock: Clock, log: Path) -> None:
        self.db = db
        self._log = log
        self.lock = threading.Lock()
        self._clock = clock
        self.bell = Bell()
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
        self.bell.ring()

    def remove(self, waiter: Waiter) -> None:
        with self._door:
            self._waiters.discard(waiter)

    def ring(self) -> None:
        """Something changed: look at once, if anybody waits."""
        if self._waiters:
            self.bell.ring()

    def close(self) -> None:
        with self._door:
            self._open = False
        self.bell.ring()
        self._thread.join()

    def _run(self) -> None:
        while self._open:
            self.bell.wait(None)
            try:
                self._watch()
            except apsw.Error as problem:
                self._dismiss(translate(problem, self.db.options))
            except Exception as problem:  # such as a clock that fails
                self._dismiss(problem)
        self._dismiss(StoreUnavailable(CLOSED))
        with self.lock:
            self.db.close()
        self.bell.close()

    def _dismiss(self, error: Exception) -> None:
        with self._door:
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.tell(error)

    def _watch(self) -> None:
        """Look whenever something may have changed, until nobody waits any more."""
        self.bell.follow(self._log)
        pace, rung, version, next_look = _Pace(self.bell), True, -1, 0.0
        while self._open and self._waiters:
            with self.lock:
                seen = self.db.rows("PRAGMA data_version")[0][0]
                if rung or seen != version or time.monotonic() >= next_look:
                    next_look = time.monotonic() + self._look()
            if seen != version:
                pace.found_news()
            version = seen
            rung = pace.wait(next_look - time.monotonic())

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
