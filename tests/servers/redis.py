"""One Redis (or Valkey) server in a temporary folder."""

import signal
import socket
from dataclasses import dataclass

from tests.servers.find import Installation
from tests.servers.process import Account, ServerError
from tests.servers.server import Server

DATABASES = 256
DEFAULTS = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}


@dataclass(frozen=True)
class RedisAddress:
    """A running server as other processes know it: plain data that can be sent to them."""

    label: str
    version: tuple[int, ...]
    port: int

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def flush(self, db: int) -> None:
        """Empty one database. There is no way here to empty all: other tests live in them."""
        self._command(f"SELECT {db}\r\nFLUSHDB\r\n", answer=b"+OK\r\n+OK\r\n")

    def answers(self) -> bool:
        try:
            self._command("PING\r\n", answer=b"+PONG\r\n")
        except (OSError, ServerError):
            return False
        return True

    def _command(self, command: str, answer: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(command.encode())
            got = b""
            while len(got) < len(answer):
                more = connection.recv(4096)
                if not more:
                    break
                got += more
            if got != answer:
                raise ServerError(f"{command!r} was answered by {got!r}")


class RedisServer(Server):
    """A Redis (or Valkey) of our own.

    Options are those of redis.conf, with `_` for `-`: `RedisServer(found, appendonly="yes")`.
    """

    prefix = "dibs-redis-"
    farewell = signal.SIGTERM

    def __init__(self, installation: Installation, **options: str | int) -> None:
        super().__init__(installation, Account())
        given = {name.replace("_", "-"): str(value) for name, value in options.items()}
        self._options = {"databases": str(DATABASES), **DEFAULTS, **given}

    @property
    def address(self) -> RedisAddress:
        return RedisAddress(self.installation.label, self.installation.version, self._port)

    def url(self, db: int = 0) -> str:
        return self.address.url(db)

    def flush(self, db: int = 0) -> None:
        self.address.flush(db)

    def stop(self) -> None:
        """End the server and remove its folder."""
        self._remove()

    def restart(self) -> None:
        """Stop in good order and start again: what it keeps depends on its options."""
        self._end(signal.SIGTERM)
        self._launch()

    def _command(self) -> list[str]:
        command = [str(self.installation.binary), "--port", str(self._port)]
        command += ["--bind", "127.0.0.1", "--dir", str(self._path), "--daemonize", "no"]
        for name, value in self._options.items():
            command += [f"--{name}", value]
        return command

    def _is_ready(self) -> bool:
        return self.address.answers()
