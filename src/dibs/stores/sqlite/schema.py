"""The schema: numbered files, applied in order, each version recorded in the table dibs_schema.

Not in ``PRAGMA user_version``: the file may be an application's own, and then that number is its too.
"""

import asyncio
import time
from collections.abc import Callable
from importlib.resources import files
from typing import TypeVar

import msgspec

from dibs.errors import ConfigurationError, SchemaError
from dibs.stores.schema import SchemaStatus
from dibs.stores.sqlite.connect import Connection, translated
from dibs.stores.sqlite.options import Options, parse
from dibs.stores.sqlite.statements import script

T = TypeVar("T")

_VERSIONS = """CREATE TABLE IF NOT EXISTS dibs_schema (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"""
# By the table that an entry belongs to: the indexes that SQLite makes for ours by itself have other names, and
# another process may be making our tables at this moment.
_OTHERS = """SELECT 1 FROM sqlite_schema
    WHERE tbl_name NOT LIKE 'dibs\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT 1"""
_OURS = "SELECT {what} FROM sqlite_schema WHERE name LIKE 'dibs\\_%' ESCAPE '\\' AND sql IS NOT NULL"


class Migration(msgspec.Struct, frozen=True):
    """One numbered file."""

    version: int
    name: str


def _listed() -> tuple[Migration, ...]:
    names = sorted(entry.name for entry in (files("dibs.stores.sqlite") / "migrations").iterdir())
    return tuple(Migration(int(name[:4]), name) for name in names if name.endswith(".sql"))


MIGRATIONS = _listed()
LATEST = MIGRATIONS[-1].version


def status(db: Connection) -> SchemaStatus:
    """Read the version of the file."""
    current = 0
    if db.rows(_OURS.format(what="1") + " AND name = 'dibs_schema'"):
        current = db.rows("SELECT coalesce(max(version), 0) FROM dibs_schema")[0][0]
    pending = tuple(migration.name for migration in MIGRATIONS if migration.version > current)
    return SchemaStatus(current, LATEST, pending)


def up(db: Connection) -> tuple[str, ...]:
    """Apply what is pending, in one transaction; any number of processes may do it at once."""
    db.use_wal()
    db.begin()
    try:
        current = status(db).current
        _refuse_newer(db, current)
        db.rows(_VERSIONS)
        applied = [migration for migration in MIGRATIONS if migration.version > current]
        for migration in applied:
            db.rows(script("migrations", migration.name))
            db.rows(
                "INSERT INTO dibs_schema (version, name, applied_at) VALUES (?, ?, ?)",
                (migration.version, migration.name, time.time_ns() // 1_000),
            )
        db.rows("COMMIT")
    finally:
        db.rollback()
    return tuple(migration.name for migration in applied)


def ensure(db: Connection) -> None:
    """Create the schema in an empty file; bring an older one up to date only where the options say so."""
    path = db.options.path
    current = status(db).current
    _refuse_newer(db, current)
    if current == LATEST:
        db.use_wal()
        return
    if not db.options.migrate:
        if current > 0:
            raise SchemaError(f"the schema of {path} is older than this dibs: run dibs migrate")
        if db.rows(_OTHERS):
            raise SchemaError(
                f"{path} holds other tables, none of dibs: run dibs migrate, or put migrate=auto in the URL"
            )
    up(db)


def _refuse_newer(db: Connection, current: int) -> None:
    if current > LATEST:
        raise SchemaError(f"{db.options.path} has schema version {current}, this dibs knows {LATEST}: upgrade dibs")


def dump(db: Connection) -> str:
    """The schema as SQL, in a stable order."""
    rows = db.rows(_OURS.format(what="sql") + " ORDER BY name")
    return "".join(f"{row[0]};\n\n" for row in rows)


class SQLiteSchema:
    """The schema in the file of a URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def status(self) -> SchemaStatus:
        return await _with_file(self._url, status, create=False)

    async def up(self) -> tuple[str, ...]:
        return await _with_file(self._url, up, create=True)

    async def dump(self) -> str:
        return await _with_file(self._url, dump, create=False)


def open_schema(url: str) -> SQLiteSchema:
    """The schema in the file of a URL."""
    return SQLiteSchema(url)


async def _with_file(url: str, work: Callable[[Connection], T], *, create: bool) -> T:
    return await asyncio.to_thread(_work_on, parse(url), work, create)


def _work_on(options: Options, work: Callable[[Connection], T], create: bool) -> T:
    if not create and not options.path.exists():
        raise ConfigurationError(f"{options.path} does not exist: run dibs migrate up to create it")
    db = Connection(options)
    try:
        with translated(options):
            return work(db)
    finally:
        db.close()
