"""Enqueueing in the caller's own transaction: the job exists exactly if the rest of the transaction does.

One statement with one text argument, so that every driver can send it. Wake-ups are sent by the server at commit: what
is rolled back wakes nobody.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.errors import ConfigurationError, DibsError, Refused, SchemaError
from dibs.job import Enqueued, NewFlow, NewJob
from dibs.limits import Limits
from dibs.stores.postgres import flows

# The braces are for the one argument, written as the driver wants it.
_ENQUEUE = "select id, created, changed from dibs.enqueue_many({})"
_START = """
select started.id, started.created, false from (select {} as flow) as given cross join lateral dibs.start_flow(
    flow ->> 'name', flow -> 'steps', flow ->> 'on_failure', flow -> 'meta', cast(flow ->> 'id' as uuid)
) as started
"""
_BEGIN_FIRST = "no transaction is open on this connection: begin one, enqueue inside it, then commit"
_UNDEFINED = ("42883", "3F000", "42P01")
_KNOWN = "23505"


def enqueue_in(connection: Any, jobs: Sequence[NewJob], *, limits: Limits = rules.DEFAULT) -> list[Enqueued]:
    """Enqueue through a psycopg, SQLAlchemy or Django connection, in the transaction that is open on it."""
    return _send(connection, _ENQUEUE, _as_json(jobs, limits))


def start_in(connection: Any, flow: NewFlow, *, limits: Limits = rules.DEFAULT) -> Enqueued:
    """Start a flow through such a connection, in the transaction that is open on it."""
    [started] = _send(connection, _START, _flow_json(flow, limits))
    return started


async def enqueue_in_async(
    connection: Any, jobs: Sequence[NewJob], *, limits: Limits = rules.DEFAULT
) -> list[Enqueued]:
    """Enqueue through an asyncpg or an async psycopg connection, in the transaction that is open on it."""
    return await _send_async(connection, _ENQUEUE, _as_json(jobs, limits))


async def start_in_async(connection: Any, flow: NewFlow, *, limits: Limits = rules.DEFAULT) -> Enqueued:
    """Start a flow through such a connection, in the transaction that is open on it."""
    [started] = await _send_async(connection, _START, _flow_json(flow, limits))
    return started


async def _send_async(connection: Any, statement: str, argument: str) -> list[Enqueued]:
    try:
        if hasattr(connection, "is_in_transaction"):  # asyncpg
            if not connection.is_in_transaction():
                raise ConfigurationError(_BEGIN_FIRST)
            return _answers(await connection.fetch(statement.format("$1::text::json"), argument))
        async with _cursor(connection) as cursor:
            await cursor.execute(statement.format("%s::json"), (argument,))
            return _answers(await cursor.fetchall())
    except Exception as problem:
        raise _translated(problem) or problem from None


def _send(connection: Any, statement: str, argument: str) -> list[Enqueued]:
    try:
        return _answers(_rows(connection, statement, argument))
    except Exception as problem:
        raise _translated(problem) or problem from None


def _rows(connection: Any, statement: str, argument: str) -> Any:
    if getattr(connection, "vendor", None) == "postgresql":
        if not connection.in_atomic_block:
            raise ConfigurationError("no transaction is open in Django: enqueue inside transaction.atomic()")
        with connection.cursor() as cursor:
            cursor.execute(statement.format("%s::json"), [argument])
            return cursor.fetchall()
    if hasattr(connection, "get_bind") or hasattr(connection, "exec_driver_sql"):
        from sqlalchemy import text

        _check_sqlalchemy(connection)
        return connection.execute(text(statement.format("cast(:given as json)")), {"given": argument}).fetchall()
    with _cursor(connection) as cursor:
        cursor.execute(statement.format("%s::json"), (argument,))
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
        job["args"], job["meta"] = _raw(job["args"]), _raw(job["meta"])
    return msgspec.json.encode(admitted).decode()


def _flow_json(flow: NewFlow, limits: Limits) -> str:
    name, steps, on_failure, meta, id_ = flows.arguments(rules.flow(flow, limits))
    given = {"name": name, "on_failure": on_failure, "id": id_}
    return msgspec.json.encode({**given, "steps": _raw(steps), "meta": _raw(meta)}).decode()


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _answers(found: Any) -> list[Enqueued]:
    return [
        Enqueued(id_ if isinstance(id_, UUID) else UUID(str(id_)), created, changed) for id_, created, changed in found
    ]


def _translated(problem: BaseException) -> DibsError | None:
    """Wrappers of drivers keep the driver's own error as ``orig`` or as the cause."""
    inner = getattr(problem, "orig", None) or problem.__cause__ or problem
    state = getattr(inner, "sqlstate", None) or getattr(inner.__cause__, "sqlstate", None)
    if state in _UNDEFINED:
        return SchemaError("this database has no dibs schema: run dibs migrate up on it first")
    if state == _KNOWN:
        return Refused(str(inner).splitlines()[0])
    return None
