"""Connections that calls take turns with.

The driver's own pool makes a task, a proxy and a dozen calls of each loan: 55 of the 125 µs that a call costs this
process. And it goes on connecting by itself while the server is away, with a traceback in the log for every failure.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

IDLE = 300.0
"""Seconds after which a connection that nobody needed is closed, if there are others."""
GOODBYE = 2.0
"""Seconds that a connection gets to say goodbye to its server."""


class Pool:
    """Up to ``size`` connections, opened when they are needed; the one used last is used first."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int, idle: float = IDLE) -> None:
        self._connect = connect
        self._size = size
        self._longest = idle
        self._turns = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []
        self._closed = False

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement."""
        async with self._turns:
            connection = await self._take()
            try:
                found: list[Any] = await connection.fetch(statement, *arguments)
            except BaseException as problem:
                self._after(problem, connection)
                raise
            self._give_back(connection)
            return found

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        """A connection for several statements; what they begin they have to end."""
        async with self._turns:
            connection = await self._take()
            try:
                yield connection
            except BaseException as problem:
                self._after(problem, connection)
                raise
            self._give_back(connection)

    async def close(self) -> None:
        """Let the calls that are under way end, then close every connection."""
        self._closed = True
        for _ in range(self._size):
            await self._turns.acquire()
        idle, self._idle = self._idle, []
        await self._part_with([connection for connection, _ in idle])
        for _ in range(self._size):
            self._turns.release()

    async def _part_with(self, connections: list[Any]) -> None:
        goodbyes = (connection.close(timeout=GOODBYE) for connection in connections)
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _take(self) -> Any:
        if self._closed:
            raise asyncpg.InterfaceError("the store is closed")
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    def _after(self, problem: BaseException, connection: Any) -> None:
        """An error that the server answered ends the statement. After any other, nobody knows what is on its way."""
        if isinstance(problem, asyncpg.PostgresError) and not connection.is_in_transaction():
            self._give_back(connection)
        else:
            connection.terminate()

    def _give_back(self, connection: Any) -> None:
        now = time.monotonic()
        if not connection.is_closed():
            self._idle.append((connection, now))
        while len(self._idle) > 1 and self._idle[0][1] <= now - self._longest:
            self._idle.pop(0)[0].terminate()
