"""Connections that calls take turns with: few, used again, and never one of which nobody knows what it is doing."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import asyncpg
import pytest

from dibs.stores.postgres.connection import connect
from dibs.stores.postgres.options import Options
from dibs.stores.postgres.pool import Pool
from tests.conftest import DatabaseFactory
from tests.unit.postgres import NEWEST, connected, needs_postgres, until

pytestmark = needs_postgres

WHO = "select pg_backend_pid()"
WAITS = "select pg_advisory_lock(1)"


@pytest.fixture
def url(postgres_database: DatabaseFactory) -> str:
    return postgres_database(NEWEST)


@pytest.fixture
async def pool(url: str) -> AsyncIterator[Pool]:
    pool = of(url, 2)
    yield pool
    await pool.close()


@pytest.fixture
async def lock(url: str) -> AsyncIterator[Any]:
    """A connection that holds what ``WAITS`` waits for."""
    async with connected(url) as connection:
        await connection.execute(WAITS)
        yield connection


def of(url: str, size: int, **more: Any) -> Pool:
    return Pool(partial(connect, url, Options()), size, **more)


async def who(pool: Pool) -> int:
    [[pid]] = await pool.fetch(WHO)
    return int(pid)


async def backends(lock: Any) -> set[int]:
    """The connections of this database, but for the one that asks."""
    rows = await lock.fetch(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        " and backend_type = 'client backend'"
    )
    return {row[0] for row in rows}


async def waiting(lock: Any) -> int:
    found = await lock.fetchval("select count(*) from pg_stat_activity where wait_event = 'advisory'")
    return int(found)


async def test_one_after_another_calls_use_one_connection(pool: Pool) -> None:
    assert len({await who(pool) for _ in range(5)}) == 1


async def test_calls_at_once_have_a_connection_each_and_the_next_waits_for_its_turn(pool: Pool, lock: Any) -> None:
    busy = [asyncio.create_task(pool.fetch(WAITS)) for _ in range(2)]
    await until(lambda: _is(waiting(lock), 2))
    third = asyncio.create_task(who(pool))
    assert len(await backends(lock)) == 2
    await lock.execute("select pg_advisory_unlock(1)")
    pid = await third
    assert pid in await backends(lock), "it took one that had become free"
    assert len(await backends(lock)) == 2
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_a_refused_statement_costs_no_connection(pool: Pool) -> None:
    before = await who(pool)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await pool.fetch("select 1 / 0")
    assert await who(pool) == before


async def test_a_connection_whose_transaction_was_left_open_is_not_used_again(pool: Pool, lock: Any) -> None:
    async def leave_it_open() -> None:
        async with pool.acquire() as connection:
            await connection.execute("begin")
            await connection.execute("select 1 / 0")

    before = await who(pool)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await leave_it_open()
    assert await who(pool) != before
    await until(lambda: _is(_has(lock, before), False))


async def test_a_call_that_was_given_up_takes_its_connection_with_it(pool: Pool, lock: Any) -> None:
    before = await who(pool)
    call = asyncio.create_task(pool.fetch(WAITS))
    await until(lambda: _is(waiting(lock), 1))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await who(pool) != before


async def test_a_connection_that_the_server_ended_is_replaced(pool: Pool, lock: Any) -> None:
    before = await who(pool)
    await lock.execute("select pg_terminate_backend($1)", before)
    await until(lambda: _is(_has(lock, before), False))
    after = await _who_in_the_end(pool)
    assert after != before


async def test_closing_waits_for_the_calls_under_way_and_ends_every_connection(url: str, lock: Any) -> None:
    pool = of(url, 2)
    call = asyncio.create_task(pool.fetch(WAITS))
    await until(lambda: _is(waiting(lock), 1))
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    late = asyncio.create_task(who(pool))
    assert not closing.done()
    await lock.execute("select pg_advisory_unlock(1)")
    assert len(await call) == 1
    await closing
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await late
    await until(lambda: _is(backends(lock), set()))


async def test_a_connection_that_nobody_needed_for_long_is_closed_but_for_the_last(url: str, lock: Any) -> None:
    pool = of(url, 3, idle=0)
    async with pool.acquire(), pool.acquire(), pool.acquire():
        assert len(await backends(lock)) == 3
    last = await who(pool)
    await until(lambda: _is(backends(lock), {last}))
    await pool.close()


async def _is(asked: Any, wanted: object) -> bool:
    return bool(await asked == wanted)


async def _has(lock: Any, pid: int) -> bool:
    return pid in await backends(lock)


async def _who_in_the_end(pool: Pool) -> int:
    """The first call may still meet the news that its connection has ended."""
    try:
        return await who(pool)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        return await who(pool)
