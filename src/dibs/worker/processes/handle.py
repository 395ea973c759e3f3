"""One child process, as its worker sees it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from dibs.worker.processes.frames import LENGTH, FromChild, ToChild, decode_in_worker, frame

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


class ChildHandle:
    """A running child. It leads a process group, so that it ends with everything that its handlers started."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - this very Python
                    [*_interpreter(), "-P", str(_BOOTSTRAP), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C in a terminal is for the worker, not for its children
                )
            except BaseException:
                ours.close()
                raise
        self._socket = ours
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ended = asyncio.Event()
        self.pid = self._process.pid
        self.calls = 0
        self.begun = False
        """Whether the child has got the call that was last sent to it."""
        # asyncio's own watchers reap the child before we can end what it leaves behind in its group.
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, args=[loop], name=f"dibs-child-{self.pid}", daemon=True).start()

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> int:
        """The exit code, or minus the signal."""
        status = self._process.returncode
        assert status is not None, "it has not ended"
        return status

    async def send(self, value: ToChild) -> None:
        """Raises an OSError if the child is gone."""
        if self._writer is None:
            self._socket.setblocking(False)
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
            path = json.dumps([entry or os.getcwd() for entry in sys.path])
            self._writer.write(LENGTH.pack(len(path)) + path.encode())
        self._writer.write(frame(value))
        await self._writer.drain()

    async def receive(self) -> FromChild | None:
        """The next frame; None when there will be no more."""
        assert self._reader is not None, "nothing was sent"
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return decode_in_worker(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def ended(self) -> None:
        """Wait until the child, and all that it started, got what ends them, and its slot in the system is free."""
        await self._ended.wait()

    async def end(self, patience: float) -> None:
        """SIGTERM to the whole group, after ``patience`` seconds SIGKILL; returns when the child is really gone."""
        self._signal(signal.SIGTERM)
        await self.ended_within(patience)

    async def ended_within(self, patience: float) -> None:
        """Wait for an end that was asked for; what is too slow is killed."""
        try:
            async with asyncio.timeout(patience):
                await self._ended.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._ended.wait()

    async def close(self) -> None:
        """Give back the socket of a child that has ended."""
        if self._writer is None:
            self._socket.close()
            return
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:  # it broke; it is closed all the same
            return

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Until it is reaped, no other process can have its number.
        if self.alive:
            _signal_group(self.pid, number)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except AttributeError:  # macOS before Python 3.13
            self._process.wait()
        except ChildProcessError:  # somebody else in this process waits for all children there are
            pass
        try:
            loop.call_soon_threadsafe(self._reap)
        except RuntimeError:  # the loop was closed before the pool was: nobody is left to be told
            _signal_group(self.pid, signal.SIGKILL)
            self._process.wait()

    def _reap(self) -> None:
        _signal_group(self.pid, signal.SIGKILL)  # what the handler started and left behind
        self._process.wait()
        self._ended.set()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says so of a group of zombies
        return


def _interpreter() -> list[str]:
    """This Python, with the switches it was started with: ``-O``, ``-W``, ``-X`` …"""
    switches: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *switches]
