"""Enqueueing in a transaction of your own: the job, or the flow, is there exactly if the rest of what you did is.

.. code-block:: python

    with psycopg.connect(url) as connection:
        connection.execute("insert into orders …")
        enqueue_in(connection, [NewJob(task="send_receipt")])

A rollback leaves no job and wakes nobody. This is an extra of the SQL stores, beside the store protocol: the
connection is yours, and dibs neither commits nor closes it.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from dibs.errors import ConfigurationError
from dibs.job import Enqueued, NewFlow, NewJob
from dibs.limits import DEFAULT, Limits

_SYNC = "a psycopg, SQLAlchemy, Django, sqlite3 or apsw connection"
_ASYNC = "an asyncpg, async psycopg or async SQLAlchemy connection"


def enqueue_in(connection: Any, jobs: Sequence[NewJob], *, limits: Limits = DEFAULT) -> list[Enqueued]:
    """Enqueue in the transaction that is open on ``connection``, with the promises of ``Store.enqueue``.

    Takes a psycopg connection, a SQLAlchemy connection or session, Django's, or one of sqlite3 or apsw.
    """
    if _dialect(connection) == "postgresql":
        from dibs.stores.postgres import transaction as postgres

        return postgres.enqueue_in(connection, jobs, limits=limits)
    if _dialect(connection) == "sqlite":
        from dibs.stores.sqlite import transaction as sqlite

        return sqlite.enqueue_in(connection, jobs, limits=limits)
    raise _unknown(connection, _SYNC, "await enqueue_in_async(…) takes " + _ASYNC)


def start_in(connection: Any, flow: NewFlow, *, limits: Limits = DEFAULT) -> Enqueued:
    """Start a flow in the transaction that is open on ``connection``, with the promises of ``Store.start``."""
    if _dialect(connection) == "postgresql":
        from dibs.stores.postgres import transaction as postgres

        return postgres.start_in(connection, flow, limits=limits)
    if _dialect(connection) == "sqlite":
        from dibs.stores.sqlite import transaction as sqlite

        return sqlite.start_in(connection, flow, limits=limits)
    raise _unknown(connection, _SYNC, "await start_in_async(…) takes " + _ASYNC)


async def enqueue_in_async(connection: Any, jobs: Sequence[NewJob], *, limits: Limits = DEFAULT) -> list[Enqueued]:
    """The same for an asyncpg connection, an async psycopg one, or an async connection or session of SQLAlchemy."""
    if hasattr(connection, "run_sync"):  # SQLAlchemy
        found: list[Enqueued] = await connection.run_sync(enqueue_in, jobs, limits=limits)
        return found
    if _comes_from(connection, "asyncpg", "is_in_transaction") or _comes_from(connection, "psycopg", "__aenter__"):
        from dibs.stores.postgres import transaction as postgres

        return await postgres.enqueue_in_async(connection, jobs, limits=limits)
    raise _unknown(connection, _ASYNC, "enqueue_in(…) takes " + _SYNC)


async def start_in_async(connection: Any, flow: NewFlow, *, limits: Limits = DEFAULT) -> Enqueued:
    """``start_in`` for the connections that ``enqueue_in_async`` takes."""
    if hasattr(connection, "run_sync"):  # SQLAlchemy
        started: Enqueued = await connection.run_sync(start_in, flow, limits=limits)
        return started
    if _comes_from(connection, "asyncpg", "is_in_transaction") or _comes_from(connection, "psycopg", "__aenter__"):
        from dibs.stores.postgres import transaction as postgres

        return await postgres.start_in_async(connection, flow, limits=limits)
    raise _unknown(connection, _ASYNC, "start_in(…) takes " + _SYNC)


def _dialect(connection: Any) -> str | None:
    """Which database a synchronous connection leads to; None if it is something else."""
    if isinstance(connection, sqlite3.Connection) or _comes_from(connection, "apsw", "in_transaction"):
        return "sqlite"
    if hasattr(connection, "__aenter__"):
        return None
    if _comes_from(connection, "psycopg", "autocommit"):
        return "postgresql"
    if hasattr(connection, "in_atomic_block"):  # Django
        return str(connection.vendor)
    if hasattr(connection, "get_bind"):  # a session of SQLAlchemy
        return str(connection.get_bind().dialect.name)
    return str(connection.dialect.name) if hasattr(connection, "exec_driver_sql") else None


def _comes_from(connection: Any, package: str, attribute: str) -> bool:
    """Whether it is an object of the package, or of a subclass, that has what a connection has."""
    packages = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    return package in packages and hasattr(connection, attribute)


def _unknown(connection: Any, takes: str, other: str) -> ConfigurationError:
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigurationError(f"cannot enqueue through a {name}: pass {takes} ({other})")
