"""One Redis (or Valkey) server in a temporary folder."""

import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.find import Installation
from tests.servers.process import (
    Account,
    Folder,
    KeptProcess,
    ServerError,
    free_port,
    wait_until,
)

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


class RedisServer:
    """A server of our own, which we may stop, kill and start again.

    Options are those of redis.conf, with `_` for `-`: `RedisServer(found, appendonly="yes")`.
    """

    def __init__(self, installation: Installation, **options: str | int) -> None:
        self.installation = installation
        given = {name.replace("_", "-"): str(value) for name, value in options.items()}
        self._options = {"databases": str(DATABASES), **DEFAULTS, **given}
        self._folder: Folder | None = None
        self._process: KeptProcess | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._path / "log").read_text(errors="replace")

    @property
    def address(self) -> RedisAddress:
        return RedisAddress(self.installation.label, self.installation.version, self._port)

    def url(self, db: int = 0) -> str:
        return self.address.url(db)

    def flush(self, db: int = 0) -> None:
        self.address.flush(db)

    def start(self) -> None:
        """Start, empty the first time. The port stays the same from then on."""
        if self._folder is None:
            self._folder = Folder("dibs-redis-", Account())
            try:
                self._start_on_a_free_port()
            except BaseException:
                self.stop()
                raise
        elif self._process is None:
            self._launch()

    def stop(self) -> None:
        """End the server and remove its folder."""
        self._end(signal.SIGTERM)
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def restart(self) -> None:
        """Stop in good order and start again: what it keeps depends on its options."""
        self._end(signal.SIGTERM)
        self._launch()

    def kill(self) -> None:
        """SIGKILL. `start` brings it back with what its options kept."""
        self._end(signal.SIGKILL)

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise ServerError("the server has not been started")
        return self._folder.path

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end(number)

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            self._port = free_port()
            try:
                return self._launch()
            except ServerError as error:
                if "Address already in use" not in str(error) or attempt == 4:
                    raise

    def _launch(self) -> None:
        command = [str(self.installation.binary), "--port", str(self._port)]
        command += ["--bind", "127.0.0.1", "--dir", str(self._path), "--daemonize", "no"]
        for name, value in self._options.items():
            command += [f"--{name}", value]
        process = KeptProcess(command, self._path, signal.SIGTERM, Account())
        self._process = process
        try:
            wait_until(self.address.answers, process, self._path / "log")
        except ServerError:
            self._end(signal.SIGKILL)
            raise
