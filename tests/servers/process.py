"""A server process that cannot outlive its owner, and the folder and port that it lives in."""

import atexit
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
START_PATIENCE = 60.0
STOP_PATIENCE = 30.0


class ServerError(Exception):
    """A server did not start, answer or stop as it should."""


class Account:
    """The user that a server runs as: us, or for root somebody else where the server insists."""

    def __init__(self, name: str | None = None) -> None:
        self._entry = pwd.getpwnam(name) if name else None

    @classmethod
    def unprivileged(cls) -> "Account":
        """Us, unless we are root: then `postgres` where it exists, else `nobody`."""
        if os.geteuid() != 0:
            return cls()
        names = {entry.pw_name for entry in pwd.getpwall()}
        return cls("postgres" if "postgres" in names else "nobody")

    @property
    def popen_options(self) -> dict[str, object]:
        """As `subprocess` takes them, and as JSON can carry them."""
        if self._entry is None:
            return {}
        return {"user": self._entry.pw_uid, "group": self._entry.pw_gid, "extra_groups": []}

    def own(self, folder: Path) -> None:
        if self._entry is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._entry.pw_uid, self._entry.pw_gid, follow_symlinks=False)

    def can_enter(self, folder: Path) -> bool:
        """Never wrong with yes; a wrong no (because of a group, say) costs a copy."""
        if self._entry is None:
            return True
        folders = (folder, *folder.parents)
        return all(one.stat().st_mode & stat.S_IXOTH for one in folders)


class KeptProcess:
    """A running server, with a keeper between us and it. See keeper.py for what that promises."""

    def __init__(self, command: list[str], folder: Path, stop_signal: signal.Signals, account: Account) -> None:
        spec = {
            "command": command,
            "folder": str(folder),
            "log": str(folder / "log"),
            "stop_signal": stop_signal,
            "account": account.popen_options,
            "owner": os.getpid(),
        }
        self._keeper = subprocess.Popen(
            # Isolated and without site-packages: it starts fast and sees only the standard library.
            [sys.executable, "-I", "-S", str(KEEPER), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as answer:
            pid = answer.readline()
        if not pid:
            self._keeper.communicate()
            raise ServerError(f"could not run {command[0]}")
        self.pid = int(pid)

    @property
    def running(self) -> bool:
        return self._keeper.poll() is None

    def end(self, number: signal.Signals, patience: float = STOP_PATIENCE) -> None:
        """Send the signal and wait until the server and all its children have gone."""
        self._send(number)
        try:
            self._keeper.wait(patience)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)
            self._keeper.wait(STOP_PATIENCE)
            raise ServerError(f"it ignored {number.name} for {patience:g} s: killed") from None
        finally:
            self._close()

    def _send(self, number: signal.Signals) -> None:
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(b"%d\n" % number)
            self._keeper.stdin.flush()
        except (BrokenPipeError, ValueError):  # it has ended already
            return

    def _close(self) -> None:
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.close()
        except BrokenPipeError:
            return


class Folder:
    """A fresh temporary folder that is removed at the latest when this process exits."""

    def __init__(self, prefix: str, account: Account) -> None:
        # A socket's path may have 107 characters, and another user must get in: prefer short /tmp.
        parents = [Path(tempfile.gettempdir()), Path("/tmp")]
        parent = next(one for one in parents if account.can_enter(one))
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        account.own(self.path)
        self._owner = os.getpid()
        atexit.register(self.remove)

    def remove(self) -> None:
        if os.getpid() == self._owner:  # a fork inherits the atexit call, not the folder
            shutil.rmtree(self.path, ignore_errors=True)
            atexit.unregister(self.remove)


def free_port(highest: int = 65535) -> int:
    """Free a moment ago: whoever uses it must be ready to try another."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= highest:
            return port


def wait_until(ready: Callable[[], bool], process: KeptProcess, log: Path) -> None:
    """Return when the server is ready; raise, with the end of its log, when it never will be."""
    deadline = time.monotonic() + START_PATIENCE
    while not ready():
        if not process.running or time.monotonic() > deadline:
            told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise ServerError(f"the server did not start:\n{told}")
        time.sleep(0.01)
