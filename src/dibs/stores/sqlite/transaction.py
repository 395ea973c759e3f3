"""Enqueueing in the caller's own transaction: the job exists exactly if the rest of the transaction does.

Takes a ``sqlite3`` or ``apsw`` connection, a SQLAlchemy connection or session, or Django's; all of them on
the file of the store. Nobody has to be woken: workers watch the file, and what was rolled back never shows.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from dibs import limits as rules
from dibs.clock import Clock, system_clock, to_micros
from dibs.errors import ConfigurationError, SchemaError
from dibs.job import Enqueued, NewFlow, NewJob
from dibs.limits import Limits
from dibs.stores.sqlite.enqueueing import Execute, enqueue_each
from dibs.stores.sqlite.flows import start_through
from dibs.stores.sqlite.neighbours import refuse_beside_handles

T = TypeVar("T")

OLDEST = (3, 35, 0)
_BEGIN_FIRST = "no transaction is open on this connection: begin one, enqueue inside it, then commit"


def enqueue_with(
    execute: Execute,
    jobs: Sequence[NewJob],
    *,
    clock: Clock = system_clock,
    limits: Limits = rules.DEFAULT,
) -> list[Enqueued]:
    """Enqueue through any driver: ``execute(sql, params)`` runs a statement with ``?`` and gives its rows.

    A transaction has to be open. All of the jobs are stored in it, or none.
    """
    admitted = rules.admit(jobs, limits)
    return _all_or_nothing(execute, lambda: enqueue_each(execute, admitted, to_micros(clock())))


def enqueue_in(
    connection: Any,
    jobs: Sequence[NewJob],
    *,
    clock: Clock = system_clock,
    limits: Limits = rules.DEFAULT,
) -> list[Enqueued]:
    """Enqueue in the transaction that is open on the caller's connection, whatever driver it comes from."""
    rules.admit(jobs, limits)  # before a transaction is begun for nothing
    execute = executor(connection)
    with _tables_missed():
        return enqueue_with(execute, jobs, clock=clock, limits=limits)


def start_in(
    connection: Any,
    flow: NewFlow,
    *,
    clock: Clock = system_clock,
    limits: Limits = rules.DEFAULT,
) -> Enqueued:
    """Start a flow in the transaction that is open on the caller's connection, whatever driver it comes from."""
    admitted = rules.flow(flow, limits)
    execute = executor(connection)
    with _tables_missed():
        return _all_or_nothing(execute, lambda: start_through(execute, admitted, to_micros(clock())))


def _all_or_nothing(execute: Execute, work: Callable[[], T]) -> T:
    execute("SAVEPOINT dibs_enqueue", ())
    try:
        answer = work()
    except BaseException:
        execute("ROLLBACK TO dibs_enqueue", ())
        execute("RELEASE dibs_enqueue", ())
        raise
    execute("RELEASE dibs_enqueue", ())
    return answer


@contextmanager
def _tables_missed() -> Iterator[None]:
    """Whatever the driver calls it."""
    try:
        yield
    except Exception as problem:
        if "no such table: dibs_" in str(problem):
            message = "this database holds no tables of dibs: set up a store on the same file first"
            raise SchemaError(message) from problem
        raise


def executor(connection: Any) -> Execute:
    """How to run a statement on this connection; makes sure that it is in a transaction."""
    if isinstance(connection, apsw.Connection):
        return _apsw(connection)
    execute = _foreign(connection)
    refuse_beside_handles(lambda: str(execute("PRAGMA database_list", ())[0][2]))
    return execute


def _foreign(connection: Any) -> Execute:
    """Through a library that is not ours."""
    if isinstance(connection, sqlite3.Connection):
        return _sqlite3(connection)
    if getattr(connection, "vendor", None) == "sqlite":
        return _django(connection)
    if hasattr(connection, "exec_driver_sql"):
        return _sqlalchemy(connection)
    if hasattr(connection, "connection") and hasattr(connection, "get_bind"):
        return _sqlalchemy(connection.connection())
    raise ConfigurationError(
        f"cannot enqueue through a {type(connection).__name__}: pass a sqlite3, apsw, SQLAlchemy or Django "
        "connection (an async one of SQLAlchemy through its run_sync)"
    )


def _sqlite3(connection: sqlite3.Connection) -> Execute:
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")

    def execute(sql: str, params: Sequence[Any]) -> list[Any]:
        cursor = connection.cursor()
        cursor.row_factory = None  # tuples, whatever the caller's rows look like
        try:
            return cursor.execute(sql, params).fetchall()
        finally:
            cursor.close()

    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise ConfigurationError(_BEGIN_FIRST)
        execute("BEGIN", ())  # as the driver itself does before the first write
    return execute


def _apsw(connection: apsw.Connection) -> Execute:
    if not connection.in_transaction:
        raise ConfigurationError(_BEGIN_FIRST)

    def execute(sql: str, params: Sequence[Any]) -> list[Any]:
        cursor = connection.cursor()
        cursor.row_trace = None
        return cursor.execute(sql, params).fetchall()

    return execute


def _django(connection: Any) -> Execute:
    if not connection.in_atomic_block:
        raise ConfigurationError("no transaction is open in Django: enqueue inside transaction.atomic()")
    return _sqlite3(connection.connection)


def _sqlalchemy(connection: Any) -> Execute:
    if connection.dialect.name != "sqlite":
        raise ConfigurationError(f"this connection is to {connection.dialect.name}, the store is SQLite")

    def execute(sql: str, params: Sequence[Any]) -> list[Any]:
        result = connection.exec_driver_sql(sql, tuple(params))
        return list(result.fetchall()) if result.returns_rows else []

    raw = connection.connection.driver_connection
    if not getattr(raw, "in_transaction", True):
        execute("BEGIN", ())  # SQLAlchemy has begun, but its driver waits for the first write
    return execute
