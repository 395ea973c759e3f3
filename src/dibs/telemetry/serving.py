"""``/metrics``, ``/healthz`` and ``/readyz`` of a worker, from threads of their own: a blocked loop can be told."""

import contextlib
import http.server
import logging
import selectors
import socket
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from dibs.errors import ConfigurationError
from dibs.telemetry import exposition
from dibs.telemetry.health import Health
from dibs.telemetry.metrics import Family, Watched, pack, worker_families

AT_ONCE = 16
"""How many requests are answered at a time; the next ones are hung up on."""
PATIENCE = 5.0
"""Seconds that a client may take to say what it wants, and to listen."""

log = logging.getLogger("dibs.metrics")


class Answer(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Pages(Protocol):
    """What is served at one place."""

    def answer(self, path: str, accept: str) -> Answer: ...


class WorkerPages:
    """The pages of one worker in this process."""

    def __init__(self, worker: Watched) -> None:
        exposition.require()
        worker.vitals.watched = True
        self._worker = worker

    def families(self) -> list[Family]:
        return [*worker_families(self._worker), *exposition.registered()]

    def health(self) -> Health:
        return self._worker.vitals.health()

    def answer(self, path: str, accept: str) -> Answer:
        match path:
            case "/metrics":
                return scraped(self.families(), accept)
            case "/healthz" | "/readyz":
                return probed(path, self.health())
        return Answer(404, b"there is /metrics, /healthz and /readyz\n")


class OwnPages(WorkerPages):
    """The same for the other processes of a supervisor, which put them together."""

    def answer(self, path: str, accept: str) -> Answer:
        if path == "/families":
            return Answer(200, pack(self.families()), "application/json")
        if path == "/health":
            return Answer(200, msgspec.json.encode(self.health()), "application/json")
        return Answer(404, b"")


def scraped(families: Sequence[Family], accept: str) -> Answer:
    content_type, body = exposition.exposed(families, accept)
    return Answer(200, body, content_type)


def probed(path: str, health: Health) -> Answer:
    fine = health.alive if path == "/healthz" else health.ready
    # One that is alive may have reasons not to be ready; they are no news to whoever asks whether it is alive.
    lines = [] if fine else health.problems
    return Answer(200 if fine else 503, "\n".join([*lines, "" if lines else "ok\n"]).encode())


# --- serving ------------------------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address; a ConfigurationError if it cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as problem:
        raise ConfigurationError(f"no metrics can be served at {host}:{port}: {problem}") from None


def announce(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)


class Door:
    """Answers at some sockets, each with pages of its own, until closed. The sockets may be shared with others."""

    def __init__(self, sockets: Sequence[tuple[socket.socket, Pages]]) -> None:
        self._selector = selectors.DefaultSelector()
        for each, pages in sockets:
            each.setblocking(False)  # another process may have been faster
            self._selector.register(each, selectors.EVENT_READ, pages)
        self._sockets = [each for each, _ in sockets]
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ, None)
        self._woken = woken
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._thread = threading.Thread(target=self._serve, name="dibs-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._wake.send(b"!")
        self._thread.join(PATIENCE)
        for each in (*self._sockets, self._wake, self._woken):
            each.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                with contextlib.suppress(OSError):
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]  # sockets only
                    self._begin(connection, key.data)

    def _begin(self, connection: socket.socket, pages: Pages) -> None:
        if not self._room.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(target=self._answer, args=(connection, pages), name="dibs-metrics-answer", daemon=True).start()

    def _answer(self, connection: socket.socket, pages: Pages) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE)
                _Handler(connection, pages)
        except Exception:
            log.exception("a request could not be answered")
        finally:
            self._room.release()


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request, one answer."""

    server_version, sys_version = "dibs", ""
    timeout = PATIENCE

    def __init__(self, connection: socket.socket, pages: Pages) -> None:
        self._pages = pages
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]  # it has no use for a server

    def do_GET(self) -> None:
        self._send(self._pages.answer(self.path.partition("?")[0], self.headers.get("Accept", "")))

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: nobody wants to read of them."""


class MetricsServer:
    """The pages of one worker at one address. Made before the worker runs; ``port`` 0 finds a free one."""

    def __init__(self, worker: Watched, host: str = "127.0.0.1", port: int = 9464) -> None:
        self._pages = WorkerPages(worker)
        self._socket = listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._door: Door | None = None

    def start(self) -> None:
        self._door = Door([(self._socket, self._pages)])
        announce(self._socket)

    def stop(self) -> None:
        if self._door is not None:
            self._door.close()
