"""The servers that all tests of a run share: each is started when first asked for, and once.

The process that has the `Fleet` owns the servers. With pytest-xdist that is the controller; its
workers ask it through a `FleetClient`, and only addresses travel.
"""

import os
import secrets
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Protocol

from tests.servers.find import Installation, find_postgres, find_redis
from tests.servers.postgres import PostgresAddress, PostgresServer
from tests.servers.process import ServerError
from tests.servers.redis import RedisAddress, RedisServer

Address = PostgresAddress | RedisAddress


class Addresses(Protocol):
    """Where a label such as `postgres-18` becomes a running server."""

    def address(self, label: str) -> Address: ...


def choose(found: Iterable[Installation]) -> tuple[Installation, ...]:
    """Of each product the oldest and the newest: what breaks between versions shows there.

    `DIBS_SERVERS=all` takes every one.
    """
    if os.environ.get("DIBS_SERVERS") == "all":
        return tuple(found)
    chosen: list[Installation] = []
    for _, group in groupby(sorted(found), key=lambda one: one.product):
        versions = list(group)
        chosen += versions if len(versions) <= 2 else (versions[0], versions[-1])
    return tuple(chosen)


class Fleet:
    """Starts servers, keeps them, and stops them all."""

    def __init__(self) -> None:
        self._available = {one.label: one for one in (*find_postgres(), *find_redis())}
        self._locks = {label: threading.Lock() for label in self._available}
        self._running: dict[str, PostgresServer | RedisServer] = {}

    def address(self, label: str) -> Address:
        if label not in self._available:
            raise ServerError(f"no {label} here, only {', '.join(self._available) or 'nothing'}")
        with self._locks[label]:
            if label not in self._running:
                self._running[label] = _started(self._available[label])
            return self._running[label].address

    def stop(self) -> None:
        while self._running:
            _, server = self._running.popitem()
            server.stop()


class FleetService:
    """Answers the `FleetClient`s of other processes, several at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._key = secrets.token_bytes(16)
        # TCP, because a unix socket's file would stay behind when this process is killed.
        self._listener = Listener(("127.0.0.1", 0), backlog=64, authkey=self._key)
        threading.Thread(target=self._listen, name="fleet", daemon=True).start()

    @property
    def ticket(self) -> tuple[int, str]:
        """What a client needs: the port and the key, in a form that any channel can carry."""
        assert isinstance(self._listener.address, tuple)
        return self._listener.address[1], self._key.hex()

    def close(self) -> None:
        # The thread goes with the process: closing a socket does not wake the one that accepts.
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError):  # a caller that does not know the key
                continue
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: "Connection[Address | str, str]") -> None:
        with connection, suppress(EOFError, OSError):
            label = connection.recv()
            try:
                connection.send(self._fleet.address(label))
            except ServerError as error:
                connection.send(str(error))


class FleetClient:
    """Asks the process that owns the fleet."""

    def __init__(self, ticket: tuple[int, str]) -> None:
        self._port, self._key = ticket[0], bytes.fromhex(ticket[1])
        self._known: dict[str, Address] = {}

    def address(self, label: str) -> Address:
        if label not in self._known:
            with Client(("127.0.0.1", self._port), authkey=self._key) as connection:
                connection.send(label)
                answer = connection.recv()
            if isinstance(answer, str):
                raise ServerError(answer)
            self._known[label] = answer
        return self._known[label]


def _started(installation: Installation) -> PostgresServer | RedisServer:
    server = PostgresServer(installation) if installation.product == "postgres" else RedisServer(installation)
    server.start()
    return server
