"""One PostgreSQL server in a temporary folder."""

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.servers.find import Installation
from tests.servers.process import Account, ServerError
from tests.servers.server import Server

Mode = Literal["smart", "fast", "immediate"]

SIGNALS: dict[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# A commit is still written before it is answered, so a killed server loses nothing; only a machine
# that loses its power would.
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
}
DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}


@dataclass(frozen=True)
class PostgresAddress:
    """A running server as other processes know it: plain data that can be sent to them."""

    label: str
    version: tuple[int, ...]
    port: int
    socket_dir: str
    psql: str

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"

    def socket_url(self, database: str = "postgres") -> str:
        """The same over the unix socket."""
        host = quote(self.socket_dir, safe="")
        return f"postgresql://postgres@/{quote(database)}?host={host}&port={self.port}"

    def create_database(self, name: str, template: str = "template0") -> str:
        """Make a database, as a copy of `template`, and give its URL."""
        # Files are copied; the other way, which is the default, writes every page to the log, too.
        strategy = "STRATEGY file_copy" if self.version >= (15,) else ""
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Whoever is still connected is thrown out."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run one statement as superuser and give the bare output: `a|b`, a line for each row."""
        # Through psql: works inside and outside of an event loop, and needs no driver.
        done = subprocess.run(
            [self.psql, "-XqAt", "-d", self.socket_url(database), "-c", sql],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
        )
        if done.returncode:
            raise ServerError(f"{sql}\n{done.stderr.strip()}")
        return done.stdout.strip()


class PostgresServer(Server):
    """A PostgreSQL of our own.

    `durable` keeps fsync and full-page writes on, for benchmarks. `settings` go on top of either.
    """

    prefix = "dibs-pg-"
    farewell = SIGNALS["immediate"]

    def __init__(self, installation: Installation, durable: bool = False, **settings: str | int) -> None:
        super().__init__(installation, Account.unprivileged())
        self._settings = {
            "max_connections": 300,
            "unix_socket_permissions": "0777",
            "listen_addresses": "127.0.0.1",
            **(DURABLE if durable else FAST),
            **settings,
        }

    @property
    def data_dir(self) -> Path:
        return self._path / "data"

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress(
            label=self.installation.label,
            version=self.installation.version,
            port=self._port,
            socket_dir=str(self._path),
            psql=str(self.installation.bin_dir / "psql"),
        )

    def url(self, database: str = "postgres") -> str:
        return self.address.url(database)

    def create_database(self, name: str, template: str = "template0") -> str:
        return self.address.create_database(name, template)

    def drop_database(self, name: str) -> None:
        self.address.drop_database(name)

    def stop(self, mode: Mode = "immediate") -> None:
        """End the server and remove its folder."""
        self._end(SIGNALS[mode])
        self._remove()

    def restart(self, mode: Mode = "immediate") -> None:
        """Stop and start again; `immediate` is a crash, with recovery at the start."""
        self._end(SIGNALS[mode])
        self._launch()

    def _prepare(self) -> None:
        self._bin_dir = self._reachable_bin_dir()
        self._make_cluster()

    def _command(self) -> list[str]:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(self._bin_dir / "postgres"), "-D", str(self.data_dir), *options]
        return [*command, f"-cport={self._port}", f"-cunix_socket_directories={self._path}"]

    def _launch(self) -> None:
        # A status left by a killed server would be taken for the new one's.
        (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
        super()._launch()

    def _is_ready(self) -> bool:
        # What pg_ctl does, without a process for every look.
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _make_cluster(self) -> None:
        initdb = [str(self._bin_dir / "initdb"), "-D", str(self.data_dir), "--username=postgres"]
        initdb += ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            initdb,
            cwd=self._path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(self._path)},
            **self._account.popen_options,  # type: ignore[call-overload]
        )
        if done.returncode:
            raise ServerError(f"initdb: {done.stdout}{done.stderr}")

    def _reachable_bin_dir(self) -> Path:
        """Where the server's user finds the programs: in place, or in a copy that it may read."""
        have = self.installation
        if self._account.can_enter(have.bin_dir):
            return have.bin_dir
        copy = self._path / "programs"
        for part in have.needs:
            shutil.copytree(have.root / part, copy / part, symlinks=True)
        self._account.own(copy)
        return copy / have.bin_dir.relative_to(have.root)
