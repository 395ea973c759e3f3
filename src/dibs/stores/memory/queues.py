"""Queues in memory: their settings, and waiting for their jobs."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from dibs import limits as rules
from dibs.clock import Clock
from dibs.job import Order, State
from dibs.stores.memory.lane import Lane
from dibs.stores.memory.records import Record

_POLL = timedelta(seconds=1)
_Ticket = tuple[frozenset[str], str | None, asyncio.AbstractEventLoop, asyncio.Event]


class QueueVerbs:
    """``wait``, ``pause``, ``resume``, ``configure``."""

    _clock: Clock
    _lock: threading.Lock
    _jobs: dict[UUID, Record]
    _lanes: dict[str, Lane]

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[_Ticket] = []
        self._asked: set[str] = set()

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout.total_seconds()
        ticket = (frozenset(queues), worker, loop, woken)
        with self._lock:
            self._waiting.append(ticket)
        try:
            while True:
                woken.clear()
                ready, pause = self._ready(queues)
                left = deadline - loop.time()
                if ready or left <= 0 or self._was_asked(worker):
                    return ready
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, pause)):
                        await woken.wait()
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

    def _was_asked(self, worker: str | None) -> bool:
        """A claim of the worker was asked to end, and it was not told so yet."""
        with self._lock:
            asked = worker in self._asked
            self._asked -= {worker or ""}
            return asked

    def _wake(self, name: str) -> None:
        for queues, _, loop, woken in self._waiting:
            if name in queues:
                loop.call_soon_threadsafe(woken.set)

    def _ask(self, record: Record) -> None:
        """Its owner, if it has one, is to end it."""
        record.cancel_asked = True
        if record.state is State.RUNNING and record.worker is not None:
            self._asked.add(record.worker)
            for _, worker, loop, woken in self._waiting:
                if worker == record.worker:
                    loop.call_soon_threadsafe(woken.set)

    async def pause(self, queue: str) -> None:
        with self._lock:
            self._settings(queue).paused = True

    async def resume(self, queue: str) -> None:
        with self._lock:
            self._settings(queue).paused = False
            self._wake(queue)

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        wanted = rules.order(order)
        rules.ageing(ageing, wanted)
        with self._lock:
            self._settings(queue).reorder(wanted, ageing)

    def _settings(self, queue: str) -> Lane:
        lane = self._lane(rules.name(queue, "queue"))
        lane.configured = True
        return lane

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self._jobs)
        return lane
