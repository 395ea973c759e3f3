"""Enqueueing in the caller's own transaction: the job exists exactly if the rest of the transaction does.

One statement with one text argument, so that every driver can send it. Wake-ups are sent by the server at commit: what
is rolled back wakes nobody.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.errors import ConfigurationError, SchemaError
from dibs.job import Enqueued, NewJob
from dibs.limits import Limits

_FUNCTION = "select id, created from dibs.enqueue_many"
_BEGIN_FIRST = "no transaction is open on this connection: begin one, enqueue inside it, then commit"
_UNDEFINED = ("42883", "3F000", "42P01")


def enqueue_in(connection: Any, jobs: Sequence[NewJob], *, limits: Limits = rules.DEFAULT) -> list[Enqueued]:
    """Enqueue through a psycopg, SQLAlchemy or Django connection, in the transaction that is open on it."""
    jobs_json = _as_json(jobs, limits)
    try:
        return _answers(_send(connection, jobs_json))
    except Exception as problem:
        raise _missing(problem) or problem from None


async def enqueue_in_async(
    connection: Any, jobs: Sequence[NewJob], *, limits: Limits = rules.DEFAULT
) -> list[Enqueued]:
    """Enqueue through an asyncpg or an async psycopg connection, in the transaction that is open on it."""
    jobs_json = _as_json(jobs, limits)
    try:
        if hasattr(connection, "is_in_transaction"):  # asyncpg
            if not connection.is_in_transaction():
                raise ConfigurationError(_BEGIN_FIRST)
            return _answers(await connection.fetch(f"{_FUNCTION}($1::text::json)", jobs_json))
        async with _cursor(connection) as cursor:
            await cursor.execute(f"{_FUNCTION}(%s::json)", (jobs_json,))
            return _answers(await cursor.fetchall())
    except Exception as problem:
        raise _missing(problem) or problem from None


def _send(connection: Any, jobs_json: str) -> Any:
    if getattr(connection, "vendor", None) == "postgresql":
        if not connection.in_atomic_block:
            raise ConfigurationError("no transaction is open in Django: enqueue inside transaction.atomic()")
        with connection.cursor() as cursor:
            cursor.execute(f"{_FUNCTION}(%s::json)", [jobs_json])
            return cursor.fetchall()
    if hasattr(connection, "get_bind") or hasattr(connection, "exec_driver_sql"):
        from sqlalchemy import text

        _check_sqlalchemy(connection)
        return connection.execute(text(f"{_FUNCTION}(cast(:jobs as json))"), {"jobs": jobs_json}).fetchall()
    with _cursor(connection) as cursor:
        cursor.execute(f"{_FUNCTION}(%s::json)", (jobs_json,))
        return cursor.fetchall()


def _cursor(connection: Any) -> Any:
    """A cursor of psycopg that gives tuples, whatever the caller's rows look like."""
    from psycopg.rows import tuple_row

    idle = 0
    if connection.autocommit and connection.info.transaction_status == idle:
        raise ConfigurationError(_BEGIN_FIRST)
    return connection.cursor(row_factory=tuple_row)


def _check_sqlalchemy(connection: Any) -> None:
    """SQLAlchemy begins by itself, unless it was told not to; then each statement commits."""
    own = connection.connection() if hasattr(connection, "get_bind") else connection
    if getattr(own.connection.dbapi_connection, "autocommit", False):
        raise ConfigurationError(_BEGIN_FIRST + "; this one is in AUTOCOMMIT")


def _as_json(jobs: Sequence[NewJob], limits: Limits) -> str:
    """The argument of ``dibs.enqueue_many``: arguments go in as the text they were checked as."""
    admitted = [msgspec.structs.asdict(job) for job in rules.admit(jobs, limits)]
    for job in admitted:
        job["args"], job["meta"] = msgspec.Raw(job["args"].encode()), msgspec.Raw(job["meta"].encode())
    return msgspec.json.encode(admitted).decode()


def _answers(found: Any) -> list[Enqueued]:
    return [Enqueued(id_ if isinstance(id_, UUID) else UUID(str(id_)), created) for id_, created in found]


def _missing(problem: BaseException) -> SchemaError | None:
    """Wrappers of drivers keep the driver's own error as ``orig`` or as the cause."""
    inner = getattr(problem, "orig", None) or problem.__cause__ or problem
    state = getattr(inner, "sqlstate", None) or getattr(inner.__cause__, "sqlstate", None)
    if state in _UNDEFINED:
        return SchemaError("this database has no dibs schema: run dibs migrate up on it first")
    return None
