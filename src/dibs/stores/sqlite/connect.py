"""Connections: how one is opened, how it waits for its turn, and what its errors mean to a caller."""

import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from dibs.errors import ConfigurationError, DibsError, StoreUnavailable
from dibs.stores.sqlite.options import Options

Row = tuple[Any, ...]

JOURNAL_LIMIT = 64 << 20
"""The WAL is cut to this many bytes whenever it starts again from its beginning."""

NOT_AT_ALL = -1.0
"""So many seconds of patience: whoever finds the file locked is told at once."""
_TURN = (0.0002, 0.0015)
_PRAGMAS = f"""
PRAGMA journal_size_limit = {JOURNAL_LIMIT};
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -16000;
PRAGMA temp_store = MEMORY;
PRAGMA synchronous =
"""


class NoRoom(StoreUnavailable):
    """The disk, or what the file may take of it, is full."""


class Patience:
    """A busy handler. Everybody asks again at the same rate, however long they have waited.

    SQLite's own handler sleeps longer the longer it waits, up to 100 ms: among several busy processes the one
    that waited longest then has the smallest chance.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waited_at = -1.0
        """When it last had to wait, on the monotonic clock."""
        self._since = 0.0

    def __call__(self, asked: int) -> bool:
        now = self.waited_at = time.monotonic()
        if asked == 0:
            self._since = now
        if now - self._since > self.seconds:
            return False
        time.sleep(random.uniform(*_TURN))
        return True


class Connection:
    """One SQLite connection, for one thread at a time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.patience = Patience(options.busy_timeout)
        with translated(options):
            _check_path(options)
            self.raw = apsw.Connection(os.fspath(options.path.absolute()))
            try:
                self._prepare()
            except BaseException:
                self.raw.close(force=True)
                raise
        self._cursor = self.raw.cursor()
        self.changes = self.raw.changes
        self.total_changes = self.raw.total_changes

    def _prepare(self) -> None:
        raw, options = self.raw, self.options
        if "ENABLE_CARRAY" not in apsw.compile_options:  # every wheel has it
            raise ConfigurationError("this apsw was built without carray: pip install --only-binary apsw -U apsw")
        raw.set_busy_handler(self.patience)
        # One plan for a statement, whatever is bound: otherwise SQLite plans joins anew at every call.
        raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if raw.readonly("main"):
            raise ConfigurationError(f"{options.path} is read-only: let this user write it and its folder")
        persist(options, lambda: raw.execute(_PRAGMAS + options.synchronous).fetchall())

    @property
    def log(self) -> Path:
        """The write-ahead log, to which every commit is written first."""
        return Path(self.raw.filename_wal)

    def use_wal(self) -> None:
        """Let readers and a writer work side by side. Stays with the file, so not before we know it is ours."""
        mode = persist(self.options, lambda: self.rows("PRAGMA journal_mode = WAL"))[0][0]
        if mode != "wal":
            raise ConfigurationError(f"{self.options.path} cannot use WAL: move it to a local file system")

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """Run one statement and give all its rows."""
        return self._cursor.execute(sql, params).fetchall()

    def row(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> Row | None:
        """Run one statement that gives at most one row that matters."""
        found = self._cursor.execute(sql, params).fetchall()
        return found[0] if found else None

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one statement for its effect; answers how many rows it changed."""
        self._cursor.execute(sql, params)
        return self.changes()

    def run_all(self, sql: str, params: Sequence[Sequence[Any]]) -> int:
        """Run one statement many times; answers how many rows were changed in all."""
        before = self.total_changes()
        self._cursor.executemany(sql, params)
        return self.total_changes() - before

    def rows_all(self, sql: str, params: Sequence[Sequence[Any]]) -> list[Row]:
        """Run one statement many times and give all its rows."""
        return self._cursor.executemany(sql, params).fetchall()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything inside sees the same instant."""
        self.rows("BEGIN")
        try:
            yield
        finally:
            self.rollback()

    def begin(self) -> None:
        """Become the writer, waiting for the turn."""
        persist(self.options, lambda: self.rows("BEGIN IMMEDIATE"))

    def commit(self) -> None:
        """End the transaction, unless SQLite gave it up; what was written in it is certain then."""
        if self.raw.in_transaction:
            self._cursor.execute("COMMIT")

    def rollback(self) -> None:
        """End the transaction, if there is one."""
        if self.raw.in_transaction:
            self.rows("ROLLBACK")

    def close(self) -> None:
        with suppress(apsw.Error):
            self.raw.close(force=True)


def many(values: Iterable[bytes]) -> Any:
    """One parameter that is read by ``carray(?)``: many values in one step of SQLite, and no interpreter in between.

    To bind each in a run of its own takes twice to three times as long, and after each the thread has to wait for the
    interpreter. There must be at least one.
    """
    return apsw.carray(tuple(values))


def persist(options: Options, ask: Any) -> Any:
    """Ask again while the file is busy, also where SQLite does not call the busy handler."""
    deadline = time.monotonic() + options.busy_timeout
    while True:
        try:
            return ask()
        except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError):
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(*_TURN))


def _check_path(options: Options) -> None:
    path = options.path
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: name a file in it, such as {path / 'jobs.db'}")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"the folder of {path} does not exist: create it, or correct the path")


@contextmanager
def translated(options: Options) -> Iterator[None]:
    """Let only errors of ours out."""
    try:
        yield
    except apsw.Error as problem:
        raise translate(problem, options) from problem


def translate(problem: apsw.Error, options: Options) -> DibsError:
    """What an SQLite error means to a caller, in one line."""
    path = options.path
    match problem:
        case apsw.NotADBError():
            return ConfigurationError(f"{path} is no SQLite database: choose another file, or move it away")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            return StoreUnavailable(f"{path} cannot be written: check the rights on it and its folder")
        case apsw.FullError():
            return NoRoom(f"no room for {path}: nothing was stored, free space on the disk")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreUnavailable(
                f"{path} was locked by another program for {options.busy_timeout:g} s: "
                "end its transaction, or raise busy_timeout"
            )
        case apsw.CorruptError():
            return StoreUnavailable(f"{path} is damaged: run PRAGMA integrity_check and restore a backup")
    text = " ".join(str(problem).split())
    return StoreUnavailable(f"{path}: {type(problem).__name__}: {text}")
