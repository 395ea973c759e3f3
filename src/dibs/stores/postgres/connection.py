"""Connections to PostgreSQL, and errors in the words of dibs."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from dibs.errors import ConfigurationError, DibsError, Refused, SchemaError, StoreUnavailable
from dibs.stores.postgres import wire
from dibs.stores.postgres.options import Options
from dibs.stores.postgres.pool import Pool
from dibs.stores.tls import failed_check, untrusted

CONNECT_TIMEOUT = 10.0

_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what the driver says when it sends on a connection that was just terminated
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    OSError,
    TimeoutError,
)
# It answered, but somebody or something stands in the way: a time-out, a full disk, a standby, a lock.
_NOT_NOW = (
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
)
_BAD_URL = (
    ValueError,
    asyncpg.UndefinedObjectError,
    asyncpg.CantChangeRuntimeParamError,
    asyncpg.InvalidParameterValueError,
)
# A pooler lent us a server connection on which somebody else has prepared statements, or on which ours are missing.
_POOLED = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
_UNKNOWN_TO_POOLERS = "unsupported startup parameter"
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_NO_SCHEMA = (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError)


def place(url: str) -> str:
    """Where a URL leads, for messages: host, port and database, never a user's secret."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2] or 'the local socket'}{parts.path}"


def _line(problem: BaseException) -> str:
    """What a problem says, without the details that PostgreSQL adds in further lines."""
    return str(problem).partition("\n")[0] or type(problem).__name__


def translate(problem: BaseException, url: str) -> DibsError | None:
    """The error of dibs that stands for one of the driver, or None if it stands for itself."""
    match problem:
        case asyncpg.InvalidCatalogNameError():
            return ConfigurationError(f"there is no database at {place(url)}: create it with createdb")
        case asyncpg.InvalidAuthorizationSpecificationError():
            return ConfigurationError(f"PostgreSQL at {place(url)} refused the user or password: check the URL")
        case asyncpg.InsufficientPrivilegeError():
            advice = "let its owner say select dibs.allow(role, purpose)"
            return ConfigurationError(f"the role in the URL may not do that ({_line(problem)}): {advice}")
        case asyncpg.CheckViolationError() | asyncpg.NumericValueOutOfRangeError() | asyncpg.UniqueViolationError():
            known = isinstance(problem, asyncpg.UniqueViolationError)  # raised by dibs.start_flow, in words of dibs
            return Refused(_line(problem) if known else f"PostgreSQL refused the job: {_line(problem)}")
        case _ if isinstance(problem, _POOLED) or _UNKNOWN_TO_POOLERS in str(problem):
            return ConfigurationError(f"there is a pooler at {place(url)}: add pooler=transaction to the URL")
        case _ if isinstance(problem, _NO_SCHEMA):
            return SchemaError(f"{place(url)} has no current dibs schema: run dibs migrate up, or add ?migrate=auto")
        case _ if isinstance(problem, _GONE + _NOT_NOW):
            trouble = "cannot be reached" if isinstance(problem, _GONE) else "cannot do that now"
            return StoreUnavailable(f"PostgreSQL at {place(url)} {trouble}: {_line(problem)}")
    return None


@asynccontextmanager
async def speaking_dibs(url: str) -> AsyncIterator[None]:
    """Let no error of the driver out that has a name in dibs."""
    try:
        yield
    except Exception as problem:
        translated = translate(problem, url)
        if translated is None:
            raise
        raise translated from problem


def arguments(options: Options) -> dict[str, Any]:
    """What every connection is made with."""
    prepared: dict[str, Any] = {"statement_cache_size": 0} if options.pooler == "transaction" else {}
    return {
        "timeout": CONNECT_TIMEOUT,
        # JIT compilation costs more than any statement of dibs takes.
        "server_settings": {} if prepared else {"application_name": "dibs", "jit": "off"},
        **prepared,
    }


@asynccontextmanager
async def _connecting(url: str) -> AsyncIterator[None]:
    """As ``speaking_dibs``, while the driver and the server still have to make sense of the URL."""
    async with speaking_dibs(url):
        try:
            yield
        except (*_BAD_URL, OSError) as problem:
            misled = _misled(problem, url)
            if misled is None:
                raise
            raise misled from None


def _misled(problem: BaseException, url: str) -> ConfigurationError | None:
    """What is wrong with the URL, if that is why there is no connection."""
    if (refusal := failed_check(problem)) is not None:
        return untrusted(refusal, f"PostgreSQL at {place(url)}", "sslrootcert= in the URL")
    if isinstance(problem, OSError):
        named = ((name, file) for name, file in parse_qsl(urlsplit(url).query) if name in _FILES)
        for name, file in named:
            if not Path(file).is_file():
                return ConfigurationError(f"there is no file {file!r}: correct {name} in the postgresql:// URL")
        return None
    ours = ", ".join(Options.__struct_fields__)
    return ConfigurationError(f"bad postgresql:// URL: {_line(problem)} (the options of dibs are {ours})")


async def connect_pool(url: str, options: Options) -> Pool:
    """A pool of up to ``options.pool`` connections; the first is opened now."""
    pool = Pool(partial(connect, url, options), options.pool)
    async with pool.acquire():
        return pool


async def connect(url: str, options: Options) -> Any:
    """One connection of its own."""
    async with _connecting(url):
        connection = await asyncpg.connect(url, **arguments(options))
        await wire.teach(connection)
    return connection


async def connect_listener(url: str, options: Options, channels: Iterable[str], heard: Callable[..., None]) -> Any:
    """A connection that listens on these channels."""
    connection = await connect(url, options)
    async with speaking_dibs(url):
        try:
            for channel in channels:
                await connection.add_listener(channel, heard)
        except BaseException:  # a wait may be cancelled at any moment
            connection.terminate()
            raise
    return connection
