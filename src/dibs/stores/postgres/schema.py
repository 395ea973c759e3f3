"""Numbered migrations. A version is a folder of SQL files, applied in one transaction.

They run when somebody says so (``dibs migrate up``, or ``migrate=auto`` in the URL), never on connect by themselves.
A version must leave the functions of the one before it working, so that old and new workers can run side by side
during a deploy.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from dibs.errors import SchemaError
from dibs.stores.postgres.connection import connect, place, speaking_dibs
from dibs.stores.postgres.options import split
from dibs.stores.schema import SchemaStatus

_HERE = files("dibs.stores.postgres")

# Two migrations at once would both find the schema missing; the second waits here until the first is done.
_SERIALISE = "select pg_advisory_xact_lock(hashtext('dibs migrate'))"
# Read from the table: to_regclass() may answer from a cache that was filled before the lock was waited for.
_KNOWN = "select exists (select from pg_tables where schemaname = 'dibs' and tablename = 'migration')"


class Version(msgspec.Struct, frozen=True):
    """One version of the schema: its number and its statements, in order."""

    number: int
    statements: tuple[str, ...]


def versions() -> tuple[Version, ...]:
    """Every version that this dibs knows, oldest first."""
    folder = _HERE / "migrations"
    found = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=_name)
    return tuple(Version(int(each.name), _statements(each)) for each in found)


def _statements(folder: Traversable) -> tuple[str, ...]:
    scripts = sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=_name)
    return tuple(script.read_text("utf-8") for script in scripts)


def _name(entry: Traversable) -> str:
    return entry.name


VERSIONS = versions()
LATEST = VERSIONS[-1].number


async def status(connection: Any) -> SchemaStatus:
    """Compare the database with this dibs."""
    known = await connection.fetchval(_KNOWN)
    current = (await connection.fetchval("select max(version) from dibs.migration") if known else 0) or 0
    pending = tuple(_label(version.number) for version in VERSIONS if version.number > current)
    return SchemaStatus(current, LATEST, pending)


async def up(connection: Any) -> tuple[str, ...]:
    """Apply what is pending, each version in a transaction of its own; answers the versions applied."""
    applied: list[str] = []
    for version in VERSIONS:
        async with connection.transaction():
            await connection.execute(_SERIALISE)
            if (await status(connection)).current >= version.number:
                continue
            await connection.execute("create schema if not exists dibs")
            for statement in version.statements:
                await connection.execute(statement)
            await connection.execute("insert into dibs.migration (version) values ($1)", version.number)
            applied.append(_label(version.number))
    if applied:
        await connection.execute("select dibs.make_days()")
    return tuple(applied)


def _label(number: int) -> str:
    return f"{number:04}"


def check(found: SchemaStatus, url: str) -> None:
    """Refuse to work on a schema that this dibs does not know."""
    where = place(url)
    if found.current == 0:
        raise SchemaError(f"{where} has no dibs schema: run dibs migrate up, or add ?migrate=auto to the URL")
    if found.current < found.latest:
        raise SchemaError(f"{where} has schema version {found.current}, {found.latest} is needed: run dibs migrate up")
    if found.current > found.latest:
        raise SchemaError(f"{where} has schema version {found.current}, newer than this dibs knows: upgrade dibs")


class PostgresSchema:
    """The schema at a URL, each call on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url, self._options = split(url)

    async def status(self) -> SchemaStatus:
        async with self._connection() as connection:
            return await status(connection)

    async def up(self) -> tuple[str, ...]:
        async with self._connection() as connection:
            if (await status(connection)).current > LATEST:
                check(await status(connection), self._url)
            return await up(connection)

    async def dump(self) -> str:
        async with self._connection() as connection:
            check(await status(connection), self._url)
            statement = (_HERE / "dump.sql").read_text("utf-8")
            return "\n\n".join(row[0].rstrip() for row in await connection.fetch(statement)) + "\n"

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await connect(self._url, self._options)
        try:
            async with speaking_dibs(self._url):
                yield connection
        finally:
            await connection.close(timeout=5)


def open_schema(url: str) -> PostgresSchema:
    """The schema at a URL."""
    return PostgresSchema(url)
