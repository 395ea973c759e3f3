"""Numbered migrations. A version is a folder of SQL files, applied in one transaction.

They run when somebody says so (``dibs migrate up``, or ``migrate=auto`` in the URL), never on connect by themselves.
A version must leave the functions of the one before it working, so that old and new workers can run side by side
during a deploy.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from dibs.errors import SchemaError
from dibs.stores.postgres.connection import place

# Two migrations at once would both find the schema missing; the second waits here until the first is done.
_SERIALISE = "select pg_advisory_xact_lock(hashtext('dibs migrate'))"


class Version(msgspec.Struct, frozen=True):
    """One version of the schema: its number and its statements, in order."""

    number: int
    statements: tuple[str, ...]


class Status(msgspec.Struct, frozen=True):
    """Which version a database has, and which this dibs needs."""

    applied: int
    needed: int


def versions() -> tuple[Version, ...]:
    """Every version that this dibs knows, oldest first."""
    folder = files("dibs.stores.postgres") / "migrations"
    found = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=_name)
    return tuple(Version(int(each.name), _statements(each)) for each in found)


def _statements(folder: Traversable) -> tuple[str, ...]:
    scripts = sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=_name)
    return tuple(script.read_text("utf-8") for script in scripts)


def _name(entry: Traversable) -> str:
    return entry.name


NEEDED = versions()[-1].number


async def status(connection: Any) -> Status:
    """Compare the database with this dibs."""
    known = await connection.fetchval("select to_regclass('dibs.migration') is not null")
    applied = await connection.fetchval("select max(version) from dibs.migration") if known else 0
    return Status(applied or 0, NEEDED)


async def up(connection: Any) -> list[int]:
    """Apply what is missing, each version in a transaction of its own; answers the versions applied."""
    applied: list[int] = []
    for version in versions():
        async with connection.transaction():
            await connection.execute(_SERIALISE)
            if (await status(connection)).applied >= version.number:
                continue
            await connection.execute("create schema if not exists dibs")
            for statement in version.statements:
                await connection.execute(statement)
            await connection.execute("insert into dibs.migration (version) values ($1)", version.number)
            applied.append(version.number)
    if applied:
        await connection.execute("select dibs.make_days()")
    return applied


def check(found: Status, url: str) -> None:
    """Refuse to work on a schema that this dibs does not know."""
    if found.applied == 0:
        raise SchemaError(f"{place(url)} has no dibs schema: run dibs migrate up, or add ?migrate=auto to the URL")
    if found.applied < found.needed:
        raise SchemaError(
            f"{place(url)} has schema version {found.applied}, this dibs needs {found.needed}: run dibs migrate up"
        )
    if found.applied > found.needed:
        raise SchemaError(
            f"{place(url)} has schema version {found.applied}, newer than the {found.needed} of this dibs: upgrade dibs"
        )
