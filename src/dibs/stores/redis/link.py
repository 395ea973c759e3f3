"""The line to the server: connections, one exchange at a time, and errors in our own words.

Works on redis-py's connections rather than its client: a client may send a command again after a lost
reply, and a claim sent twice would hold jobs that nobody runs.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dibs.errors import ConfigurationError, DibsError, StoreUnavailable
from dibs.stores.redis.glance import Glance
from dibs.stores.redis.options import Options
from dibs.stores.redis.scripts import Script
from dibs.stores.redis.wire import Command, Refusal, Wire
from dibs.stores.tls import failed_check, untrusted

NO_EXTRA = "redis:// needs the redis extra: pip install 'dibs[redis]'"

CONNECT_TIMEOUT = 5.0

_CREDENTIALS = ("NOAUTH", "WRONGPASS")
_REPLICA = "READONLY You can't write"
_MOVING = ("ASK", "MOVED", "TRYAGAIN")


class Link:
    """A few connections to one server, handed out one exchange at a time."""

    def __init__(self, options: Options) -> None:
        try:
            import hiredis  # noqa: F401 - redis-py does without, we do not
            from redis import exceptions
            from redis.asyncio import ConnectionPool
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ConfigurationError(NO_EXTRA) from None
        self._errors = exceptions
        self._where = options.where
        tcp = {} if options.server.startswith("unix") else {"socket_keepalive": True}
        # Only makes connections. Timeouts are kept here, once for a whole exchange.
        self._factory = ConnectionPool.from_url(
            options.server, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=None, **tcp
        )
        self._home = dict(self._factory.connection_kwargs), self._where
        self._glance = Glance()
        self._idle: list[Wire] = []
        self._most = options.pool
        self._free = asyncio.Semaphore(self._most)
        self._root = b"{%s}:" % options.prefix.encode()

    @property
    def root(self) -> bytes:
        """What every key begins with."""
        return self._root

    async def close(self) -> None:
        """Close the connections. The next use may be on another loop."""
        await self._hang_up()
        self._free = asyncio.Semaphore(self._most)

    async def _hang_up(self) -> None:
        """Close the idle connections; one that is in use belongs to its exchange."""
        idle, self._idle = self._idle, []
        for wire in idle:
            await wire.close()

    # --- talking --------------------------------------------------------------------------------

    async def call(self, script: Script, *args: str | bytes | int, brief: bool = False) -> Any:
        """Run a script once. The server is given its text only when it does not know it."""
        [answer] = await self.exchange(("EVALSHA", script.sha, 1, self._root, *args), brief=brief)
        if not isinstance(answer, Refusal):
            return answer
        whole = ("EVAL", script.source, 1, self._root, *args)
        if str(answer).startswith("NOSCRIPT"):
            [answer] = await self.exchange(whole)
        if isinstance(answer, Refusal) and await self.follow(answer):
            [answer] = await self.exchange(whole)
        if isinstance(answer, Refusal):
            if _REPLICA in str(answer):  # at the same address another server may answer by now
                await self._hang_up()
            raise self.explain(answer)
        return answer

    async def exchange(self, *commands: Command, brief: bool = False) -> list[Any]:
        """Send commands, read as many answers; an error that the server answers is an answer."""
        # The same as conversation(), without the price of a context manager on every call.
        self._glance.waiting += 1
        try:
            async with self._free:
                wire = await self._wire()
                try:
                    answers = await wire.ask(*commands, brief=brief)
                except BaseException as problem:
                    await self._give_up(wire, problem)
                    raise
                self._idle.append(wire)
                return answers
        finally:
            self._glance.waiting -= 1

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Wire]:
        """One connection for several exchanges, closed if anything goes wrong between them."""
        async with self._free:
            wire = await self._wire()
            try:
                yield wire
            except BaseException as problem:
                await self._give_up(wire, problem)
                raise
            self._idle.append(wire)

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
            await wire.close()  # the server hung up while it was idle
        return await self.dedicated()

    async def _give_up(self, wire: Wire, problem: BaseException) -> None:
        """An answer may still be on its way: nobody must take it for another's."""
        await wire.close()
        if isinstance(problem, OSError | TimeoutError):
            raise self.explain(problem) from None

    async def dedicated(self) -> Wire:
        """A new connection, for whoever asked to close."""
        connection = self._factory.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await Wire.connect(connection, self._glance)
        except BaseException as problem:
            await connection.disconnect(nowait=True)
            if isinstance(problem, self._errors.RedisError | OSError | TimeoutError):
                raise await self._turned_away(problem) from None
            raise

    async def _turned_away(self, problem: BaseException) -> DibsError:
        """Where a cluster had sent us, nobody answers: the next one asks at the address in the URL who has the jobs."""
        explained = self.explain(problem)
        known, where = self._home
        if self._where != where:
            self._where = where
            self._factory.connection_kwargs.clear()
            self._factory.connection_kwargs.update(known)
            await self._hang_up()
        return explained

    async def follow(self, answer: Exception) -> bool:
        """Go where a cluster says that our keys are; False if it says nothing of the kind.

        Nothing ran, so sending again is safe. All keys are in one slot: one node is all we need. ASK is not followed:
        while a slot is on its way, some of our keys are here and some there, and a script needs all of them.
        """
        moved = re.fullmatch(r"MOVED \d+ (.*):(\d+)", str(answer))
        known = self._factory.connection_kwargs
        if moved is None or "path" in known:
            return False
        host, port = moved[1] or known.get("host", "localhost"), int(moved[2])  # no host: the one that answered
        known.update(host=host, port=port)
        self._where = f"{host}:{port}"
        await self._hang_up()
        return True

    # --- in our own words -----------------------------------------------------------------------

    def explain(self, problem: BaseException) -> DibsError:
        """The error of dibs for an error of the driver or the server: one line, no secrets."""
        errors, text = self._errors, " ".join(str(problem).split())
        kind = text.partition(" ")[0]
        if isinstance(problem, errors.AuthenticationError | errors.AuthorizationError) or kind in _CREDENTIALS:
            return ConfigurationError(
                f"the Redis server at {self._where} wants other credentials: check user and password in the URL"
            )
        if isinstance(problem, errors.NoPermissionError) or kind == "NOPERM":
            return ConfigurationError(
                f"this Redis user may not do what dibs needs: allow it all keys and channels that begin with "
                f"{self._root.decode()}"
            )
        if "when used memory >" in text:
            return StoreUnavailable(
                f"the Redis server at {self._where} has reached maxmemory: prune jobs or give it more"
            )
        if _REPLICA in text:
            return StoreUnavailable(
                f"the Redis server at {self._where} is a replica, which takes no writes: connect to the master"
            )
        if kind in _MOVING:
            return StoreUnavailable(
                f"the Redis cluster at {self._where} is moving the jobs to another node: wait until that is done"
            )
        if isinstance(problem, Refusal | errors.ResponseError):
            said = text.removeprefix("ERR ")[:200]
            return StoreUnavailable(f"the Redis server at {self._where} refused: {said}")
        if (refusal := failed_check(problem)) is not None:
            return untrusted(refusal, f"the Redis server at {self._where}", "SSL_CERT_FILE")
        reason = "no answer in time" if isinstance(problem, TimeoutError) else type(problem).__name__
        if isinstance(problem, errors.ConnectionError | OSError):
            reason = _reason(problem)
        return StoreUnavailable(f"the Redis server at {self._where} cannot be reached: {reason}")


def _reason(problem: BaseException) -> str:
    """Why a connection failed: the system's words, never those of the driver, which may quote the URL."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "the connection was lost"
