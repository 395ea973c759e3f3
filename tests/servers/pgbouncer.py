"""A pgbouncer in transaction mode, in front of a PostgreSQL that runs already."""

import shutil
import signal
import socket
from functools import cache
from pathlib import Path
from urllib.parse import quote

from tests.servers.find import Installation
from tests.servers.postgres import PostgresAddress
from tests.servers.process import Account
from tests.servers.server import Server


@cache
def find_pgbouncer() -> Installation | None:
    """The one of the system, if there is one."""
    found = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin") or shutil.which("pgbouncer")
    if found is None:
        return None
    binary = Path(found)
    return Installation("pgbouncer", (), binary.parent, binary.name, "system", binary.parent)


class PgBouncer(Server):
    """A few connections to the server, and each transaction gets the one that has rested longest.

    So two statements of one client seldom meet on the same connection: what one leaves there, another finds.
    """

    prefix = "dibs-pgbouncer-"
    farewell = signal.SIGINT

    def __init__(self, installation: Installation, behind: PostgresAddress, **settings: str | int) -> None:
        super().__init__(installation, Account.unprivileged())
        self._settings = {
            "listen_addr": "127.0.0.1",
            "unix_socket_dir": "",
            "auth_type": "trust",
            "pool_mode": "transaction",
            "default_pool_size": 5,
            "server_round_robin": 1,
            "max_client_conn": 1000,
            **settings,
        }
        self._behind = behind

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(database)}"

    def stop(self) -> None:
        """End the pooler and remove its folder."""
        self._remove()

    def _prepare(self) -> None:
        (self._path / "users").write_text('"postgres" ""\n')

    def _command(self) -> list[str]:
        settings = {**self._settings, "listen_port": self._port, "auth_file": self._path / "users"}
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._behind.port}", "[pgbouncer]"]
        (self._path / "ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]))
        self._account.own(self._path)
        return [str(self.installation.binary), str(self._path / "ini")]

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=10).close()
        except OSError:
            return False
        return True
