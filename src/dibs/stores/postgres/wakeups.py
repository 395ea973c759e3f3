"""Wake-ups: NOTIFY when work arrives, LISTEN while waiting, and polling underneath for all that gets lost."""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from dibs.errors import StoreUnavailable

CHANNEL = "dibs"
"""Its payload is the name of a queue that may have due work."""
ASKED = "dibs_asked"
"""Its payload is the name of a worker of whose claims one is to end."""
HAND = "dibs_hand_"
"""With a name of the connection behind it. Its payload is a claim for a worker of this process; none: an echo."""
CHANNELS = (CHANNEL, ASKED)
POLL = 1.0
WAKE = 5.0
"""Seconds for a call that wakes others."""
ATTEND = 2.0
"""Seconds in which a connection has to hear what is said to it."""
# NOTIFY takes a lock of the whole server at commit, so a busy producer sends one in so many seconds, not one a job.
GAP = 0.005
BURST = 10
"""What one that enqueues now and then may send in a row: jobs that happen to come together are all heard of at once."""


Heard = Callable[[object, int, str, object], None]


class Waker:
    """The sending side: a few enqueues in a while wake within their own transactions, the others together."""

    def __init__(self, send: Callable[[list[str]], Awaitable[None]]) -> None:
        self._send = send
        self._paid_until: dict[str, float] = {}
        """For each queue, when all that was sent would have been sent if each had kept its distance to the last."""
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def at_once(self, queues: Iterable[str]) -> bool:
        """Whether an enqueue to these queues should wake by itself."""
        now = time.monotonic()
        paid = {queue: max(self._paid_until.get(queue, now), now) for queue in queues}
        fresh = {queue: until + GAP for queue, until in paid.items() if until <= now + (BURST - 1) * GAP}
        self._paid_until.update(fresh)
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
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(WAKE):  # a connection that a network forgot says nothing, for ever
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
        self,
        connect: Callable[[Heard], Awaitable[Any]],
        probe: Callable[[Sequence[str]], Awaitable[set[str]]],
        handed: Callable[[str], None],
        say: Callable[[str], Awaitable[None]],
    ) -> None:
        self._connect = connect
        self._probe = probe
        self._handed = handed
        self._say = say
        self._connection: Any = None
        self._introducing = asyncio.Lock()
        self._introduced: Any = None
        """The connection that was last given a name, or found deaf."""
        self._name: str | None = None
        self._echo: asyncio.Future[None]
        self._lock = asyncio.Lock()
        self._waiters: set[_Waiter] = set()
        # Each worker that has waited here, and whether one of its claims may have been asked to end since it was told.
        self._asked: dict[str, bool] = {}

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        """Return those of the queues that may have due work, as soon as one may, or as soon as the worker is asked."""
        waiter = _Waiter(frozenset(queues), worker)
        self._waiters.add(waiter)
        deadline = time.monotonic() + timeout.total_seconds()
        try:
            await self._listen()
            while True:
                due = await self._probe(queues) if queues else set()
                left = deadline - time.monotonic()
                if due or left <= 0 or self._was_asked(worker):
                    return frozenset(due)
                with suppress(TimeoutError):
                    pause = POLL * random.uniform(0.8, 1.0)
                    async with asyncio.timeout(min(left, pause)):
                        woken = await waiter.woken.get()
                    self._was_asked(worker)
                    return frozenset() if woken is None else frozenset({woken})
                await self._listen()
        finally:
            self._waiters.discard(waiter)

    def _was_asked(self, worker: str | None) -> bool:
        """Whether the worker was asked since it was last told; now it is told."""
        if worker is None:
            return False
        asked = self._asked.get(worker, False)
        self._asked[worker] = False
        return asked

    async def _listen(self) -> None:
        """Have a connection that listens. Where there cannot be one, polling has to do."""
        async with self._lock:
            if self._connection is not None and not self._connection.is_closed():
                return
            if self._connection is not None:
                # What was said while nobody listened is not known.
                self._asked = dict.fromkeys(self._asked, True)
            with suppress(StoreUnavailable):
                self._connection = await self._connect(self._heard)

    async def attend(self) -> str | None:
        """The name by which claims reach the connection that listens; None where they would not."""
        async with self._introducing:
            connection = self._connection
            if connection is None or connection.is_closed():
                return None
            if self._introduced is not connection:
                self._name = None
                try:
                    self._name = await self._introduce(connection)
                except Exception:
                    self._introduced = connection
                    raise
                self._introduced = connection
            return self._name

    async def _introduce(self, connection: Any) -> str | None:
        """Once for each connection: see whether what is said to it is heard. A pooler may stand between."""
        name = secrets.token_hex(16)
        self._echo = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ATTEND):
                await connection.add_listener(HAND + name, self._heard)
                await self._say(HAND + name)
                await self._echo
                await connection.fetchval("select dibs.attend($1)", name)
        except TimeoutError:
            return None
        return name

    def distrust(self) -> None:
        """A claim that was sent to the connection did not arrive: no more are to be. To wait, there is polling."""
        self._name = None

    def _heard(self, connection: object, pid: int, channel: str, name: object) -> None:
        if channel == ASKED:
            if name in self._asked:
                self._asked[str(name)] = True
            for waiter in self._waiters:
                if waiter.worker == name:
                    waiter.woken.put_nowait(None)
        elif channel != CHANNEL:
            if name:
                self._handed(str(name))
            elif not self._echo.done():
                self._echo.set_result(None)
        else:
            for waiter in self._waiters:
                if name in waiter.queues:
                    waiter.woken.put_nowait(str(name))

    async def close(self) -> None:
        """Stop listening."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(OSError):
                await connection.close(timeout=1)
        self._lock, self._introducing = asyncio.Lock(), asyncio.Lock()  # the next use may be on another loop


class _Waiter:
    def __init__(self, queues: frozenset[str], worker: str | None) -> None:
        self.queues = queues
        self.worker = worker
        # The queue that may have work; None if it is about the worker.
        self.woken: asyncio.Queue[str | None] = asyncio.Queue()
