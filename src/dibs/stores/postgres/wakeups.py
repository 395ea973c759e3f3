"""Wake-ups: NOTIFY when work arrives, LISTEN while waiting, and polling underneath for all that gets lost."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from dibs.errors import StoreUnavailable

CHANNEL = "dibs"
POLL = 1.0
# NOTIFY takes a lock of the whole server at commit, so a busy producer sends one in so many seconds, not one a job.
GAP = 0.005


Heard = Callable[[object, int, str, object], None]


class Waker:
    """The sending side: the first enqueue in a while wakes within its own transaction, the others together."""

    def __init__(self, send: Callable[[list[str]], Awaitable[None]]) -> None:
        self._send = send
        self._sent: dict[str, float] = {}
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def at_once(self, queues: Iterable[str]) -> bool:
        """Whether an enqueue to these queues should wake by itself."""
        now = time.monotonic()
        fresh = [queue for queue in queues if now - self._sent.get(queue, -1.0) > GAP]
        self._sent.update(dict.fromkeys(fresh, now))
        return bool(fresh)

    def soon(self, queues: Iterable[str]) -> None:
        """Wake these queues a moment later, in one go with others. If that gets lost, polling finds the work."""
        self._pending.update(queues)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        while self._pending:
            await asyncio.sleep(GAP)
            await self._send_pending()

    async def _send_pending(self) -> None:
        queues, self._pending = list(self._pending), set()
        with suppress(StoreUnavailable):
            await self._send(queues)

    async def close(self) -> None:
        """Send what is pending, also when a loop that ends has cancelled who would have sent it."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._pending:
            await self._send_pending()


class Listener:
    """The receiving side: one connection that listens, any number of waiters."""

    def __init__(
        self, connect: Callable[[Heard], Awaitable[Any]], probe: Callable[[Sequence[str]], Awaitable[set[str]]]
    ) -> None:
        self._connect = connect
        self._probe = probe
        self._connection: Any = None
        self._lock = asyncio.Lock()
        self._waiters: set[_Waiter] = set()

    async def wait(self, queues: Sequence[str], timeout: timedelta) -> frozenset[str]:
        """Return those of the queues that may have due work, as soon as one may."""
        waiter = _Waiter(frozenset(queues))
        self._waiters.add(waiter)
        deadline = time.monotonic() + timeout.total_seconds()
        try:
            await self._listen()
            while True:
                due = await self._probe(queues)
                left = deadline - time.monotonic()
                if due or left <= 0:
                    return frozenset(due)
                with suppress(TimeoutError):
                    pause = POLL * random.uniform(0.8, 1.0)
                    return frozenset({await asyncio.wait_for(waiter.woken.get(), min(left, pause))})
                await self._listen()
        finally:
            self._waiters.discard(waiter)

    async def _listen(self) -> None:
        """Have a connection that listens. Where there cannot be one, polling has to do."""
        async with self._lock:
            if self._connection is not None and not self._connection.is_closed():
                return
            with suppress(StoreUnavailable):
                self._connection = await self._connect(self._heard)

    def _heard(self, connection: object, pid: int, channel: str, queue: object) -> None:
        for waiter in self._waiters:
            if queue in waiter.queues:
                waiter.woken.put_nowait(str(queue))

    async def close(self) -> None:
        """Stop listening."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(OSError):
                await connection.close(timeout=1)


class _Waiter:
    def __init__(self, queues: frozenset[str]) -> None:
        self.queues = queues
        self.woken: asyncio.Queue[str] = asyncio.Queue()
