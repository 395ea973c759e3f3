"""The metrics of several processes at one port: what ``dibs work --processes N --metrics-port P`` serves.

The supervisor opens the port and hands it down. Whichever process takes a request asks the others, each at a socket of
its own in a folder that only this user can enter, and answers for all of them.
"""

import http.client
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import msgspec

from dibs.telemetry.exposition import FLEET
from dibs.telemetry.health import Health
from dibs.telemetry.metrics import Watched, together, unpack
from dibs.telemetry.serving import Answer, Door, OwnPages, announce, listen, probed, scraped

PATIENCE = 2.0
"""Seconds that another process has to answer."""
_LONGEST = 80
"""How long a path may be to have room for a socket's name."""

T = TypeVar("T")


class Line(msgspec.Struct, frozen=True):
    """What a child has to know: the socket that all share, the folder of their own ones, and how many they are."""

    fd: int
    folder: str
    count: int


@contextmanager
def shared(host: str, port: int, processes: int) -> Iterator[int]:
    """In the supervisor: open the port for its children; the file descriptor that they have to inherit."""
    where = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="dibs-", dir=where if len(where) < _LONGEST else "/tmp")  # noqa: S108
    try:
        with listen(host, port) as door:
            os.environ[FLEET] = msgspec.json.encode(Line(door.fileno(), folder, processes)).decode()
            announce(door)
            yield door.fileno()
    finally:
        os.environ.pop(FLEET, None)
        rmtree(folder, ignore_errors=True)


def inherited() -> Line | None:
    """In a child: what its supervisor has opened, if it has."""
    given = os.environ.pop(FLEET, None)
    return None if given is None else msgspec.json.decode(given, type=Line)


class FleetServer:
    """In a child: serves the port that all share, and the socket at which the others ask this one."""

    def __init__(self, worker: Watched, line: Line, number: int) -> None:
        own = OwnPages(worker)
        self._path = _path(line.folder, number)
        self._path.unlink(missing_ok=True)  # of one that was killed here before
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.bind(str(self._path))
        asked.listen(64)
        self._sockets = [(socket.socket(fileno=line.fd), FleetPages(line)), (asked, own)]
        self._door: Door | None = None

    def start(self) -> None:
        self._door = Door(self._sockets)  # type: ignore[arg-type]  # two kinds of pages

    def stop(self) -> None:
        self._path.unlink(missing_ok=True)
        if self._door is not None:
            self._door.close()


class FleetPages:
    """What all processes say, put together by any of them."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def answer(self, path: str, accept: str) -> Answer:
        match path:
            case "/metrics":
                families = {number: each for number, each in self._ask("/families", unpack).items() if each is not None}
                return scraped(together(families), accept)
            case "/healthz" | "/readyz":
                return probed(path, self._health())
        return Answer(404, b"there is /metrics, /healthz and /readyz\n")

    def _health(self) -> Health:
        """Alive if every process is that is there; ready if all are there, and each is ready.

        One that has ended is its supervisor's business: restarting all of them would help nobody.
        """
        alive, problems = True, list[str]()
        for number, health in self._ask("/health", lambda body: msgspec.json.decode(body, type=Health)).items():
            if health is None:
                problems.append(f"process {number} is not there")
                continue
            alive = alive and health.alive
            problems += [f"process {number}: {problem}" for problem in health.problems]
        return Health(alive, not problems, tuple(problems))

    def _ask(self, path: str, read: Callable[[bytes], T]) -> dict[str, T | None]:
        """What each process answers; None of those that are not there."""
        numbers = range(1, self._line.count + 1)
        with ThreadPoolExecutor(min(16, self._line.count), "dibs-metrics-ask") as pool:
            answers = pool.map(lambda number: _get(_path(self._line.folder, number), path), numbers)
            return {
                str(number): None if body is None else read(body) for number, body in zip(numbers, answers, strict=True)
            }


def _path(folder: str, number: int) -> Path:
    return Path(folder) / f"{number}.sock"


def _get(path: Path, page: str) -> bytes | None:
    connection = _Connection(path)
    try:
        connection.request("GET", page)
        return connection.getresponse().read()
    except (TimeoutError, BlockingIOError):
        # It is there, and not even a thread of its own gets a turn.
        stuck = Health(False, False, (f"no answer within {PATIENCE:g} s",))
        return msgspec.json.encode(stuck) if page == "/health" else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
