"""Two calls that want the same rows: one waits for the other, and never both."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from dibs.job import NewJob
from dibs.transaction import enqueue_in_async
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.unit.postgres import MANY, NEWEST, connected, in_lab, jobs, needs_postgres, opened, until

pytestmark = needs_postgres

# A deadlock is found at once: nobody has to wait a second to see a test fail.
QUICK = {"server_settings": {"deadlock_timeout": "10ms"}}

BULK = {
    "heartbeat": "select dibs.heartbeat('w', $1, $2)",
    "succeed": "select dibs.succeed($1, $2, 'w')",
    "fail": "select dibs.settle($1, $2, array_fill('w'::text, $3), array_fill('failed'::text, $3))",
    "release": "select dibs.settle($1, $2, array_fill('w'::text, $3), array_fill('released'::text, $3))",
    "cancel": "select dibs.cancel(json_build_object('ids', $1::uuid[])::jsonb)",
    "delete": "select dibs.delete(json_build_object('ids', $1::uuid[])::jsonb, force => true)",
}


@pytest.fixture
def url(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


async def until_stuck(sql: Any, pid: int, call: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """Return when the call waits for a lock, or has ended."""

    async def stuck() -> bool:
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
        return call.done() or bool(await sql.fetchval(waits, pid))

    await until(stuck)
    return call


async def begin(sql: Any, connection: Any, verb: str, rows: list[Any]) -> asyncio.Future[Any]:
    """Begin a call about these jobs, in this order."""
    given = [[row[0] for row in rows], [row[1] for row in rows], [len(rows)]]
    taken = max(n for n in (1, 2, 3) if f"${n}" in BULK[verb])
    call = asyncio.ensure_future(connection.execute(BULK[verb], *given[:taken]))
    return await until_stuck(sql, connection.get_server_pid(), call)


@pytest.mark.parametrize("first", BULK)
async def test_two_bulk_verbs_that_get_the_same_jobs_in_opposite_orders_do_not_deadlock(url: str, first: str) -> None:
    async with connected(url, **QUICK) as one, connected(url, **QUICK) as two, connected(url) as sql:
        for second in BULK:
            await sql.execute("delete from dibs.job; delete from dibs.finished")
            await sql.execute(MANY, timedelta(0), 0, 9)
            rows = await sql.fetch("select id, epoch from dibs.claim('default', 'w', 9) order by id")
            async with sql.transaction():
                # Whoever locks in the order of the arrays comes up to the job in the middle, each from its own end.
                await sql.execute("select from dibs.job where id = $1 for update", rows[4][0])
                calls = [await begin(sql, one, first, rows), await begin(sql, two, second, rows[::-1])]
            await asyncio.gather(*calls)


TEN = "select id from dibs.claim('default', $1, 10)"
PATIENT = "alter function dibs.await_turn(text) set lock_timeout = '30s'"


async def test_claims_of_many_jobs_take_turns(url: str) -> None:
    async with connected(url) as one, connected(url) as two, connected(url) as sql:
        await sql.execute(PATIENT)
        await sql.execute(MANY, timedelta(0), 0, 40)
        async with one.transaction():
            first = await one.fetch(TEN, "a")
            call = asyncio.ensure_future(two.fetch(TEN, "b"))
            await until_stuck(sql, two.get_server_pid(), call)
            assert not call.done()
        assert len({row[0] for row in (*first, *await call)}) == 20


async def test_who_keeps_its_turn_in_a_transaction_holds_up_others_for_a_moment_only(url: str) -> None:
    async with connected(url) as one, connected(url) as two, connected(url) as sql:
        await sql.execute(MANY, timedelta(0), 0, 40)
        async with one.transaction(), asyncio.timeout(20):
            first, second = await one.fetch(TEN, "a"), await two.fetch(TEN, "b")
        assert len({row[0] for row in (*first, *second)}) == 20


async def test_transactions_that_claim_from_two_queues_in_opposite_orders_both_go_on(url: str) -> None:
    async with connected(url, **QUICK) as one, connected(url, **QUICK) as two, connected(url) as sql:
        await sql.execute(MANY, timedelta(0), 0, 40)
        other = TEN.replace("default", "other")
        async with one.transaction(), two.transaction(), asyncio.timeout(20):
            await asyncio.gather(one.fetch(TEN, "a"), two.fetch(other, "b"))
            first, second = await asyncio.gather(one.fetch(other, "a"), two.fetch(TEN, "b"))
        assert (len(first), len(second)) == (0, 10)


@pytest.mark.parametrize(("queue", "most"), [("default", 9), ("other", 10)])
async def test_claims_of_few_jobs_and_of_other_queues_need_no_turn(url: str, queue: str, most: int) -> None:
    async with connected(url) as one, connected(url) as two, connected(url) as sql:
        await sql.execute(PATIENT)
        await sql.execute(MANY, timedelta(0), 0, 40)
        async with one.transaction(), asyncio.timeout(10):
            await one.fetch(TEN, "a")
            found = await two.fetch("select id from dibs.claim($1, 'b', $2)", queue, most)
        assert len(found) == (9 if queue == "default" else 0)


@pytest.mark.parametrize("by", ["key", "id"])
async def test_two_enqueues_of_the_same_jobs_in_opposite_orders_do_not_deadlock(url: str, by: str) -> None:
    given = [NewJob(task="t", key=f"k{n}" if by == "key" else None) for n in range(9)]
    again = [NewJob(task="t", key=job.key) for job in given] if by == "key" else given
    stuck = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with opened(url, "pool=2&deadlock_timeout=10ms") as store, connected(url) as holder, connected(url) as sql:
        transaction = holder.transaction()
        await transaction.start()
        await enqueue_in_async(holder, [given[4]])
        calls = [asyncio.ensure_future(store.enqueue(some)) for some in (given, again[::-1])]
        await until(lambda: sql.fetchval(f"select count(*) = 2 {stuck}"))
        await transaction.rollback()
        answers = await asyncio.gather(*calls)
        assert sum(one.created for answer in answers for one in answer) == 9
        assert [one.id for one in answers[0]] == [one.id for one in answers[1]][::-1]


@pytest.mark.parametrize("label", POSTGRES_LABELS)
async def test_many_bulk_verbs_and_sweeps_of_the_same_jobs_do_not_deadlock(
    migrated_database: DatabaseFactory, label: str
) -> None:
    url = migrated_database(label)
    async with in_lab(url) as (lab, store):
        await store.enqueue(jobs(200, max_attempts=1000))
        connections = [await asyncpg.connect(url) for _ in range(16)]
        for round_ in range(6):
            if round_ % 3 == 2:
                await lab.advance(61)
            else:
                await connections[0].execute("select dibs.claim('default', 'w', 200, '60 s')")
            rows = await connections[0].fetch("select id, epoch from dibs.job")
            await asyncio.gather(*(_disturb(one, n + round_, rows) for n, one in enumerate(connections)))
        pids = [one.get_server_pid() for one in connections]
        await asyncio.gather(*(one.close() for one in connections))
        async with connected(url) as sql:  # the numbers are complete once those who counted have gone
            gone = "select not exists (select from pg_stat_activity where pid = any ($1))"
            await until(lambda: sql.fetchval(gone, pids))
            assert await sql.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def _disturb(connection: Any, n: int, rows: list[Any]) -> None:
    ids, epochs = [row[0] for row in rows], [row[1] for row in rows]
    if n % 2:
        ids, epochs = ids[::-1], epochs[::-1]
    match n // 2 % 4:
        case 0:
            await connection.execute(BULK["heartbeat"], ids, epochs)
            await connection.execute(BULK["release"], ids, epochs, [len(ids)])
        case 1:
            await connection.execute(BULK["release"], ids, epochs, [len(ids)])
            await connection.execute("select dibs.claim('default', 'w', 50, '60 s')")
        case 2:
            await connection.execute("select dibs.sweep()")
            await connection.execute(BULK["heartbeat"], ids, epochs)
        case 3:
            await connection.execute("select dibs.reprioritise('{\"everything\": true}', $1)", n % 3)
            await connection.execute("select dibs.sweep(50)")
