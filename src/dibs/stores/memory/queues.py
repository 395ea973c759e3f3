"""Queues in memory: their settings, and waiting for their jobs."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from dibs import limits as rules
from dibs.clock import Clock
from dibs.job import Order
from dibs.stores.memory.records import Lane, Record

_POLL = timedelta(seconds=1)


class QueueVerbs:
    """``wait``, ``pause``, ``resume``, ``configure``."""

    _clock: Clock
    _lock: threading.Lock
    _jobs: dict[UUID, Record]
    _lanes: dict[str, Lane]
    _waiting: list[tuple[frozenset[str], asyncio.AbstractEventLoop, asyncio.Event]]

    async def wait(self, queues: Sequence[str], timeout: timedelta) -> frozenset[str]:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout.total_seconds()
        ticket = (frozenset(queues), loop, woken)
        with self._lock:
            self._waiting.append(ticket)
        try:
            while True:
                woken.clear()
                ready, pause = self._ready(queues)
                left = deadline - loop.time()
                if ready or left <= 0:
                    return ready
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), min(left, pause))
        finally:
            with self._lock:
                self._waiting.remove(ticket)

    def _ready(self, queues: Iterable[str]) -> tuple[frozenset[str], float]:
        """The queues with due work, and how long until another look is worth it."""
        with self._lock:
            now, pause, ready = self._clock(), _POLL, set()
            for name in queues:
                lane = self._lanes.get(name)
                if lane is None or lane.paused:
                    continue
                lane.ripen(now)
                if (record := lane.next(now)) is not None:
                    lane.put(record)
                    ready.add(name)
                elif lane.later:
                    pause = min(pause, lane.later[0][0] - now)
            return frozenset(ready), pause.total_seconds()

    def _wake(self, name: str) -> None:
        for queues, loop, woken in self._waiting:
            if name in queues:
                loop.call_soon_threadsafe(woken.set)

    async def pause(self, queue: str) -> None:
        with self._lock:
            self._settings(queue).paused = True

    async def resume(self, queue: str) -> None:
        with self._lock:
            self._settings(queue).paused = False
            self._wake(queue)

    async def configure(self, queue: str, *, order: Order) -> None:
        wanted = rules.order(order)
        with self._lock:
            self._settings(queue).reorder(wanted)

    def _settings(self, queue: str) -> Lane:
        lane = self._lane(rules.name(queue, "queue"))
        lane.configured = True
        return lane

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self._jobs)
        return lane
