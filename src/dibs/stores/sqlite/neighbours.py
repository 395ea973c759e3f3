"""Two SQLite libraries in one process on one file: neither sees the other's locks, and one deletes the other's log.

dibs comes with a library of its own (apsw's); Python's ``sqlite3``, and so Django and SQLAlchemy, use another.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from dibs.errors import ConfigurationError
from dibs.stores.sqlite import forks

_OPEN_FILES = Path("/proc/self/fd")


def refuse_strangers(path: Path) -> None:
    """Before the first handle: nobody else in this process may have the file open. Only Linux tells."""
    if not path.exists() or _open_in_ours(path):
        return  # who has it open already uses our library, or is found out by whoever came first
    if any(os.path.samestat(found, path.stat()) for found in _open_files()):
        raise ConfigurationError(
            f"this process has {path} open already, with another SQLite library or as a file: close it there first, "
            "or give dibs a file of its own"
        )


def refuse_beside_handles(file: Callable[[], str]) -> None:
    """Before an enqueue through another library: no handle of this process may be on that file."""
    if not forks.handles:
        return
    path = Path(file())
    for handle in list(forks.handles):
        if _same(handle.path, path):
            raise ConfigurationError(
                f"this process has {path} open in dibs too, and two SQLite libraries on one file lose data: close the "
                "store or the app here first, or enqueue through an apsw connection"
            )


def _open_in_ours(path: Path) -> bool:
    if any(_same(handle.path, path) for handle in list(forks.handles)):
        return True
    for each in apsw.connections():
        try:
            if each.filename and _same(Path(each.filename), path):
                return True
        except apsw.ThreadingViolationError:
            return True  # in use by another thread, so it cannot be asked: rather no alarm than a false one
        except apsw.ConnectionClosedError:
            continue
    return False


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _open_files() -> Iterator[os.stat_result]:
    try:
        names = os.listdir(_OPEN_FILES)
    except OSError:
        return
    for name in names:
        try:
            yield os.fstat(int(name))
        except OSError:
            continue  # it was the listing's own
