"""What ``dibs doctor`` looks at in PostgreSQL."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dibs.clock import system_clock
from dibs.stores.doctor import Finding, clocks, fail, ok, warn
from dibs.stores.postgres import schema
from dibs.stores.postgres.connection import connect, place, speaking_dibs
from dibs.stores.postgres.options import split
from dibs.stores.schema import SchemaStatus

OLDEST = 130_000
LONG = timedelta(minutes=10)
_SETTINGS = """
select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum',
    'max_connections', 'server_version', 'server_version_num', 'synchronous_standby_names')
"""
_STATE = """
select pg_is_in_recovery() as standby,
    (select count(*) from pg_stat_activity where backend_type = 'client backend')::int as connections,
    (select max(clock_timestamp() - xact_start) from pg_stat_activity
        where xact_start is not null and pid <> pg_backend_pid()) as oldest
"""


async def examine(url: str) -> list[Finding]:
    """Connect once and read; nothing is written."""
    address, options = split(url)
    connection = await connect(address, options)
    try:
        async with speaking_dibs(address):
            settings = {row["name"]: row["setting"] for row in await connection.fetch(_SETTINGS)}
            state = await connection.fetchrow(_STATE)
            found = await schema.status(connection)
            asked = system_clock()
            told = await connection.fetchval("select clock_timestamp()")
            clock = clocks(asked, told, system_clock())
    finally:
        await connection.close(timeout=5)
    return [
        ok("store", f"PostgreSQL at {place(address)} answers"),
        _version(settings),
        _schema(found),
        clock,
        *_durability(settings),
        *_activity(settings, state),
    ]


def _version(settings: dict[str, str]) -> Finding:
    version = settings["server_version"]
    if int(settings["server_version_num"]) < OLDEST:
        return fail("version", f"PostgreSQL {version} is too old", "upgrade the server to 13 or newer")
    return ok("version", f"PostgreSQL {version}")


def _schema(found: SchemaStatus) -> Finding:
    if found.current > found.latest:
        text = f"schema version {found.current} is newer than this dibs knows ({found.latest})"
        return fail("schema", text, "upgrade dibs here")
    if found.pending:
        text = f"schema version {found.current} of {found.latest}" if found.current else "there is no dibs schema"
        return fail("schema", text, "run dibs migrate up")
    return ok("schema", f"schema version {found.current}")


def _durability(settings: dict[str, str]) -> Iterator[Finding]:
    if settings["fsync"] == "off":
        yield fail("durability", "fsync is off: a crash can destroy the database", "set fsync = on")
    elif settings["full_page_writes"] == "off":
        yield warn(
            "durability",
            "full_page_writes is off: a crash can damage pages",
            "set full_page_writes = on unless the file system writes whole pages",
        )
    committed = settings["synchronous_commit"]
    if committed == "off":
        yield warn(
            "durability",
            "synchronous_commit is off: a crash of the server may lose the last enqueues",
            "set synchronous_commit = on, for this database or role",
        )
    elif settings["fsync"] == "on":
        replicas = settings.get("synchronous_standby_names", "")
        text = f"fsync is on, synchronous_commit is {committed}"
        yield ok("durability", text + (f", with {replicas}" if replicas else ""))


def _activity(settings: dict[str, str], state: Any) -> Iterator[Finding]:
    if state["standby"]:
        yield fail("role", "this server is a standby: nothing can be written", "connect to the primary")
    if settings["autovacuum"] == "off":
        yield warn("autovacuum", "autovacuum is off: the job table will grow and slow down", "set autovacuum = on")
    used, most = state["connections"], int(settings["max_connections"])
    if used > most * 0.8:
        yield warn(
            "connections",
            f"{used} of {most} connections are in use",
            "lower pool= in the URLs of your workers, or use a pooler",
        )
    else:
        yield ok("connections", f"{used} of {most} connections are in use")
    oldest = state["oldest"]
    if oldest is not None and oldest > LONG:
        minutes = int(oldest.total_seconds() // 60)
        yield warn(
            "transactions",
            f"a transaction has been open for {minutes} min: finished rows cannot be cleaned up",
            "find it in pg_stat_activity (xact_start) and end it",
        )
