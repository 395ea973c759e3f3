"""What wakes the thread that watches: a stroke of this process, or a write to the log by any process.

Linux tells of writes (inotify); elsewhere, and where the kernel has no more of it to give, there are strokes only.
"""

import ctypes
import os
import selectors
import socket
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path

_IN_MODIFY = 0x2
_ENOUGH = 65_536


class Woken(Enum):
    """By what a wait was ended."""

    TIME = "time"
    STROKE = "stroke"
    WRITE = "write"


class Bell:
    """Rung by any thread, heard by one."""

    def __init__(self) -> None:
        self._rope, self._clapper = socket.socketpair()
        self._rope.setblocking(False)
        self._clapper.setblocking(False)
        self._strokes = selectors.DefaultSelector()
        self._strokes.register(self._clapper, selectors.EVENT_READ)
        self._both = selectors.DefaultSelector()
        self._both.register(self._clapper, selectors.EVENT_READ)
        self._writes: int | None = None

    def follows(self) -> bool:
        """Whether it hears of writes."""
        return self._writes is not None

    def follow(self, path: Path) -> None:
        """Hear of writes to the file, if that can be had."""
        if self._writes is None:
            self._writes = _follow(path)
            if self._writes is not None:
                self._both.register(self._writes, selectors.EVENT_READ)

    def forsake(self) -> None:
        """Hear of writes no more."""
        if self._writes is not None:
            self._both.unregister(self._writes)
            os.close(self._writes)
            self._writes = None

    def ring(self) -> None:
        with suppress(OSError):  # it rings already, or nobody is there to hear it
            self._rope.send(b"!")

    def wait(self, seconds: float | None, *, writes: bool = False) -> Woken:
        """Until it is rung, or the time is over; with ``writes`` also until somebody writes."""
        woken = (self._both if writes else self._strokes).select(seconds)
        if not woken:
            return Woken.TIME
        if any(key.fileobj is self._clapper for key, _ in woken):
            self._clapper.recv(_ENOUGH)
            return Woken.STROKE
        self.written()
        return Woken.WRITE

    def written(self) -> bool:
        """Whether somebody has written since the last wait for it."""
        if self._writes is None:
            return False
        try:
            return bool(os.read(self._writes, _ENOUGH))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.forsake()
        for each in (self._strokes, self._both, self._rope, self._clapper):
            each.close()


def _follow(path: Path) -> int | None:
    """A descriptor that becomes readable when the file is written to."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor
