"""Waiting for work: a call from whoever brings some, and a look every second underneath.

A script that brings work calls out on a channel, but only for queues that somebody marked as waited for, and
takes the mark away: a thousand jobs for a queue make one message, and none when nobody waits. One that asks a claim to
end calls its worker, and notes when, so that a call that nobody heard is not lost.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import Script

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

_POLL = 1.0
_SHORTEST = 0.005
"""Between two looks, so that a due time just ahead is not waited for by asking all the time."""


class Waiting:
    """All waiters of one store share one connection that listens, made when the first one waits."""

    def __init__(self, link: Link, ready: Script) -> None:
        self._link = link
        self._ready = ready
        self._waiters: dict[asyncio.Event, frozenset[str]] = {}
        self._asked: dict[str, float] = {}
        """When a claim of each worker was last asked to end, as far as its waiters were told."""
        self._listener: asyncio.Task[None] | None = None

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None) -> frozenset[str]:
        """See ``Store.wait``."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout.total_seconds()
        self._listen()
        self._waiters[woken] = frozenset(queues) if worker is None else frozenset((*queues, _call(worker)))
        try:
            while True:
                woken.clear()
                pause, asked, *ready = await self._link.call(self._ready, worker or "", *queues)
                left = deadline - loop.time()
                if self._is_news(worker, float(asked)) or ready or left <= 0:
                    return frozenset(name.decode() for name in ready)
                with suppress(TimeoutError):
                    shortly = max(pause / 1_000_000, _SHORTEST)
                    await asyncio.wait_for(woken.wait(), min(left, shortly))
        finally:
            del self._waiters[woken]

    def _is_news(self, worker: str | None, asked: float) -> bool:
        if worker is None or asked <= self._asked.get(worker, 0):
            return False
        self._asked[worker] = asked
        return True

    # --- listening ------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        """Until closed. While the connection is gone, waiters see for themselves every second."""
        while True:
            with suppress(Exception):
                connection = await self._link.dedicated()
                try:
                    await self._read(connection)
                finally:
                    await connection.disconnect(nowait=True)
            await asyncio.sleep(_POLL)

    async def _read(self, connection: "AbstractConnection") -> None:
        await connection.send_command("SUBSCRIBE", self._link.root + b"wake")
        while True:
            kind, _, called = await connection.read_response(timeout=math.inf)
            # Calls made before the subscription stood went unheard: everybody looks again.
            name = called.decode() if kind == b"message" else None
            for woken, names in self._waiters.items():
                if name is None or name in names:
                    woken.set()


def _call(worker: str) -> str:
    """What the channel calls a worker; no queue is called like this."""
    return f"\t{worker}"
