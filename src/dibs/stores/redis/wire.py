"""One connection to the server: commands out, answers in, nothing in between.

redis-py makes the connection: address, TLS, credentials, database. What is said on it afterwards goes straight between
the loop and hiredis: with more layers an enqueue takes a fifth longer, and whoever has just been woken hears of
it a tenth of a millisecond later.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from dibs.stores.redis.glance import Glance, socket_of

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

Command = tuple[str | bytes | int, ...]

REPLY_TIMEOUT = 30.0
"""A script takes milliseconds: a server that says nothing for this long is gone."""


class Refusal(Exception):
    """What the server says instead of doing what it was asked, in its own words."""


class Wire(asyncio.Protocol):
    """Whoever asks has all answers before anybody else may ask. A wire on which that failed has to be closed."""

    def __init__(self, connection: "AbstractConnection", transport: asyncio.WriteTransport, glance: Glance) -> None:
        import hiredis

        self._connection = connection
        self._transport = transport
        self._glance = glance
        self._socket = socket_of(transport)
        self._loop = asyncio.get_running_loop()
        self._pack: Any = hiredis.pack_command
        self._reader = hiredis.Reader(replyError=Refusal)
        self._garbled = hiredis.ProtocolError
        self._answers: list[Any] = []
        self._wanted = 0
        self._asked: asyncio.Future[list[Any]] | None = None
        self._late_at = 0.0
        """When whoever has asked has waited for too long."""
        self._timer: asyncio.TimerHandle | None = None
        self._hear: Callable[[Any], None] | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""

    @classmethod
    async def connect(cls, connection: "AbstractConnection", glance: Glance) -> Self:
        """Connect as redis-py was told to, and take over."""
        await connection.connect()  # type: ignore[no-untyped-call]
        writer = connection._writer  # the only way to its transport
        assert writer is not None, "redis-py has connected"
        wire = cls(connection, writer.transport, glance)
        writer.transport.set_protocol(wire)
        if writer.transport.is_closing():  # nobody would tell us any more
            raise ConnectionResetError
        return wire

    async def close(self) -> None:
        """Hang up, without waiting for the other side."""
        await self._connection.disconnect(nowait=True)

    def hang_up(self) -> None:
        """As if the other side had."""
        self._transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether the server has neither hung up nor said anything unasked."""
        return not (self._answers or self.lost.done() or self._transport.is_closing())

    # --- saying -----------------------------------------------------------------------------------

    def ask(self, *commands: Command, brief: bool = False) -> "asyncio.Future[list[Any]]":
        """Send all commands at once; what comes of it are all answers, in order. A refusal is an answer.

        ``brief``: the server needs so little time for it that its answer may be worth a look.
        """
        asked = self._asked = self._loop.create_future()
        if self.lost.done():
            asked.set_exception(ConnectionResetError())
            return asked
        self._wanted = len(commands)
        self.send(*commands)
        self._late_at = self._loop.time() + REPLY_TIMEOUT
        if self._timer is None:
            self._timer = self._loop.call_at(self._late_at, self._look)
        if brief and self._socket is not None:
            self._loop.call_soon(self._watch, self._socket)  # whoever is ready comes first
        return asked

    def listen(self, command: Command, hear: Callable[[Any], None]) -> None:
        """Send a command that the server answers again and again, each time to ``hear``; a refusal ends the wire."""
        self._hear = hear
        self.send(command)

    def send(self, *commands: Command) -> None:
        """Send commands to whose answers ``listen`` listens."""
        self._transport.write(b"".join(map(self._pack, commands)))

    def _look(self) -> None:
        """Has somebody waited for too long? One timer for many calls: one for each would be 3 % of an enqueue."""
        self._timer = None
        if self._asked is None:
            return
        if self._late_at > self._loop.time():
            self._timer = self._loop.call_at(self._late_at, self._look)
        else:
            self._fail(TimeoutError())

    def _watch(self, socket: int) -> None:
        # A socket that is closed may be another's by now.
        if self._asked is not None and not self._transport.is_closing() and self._glance.is_due():
            self._glance.look(socket, self._hear_all)

    def _fail(self, problem: Exception) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(problem)

    # --- hearing ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        take = self._answers.append if self._hear is None else self._pass_on
        try:
            while (answer := self._reader.gets()) is not False:  # nothing in RESP2 is read as False
                take(answer)
        except self._garbled:
            self._transport.abort()
        asked = self._asked
        if asked is not None and len(self._answers) == self._wanted and not asked.done():
            asked.set_result(self._answers)
            self._asked, self._answers = None, []

    def _hear_all(self, data: bytes) -> bool:
        self.data_received(data)
        return self._asked is None or self._transport.is_closing()

    def _pass_on(self, answer: Any) -> None:
        if self._hear is None or isinstance(answer, Refusal):
            self._transport.abort()
        else:
            self._hear(answer)

    def connection_lost(self, problem: Exception | None) -> None:
        self._fail(problem or ConnectionResetError())
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
