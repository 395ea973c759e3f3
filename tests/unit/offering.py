"""What the tests of offers share: a place where some bring jobs and others wait for them, on each store that can."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from dibs.job import Claim, NewJob, State
from dibs.store import Offer
from dibs.stores.postgres import PostgresStore
from dibs.stores.redis import RedisStore
from tests.unit.working import until

LEASE = timedelta(minutes=1)
LONG = timedelta(seconds=20)


class Waiting:
    """A worker that waits on a queue, and what it was handed."""

    def __init__(self, store: Any, house: "House") -> None:
        self.store = store
        self.came: list[tuple[Claim, float]] = []
        self.waiting: asyncio.Task[frozenset[str]]
        self._house = house

    async def offer(self, tasks: frozenset[str] | None = None, good_for: timedelta = LONG) -> None:
        """Leave an offer. On a busy machine a store may think twice before it takes one."""
        await until(lambda: self.left(tasks, good_for))
        await until(lambda: self._house.hears_claims(self.store))

    async def left(self, tasks: frozenset[str] | None = None, good_for: timedelta = LONG) -> bool:
        """Whether the store has taken an offer."""
        took = Offer("w", LEASE, tasks, lambda claim, asked_at: self.came.append((claim, asked_at)), good_for)
        left: bool = await self.store.offer(["q"], took)
        return left


class House(ABC):
    """A store that anybody can open, and what the tests have to see of its inside."""

    @abstractmethod
    def open(self) -> Any:
        """A handle of its own."""

    @abstractmethod
    async def listens(self, store: Any) -> bool:
        """Whether one who waits through this handle would hear a call now."""

    @abstractmethod
    async def hears_claims(self, store: Any) -> bool:
        """Whether a claim that is made now would reach worker ``w`` of this handle."""

    @abstractmethod
    def transport(self, store: Any) -> Any:
        """Of the connection that listens."""

    @abstractmethod
    async def offers(self) -> int:
        """How many stand."""

    @asynccontextmanager
    async def waits(self) -> AsyncIterator[Waiting]:
        """Somebody who waits and listens; no offer yet."""
        store = self.open()
        waiting = Waiting(store, self)
        waiting.waiting = asyncio.create_task(store.wait(["q"], LONG))
        await until(lambda: self.listens(store))
        try:
            yield waiting
        finally:
            waiting.waiting.cancel()
            await asyncio.wait([waiting.waiting])
            await store.close()


class RedisHouse(House):
    """A server of its own: channels belong to the whole server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._eye = RedisStore(url)

    def open(self) -> RedisStore:
        return RedisStore(self.url)

    async def listens(self, store: RedisStore) -> bool:
        return await self._heard_by(b"wake") > 0 and await self.ask("SISMEMBER", b"sleeping", "q") == 1

    async def hears_claims(self, store: RedisStore) -> bool:
        return await self._heard_by(b"hand:w") > 0

    async def _heard_by(self, channel: bytes) -> int:
        [[_, count]] = await self._eye._link.exchange(("PUBSUB", "NUMSUB", self._eye._link.root + channel))
        return int(count)

    def transport(self, store: RedisStore) -> Any:
        wire = store._offers.wire
        assert wire is not None
        return wire._transport

    async def offers(self) -> int:
        return int(await self.ask("HLEN", b"offers"))

    async def ask(self, command: str, key: bytes, *more: str) -> Any:
        [answer] = await self._eye._link.exchange((command, self._eye._link.root + key, *more))
        return answer

    async def close(self) -> None:
        await self._eye.close()


class PostgresHouse(House):
    """A database of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> PostgresStore:
        return PostgresStore(self.url)

    async def listens(self, store: PostgresStore) -> bool:
        return store._listener._connection is not None

    async def hears_claims(self, store: PostgresStore) -> bool:
        return store._listener._connection is not None

    def transport(self, store: PostgresStore) -> Any:
        return store._listener._connection._transport

    async def offers(self) -> int:
        return int(await self.ask("select count(*) from dibs.offered where open_until is not null"))

    async def ask(self, statement: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()


def job(**how: Any) -> NewJob:
    return NewJob(**{"task": "t", "queue": "q", "args": {"ä": "\u2028"}, **how})


async def is_queued(store: Any, new: NewJob) -> bool:
    """Whether nobody has claimed it."""
    found = await store.get(new.id)
    return found is not None and found.state is State.QUEUED
