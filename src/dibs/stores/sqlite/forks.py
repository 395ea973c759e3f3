"""Forks. SQLite keeps its file locks in tables of the process, so a child must not go on with its parent's.

Every open handle is brought to rest before a fork. In the child its connections are closed, which makes
SQLite forget the locks that only the parent has; the handle is dead there, and a new one works.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from dibs.stores.sqlite.connect import Connection

_PATIENCE = 5.0


class Resting(Protocol):
    """A thread that works on a connection only while it holds its lock."""

    lock: threading.Lock
    db: Connection


class Handle(Protocol):
    """What has such threads."""

    @property
    def path(self) -> Path: ...

    def _hands(self) -> Sequence[Resting]: ...

    def _forked(self) -> None:
        """This is the child."""

    def __hash__(self) -> int: ...


handles: "WeakSet[Any]" = WeakSet()
_resting: list[Resting] = []
_abandoned: list[Resting] = []
"""Connections that were in use during the fork: closing them could wait for ever."""


def _before() -> None:
    for handle in list(handles):
        for hand in handle._hands():
            if hand.lock.acquire(timeout=_PATIENCE):
                _resting.append(hand)


def _in_parent() -> None:
    while _resting:
        _resting.pop().lock.release()


def _in_child() -> None:
    for handle in list(handles):
        for hand in handle._hands():
            if hand in _resting:
                hand.db.close()
            else:
                _abandoned.append(hand)
        handle._forked()
    handles.clear()
    _resting.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
