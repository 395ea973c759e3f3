"""The line to the server: connections, one exchange at a time, and errors in our own words.

Works on redis-py's connections rather than its client: a client may send a command again after a lost
reply, and a claim sent twice would hold jobs that nobody runs.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dibs.errors import ConfigurationError, DibsError, StoreUnavailable
from dibs.stores.redis.options import Options
from dibs.stores.redis.scripts import Script

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

NO_EXTRA = "redis:// needs the redis extra: pip install 'dibs[redis]'"

CONNECT_TIMEOUT = 5.0
REPLY_TIMEOUT = 30.0
"""A script takes milliseconds: a server that says nothing for this long is gone."""

Command = Sequence[str | bytes | int]


class Link:
    """A few connections to one server, handed out one exchange at a time."""

    def __init__(self, options: Options) -> None:
        try:
            import hiredis
            from redis import exceptions
            from redis.asyncio import ConnectionPool
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ConfigurationError(NO_EXTRA) from None
        self._errors = exceptions
        self._pack = hiredis.pack_command
        self._where = options.where
        tcp = {} if options.server.startswith("unix") else {"socket_keepalive": True}
        # Only makes connections. Timeouts are kept here, once for a whole exchange.
        self._factory = ConnectionPool.from_url(
            options.server, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=None, **tcp
        )
        self._idle: list[AbstractConnection] = []
        self._free = asyncio.Semaphore(options.pool)
        self._root = b"{%s}:" % options.prefix.encode()

    @property
    def root(self) -> bytes:
        """What every key begins with."""
        return self._root

    async def close(self) -> None:
        """Close the idle connections; one that is in use belongs to its exchange."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    # --- talking --------------------------------------------------------------------------------

    async def call(self, script: Script, *args: str | bytes | int) -> Any:
        """Run a script once. The server is given its text only when it does not know it."""
        command = ("EVALSHA", script.sha, 1, self._root, *args)
        answer = (await self.exchange(command))[0]
        if isinstance(answer, self._errors.NoScriptError):
            answer = (await self.exchange(("EVAL", script.source, 1, self._root, *args)))[0]
        if isinstance(answer, Exception) and await self.follow(answer):
            answer = (await self.exchange(("EVAL", script.source, 1, self._root, *args)))[0]
        if isinstance(answer, Exception):
            raise self.explain(answer)
        return answer

    async def exchange(self, *commands: Command) -> list[Any]:
        """Send commands, read as many answers; an error that the server answers is an answer."""
        # The same as conversation(), without the price of a context manager on every call.
        async with self._free:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                await self._connect(connection)
                answers = await self._talk(connection)(commands)
            except BaseException as problem:
                await self._give_up(connection, problem)
                raise
            self._idle.append(connection)
            return answers

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator["Talk"]:
        """One connection for several exchanges, closed if anything goes wrong between them."""
        async with self._free:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                await self._connect(connection)
                yield self._talk(connection)
            except BaseException as problem:
                await self._give_up(connection, problem)
                raise
            self._idle.append(connection)

    def _talk(self, connection: "AbstractConnection") -> "Talk":
        return Talk(self._pack, connection, self._errors.ResponseError)

    async def _give_up(self, connection: "AbstractConnection", problem: BaseException) -> None:
        """An answer may still be on its way: nobody must take it for another's."""
        await connection.disconnect(nowait=True)
        if isinstance(problem, self._errors.RedisError | OSError | TimeoutError):
            raise self.explain(problem) from None

    async def dedicated(self) -> "AbstractConnection":
        """A new connection outside the pool, for whoever asked to close."""
        connection = self._new()
        try:
            await self._connect(connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _new(self) -> "AbstractConnection":
        connection: AbstractConnection = self._factory.make_connection()  # type: ignore[no-untyped-call]
        return connection

    async def _connect(self, connection: "AbstractConnection") -> None:
        if connection.is_connected:
            if not await connection.can_read():
                return
            await connection.disconnect(nowait=True)  # the server closed it while it was idle
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await connection.connect()  # type: ignore[no-untyped-call]

    async def follow(self, answer: Exception) -> bool:
        """Go where a cluster says that our keys are; False if it says nothing of the kind.

        Nothing ran, so sending again is safe. All keys are in one slot: one node is all we need.
        """
        if not isinstance(answer, self._errors.MovedError):
            return False
        self._factory.connection_kwargs.update(host=answer.host, port=answer.port)
        self._where = f"{answer.host}:{answer.port}"
        await self.close()
        return True

    # --- in our own words -----------------------------------------------------------------------

    def explain(self, problem: BaseException) -> DibsError:
        """The error of dibs for an error of the driver or the server: one line, no secrets."""
        errors, text = self._errors, " ".join(str(problem).split())
        if isinstance(problem, errors.AuthenticationError | errors.AuthorizationError):
            return ConfigurationError(
                f"the Redis server at {self._where} wants other credentials: check user and password in the URL"
            )
        if isinstance(problem, errors.NoPermissionError) or text.startswith("NOPERM"):
            return ConfigurationError(
                f"this Redis user may not do what dibs needs: allow it all keys and channels that begin with "
                f"{self._root.decode()}"
            )
        if isinstance(problem, errors.OutOfMemoryError) or "when used memory >" in text:
            return StoreUnavailable(
                f"the Redis server at {self._where} has reached maxmemory: prune jobs or give it more"
            )
        if isinstance(problem, errors.ResponseError):
            return StoreUnavailable(f"the Redis server at {self._where} refused: {text[:200]}")
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


class Talk:
    """Exchanges on one connection."""

    __slots__ = ("_connection", "_pack", "_refusal")

    def __init__(self, pack: Any, connection: "AbstractConnection", refusal: type[Exception]) -> None:
        self._pack = pack
        self._connection = connection
        self._refusal = refusal

    async def __call__(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands at once and read all answers, in order."""
        connection, answers = self._connection, []
        payload = b"".join([self._pack(tuple(command)) for command in commands])
        async with asyncio.timeout(REPLY_TIMEOUT):
            await connection.send_packed_command(payload, check_health=False)
            for _ in commands:
                try:
                    answers.append(await connection.read_response())
                except self._refusal as refusal:
                    answers.append(refusal)
        return answers
