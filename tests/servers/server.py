"""What every server of ours has in common: a folder, a port, and a life that begins and ends with its owner."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.find import Installation
from tests.servers.process import Account, Folder, KeptProcess, ServerError, free_port, wait_until


class Server(ABC):
    """A server in a temporary folder, which we may stop, kill and start again."""

    prefix: str
    """What the name of its folder begins with."""
    farewell: signal.Signals
    """What it is sent when its owner has gone."""
    highest_port = 65535

    def __init__(self, installation: Installation, account: Account) -> None:
        self.installation = installation
        self._account = account
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
        self._remove()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._path / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start, empty the first time. The port stays the same from then on."""
        if self._folder is None:
            self._folder = Folder(self.prefix, self._account)
            try:
                self._prepare()
                self._start_on_a_free_port()
            except BaseException:
                self._remove()
                raise
        elif self._process is None:
            self._launch()

    def kill(self) -> None:
        """SIGKILL. `start` brings it back with what it had kept."""
        self._end(signal.SIGKILL)

    def _prepare(self) -> None:  # noqa: B027 - not every server has to be prepared
        """Once, before the first start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """How it is started, at the port that was found."""

    @abstractmethod
    def _is_ready(self) -> bool: ...

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise ServerError("the server has not been started")
        return self._folder.path

    def _remove(self) -> None:
        self._end(self.farewell)
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end(number)

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            self._port = free_port(self.highest_port)
            try:
                return self._launch()
            except ServerError as error:
                if "Address already in use" not in str(error) or attempt == 4:
                    raise

    def _launch(self) -> None:
        process = KeptProcess(self._command(), self._path, self.farewell, self._account)
        self._process = process
        try:
            wait_until(self._is_ready, process, self._path / "log")
        except ServerError:
            self._end(signal.SIGKILL)
            raise
