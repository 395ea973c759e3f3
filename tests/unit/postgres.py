"""What the tests of the PostgreSQL store share."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from dibs.job import NewJob
from dibs.stores.postgres import PostgresStore
from dibs.stores.schema import open_schema
from dibs.testing.labs.postgres import PostgresLab
from tests.conftest import POSTGRES_LABELS

NEWEST = POSTGRES_LABELS[-1] if POSTGRES_LABELS else ""
LEASE = timedelta(seconds=60)

MANY = """
insert into dibs.job (id, run_at, created_at, priority, max_attempts, queue, task, args, meta)
select dibs.new_id(n), clock_timestamp() + $1::interval, clock_timestamp(), $2, 5, 'default', 't', '{}', '{}'
from generate_series(1, $3::integer) as n
"""
"""Puts jobs in by the thousand: when they are due from now, with which priority, how many."""

needs_postgres = pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")


async def migrated(url: str) -> str:
    """The URL, with the schema behind it."""
    await open_schema(url).up()
    return url


@asynccontextmanager
async def opened(url: str, options: str = "") -> AsyncIterator[PostgresStore]:
    store = PostgresStore(f"{url}?{options}" if options else url)
    try:
        await store.setup()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def in_lab(
    url: str, look_every: float = 1, claim: str = "single"
) -> AsyncIterator[tuple[PostgresLab, PostgresStore]]:
    """A store whose clock the test owns."""
    lab = PostgresLab(url, claim, look_every=look_every)
    await lab.start()
    try:
        store = await lab.open()
        assert isinstance(store, PostgresStore)
        yield lab, store
    finally:
        await lab.stop()


@asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, **settings)
    try:
        yield connection
    finally:
        connection.terminate()


async def until(condition: Callable[[], Awaitable[object]], seconds: float = 30.0) -> None:
    """Return when the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def jobs(count: int, **fields: Any) -> list[NewJob]:
    return [NewJob(task="t", args={"n": n}, **fields) for n in range(count)]


def as_role(url: str, role: str) -> str:
    """The same database, for another user."""
    return url.replace("postgres@", f"{role}@")
