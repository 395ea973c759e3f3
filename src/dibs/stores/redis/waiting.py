"""Waiting for work: a call from whoever brings some, and a look every second underneath.

A script that brings work calls out on a channel, but only for queues that somebody marked as waited for, and
takes the mark away: a thousand jobs for a queue make one message, and none when nobody waits. One that brings a
single job looks for an offer first, and calls only the worker that left it, with the claim. One that asks a claim to
end calls its worker, and notes when, so that a call that nobody heard is not lost.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from dibs.stores.redis.link import Link
from dibs.stores.redis.offers import Offers
from dibs.stores.redis.scripts import Script

_POLL = 1.0
_SHORTEST = 0.005
"""Between two looks, so that a due time just ahead is not waited for by asking all the time."""


class Waiting:
    """All waiters of one store share one connection that listens, made when the first one waits."""

    def __init__(self, link: Link, ready: Script, offers: Offers) -> None:
        self._link = link
        self._ready = ready
        self._offers = offers
        self._waiters: set[_Waiter] = set()
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
        loop, waiter = asyncio.get_running_loop(), _Waiter(queues, worker)
        deadline = loop.time() + timeout.total_seconds()
        self._listen()
        self._waiters.add(waiter)
        try:
            while not waiter.due:
                waiter.woken.clear()
                pause, asked, *ready = await self._link.call(self._ready, worker or "", *queues)
                left = deadline - loop.time()
                if self._is_news(worker, float(asked)) or ready or left <= 0:
                    return frozenset(name.decode() for name in ready)
                with suppress(TimeoutError):
                    shortly = max(pause / 1_000_000, _SHORTEST)
                    async with asyncio.timeout(min(left, shortly)):
                        await waiter.woken.wait()
            return frozenset(waiter.due)
        finally:
            self._waiters.discard(waiter)

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
                wire = await self._link.dedicated()
                try:
                    wire.listen(("SUBSCRIBE", self._link.root + b"wake", *self._offers.channels), self._heard)
                    self._offers.wire = wire
                    await wire.lost
                finally:
                    self._offers.wire = None
                    await wire.close()
            await asyncio.sleep(_POLL)

    def _heard(self, message: Any) -> None:
        self._offers.heard()
        if message[0] == b"pong":
            return
        kind, channel, called = message
        if kind == b"message" and channel in self._offers.channels:
            self._offers.taken_up(channel, called)
            return
        for waiter in self._waiters:
            if kind == b"message":
                waiter.hear(called.decode())
            else:  # calls made before the subscription stood went unheard: everybody looks again
                waiter.woken.set()


class _Waiter:
    """Somebody who waits, and the queues that have called out for having due work."""

    def __init__(self, queues: Sequence[str], worker: str | None) -> None:
        self.woken = asyncio.Event()
        self.due: set[str] = set()
        self._queues = frozenset(queues)
        self._worth_a_look = {f"\n{queue}" for queue in queues} | ({f"\t{worker}"} if worker else set())

    def hear(self, call: str) -> None:
        """A queue's name says that it has due work; behind a line feed, that it has changed. Behind a tab: a worker."""
        if call in self._queues:
            self.due.add(call)
            self.woken.set()
        elif call in self._worth_a_look:
            self.woken.set()
