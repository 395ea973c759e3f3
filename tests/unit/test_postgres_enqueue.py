"""Enqueue calls of one process at the same time: few transactions, and each call has an answer of its own."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from secrets import token_hex

import asyncpg
import pytest

from dibs import open_store
from dibs.ending import end
from dibs.ids import derived_id
from dibs.job import Enqueued, NewJob
from dibs.stores.postgres.enqueueing import AT_ONCE
from dibs.stores.postgres.store import CLAIMS_AT_ONCE
from dibs.transaction import enqueue_in_async
from tests.conftest import DatabaseFactory
from tests.unit.postgres import LEASE, NEWEST, connected, jobs, needs_postgres, opened, until

pytestmark = needs_postgres

STUCK = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
REFUSING = """
create function public.no() returns trigger language plpgsql
as $$ begin if new.task = 'bad' then raise 'no'; end if; return new; end $$;
create trigger no before insert on dibs.job for each row execute function public.no();
"""
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


async def test_jobs_that_come_at_the_same_time_share_transactions(url: str) -> None:
    async with opened(url) as store, connected(url) as sql:
        given = [*jobs(50), *jobs(50, queue="other", priority=5)]
        answers = await asyncio.gather(*(store.enqueue([job]) for job in given))
        assert [(answer.id, answer.created) for [answer] in answers] == [(job.id, True) for job in given]
        stored = await sql.fetch("select id, queue, priority, xmin::text from dibs.job")
        assert {row[:3] for row in stored} == {(job.id, job.queue, job.priority) for job in given}
        assert len({row["xmin"] for row in stored}) <= 2 * AT_ONCE


async def test_a_job_that_many_bring_at_the_same_time_is_created_once(url: str) -> None:
    async with opened(url) as store:
        [job, *others] = jobs(10)
        answers = await asyncio.gather(*(store.enqueue([each]) for each in [*others, *[job] * 20]))
        assert [answer.id for [answer] in answers[9:]] == [job.id] * 20
        assert sum(answer.created for [answer] in answers[9:]) == 1
        assert all(answer.created for [answer] in answers[:9])


async def test_a_job_that_waits_for_somebody_s_transaction_holds_up_no_other(url: str) -> None:
    async with opened(url) as store, connected(url) as holder, connected(url) as sql:
        transaction = holder.transaction()
        await transaction.start()
        await enqueue_in_async(holder, [NewJob(task="t", key="k")])
        waiting = asyncio.ensure_future(store.enqueue([NewJob(task="t", key="k")]))
        await until(lambda: sql.fetchval(f"select count(*) = 1 {STUCK}"))
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(store.enqueue([job]) for job in jobs(30)))
        assert all(answer.created for [answer] in answers)
        await transaction.rollback()
        assert [answer.created for answer in await waiting] == [True]


async def test_calls_that_were_given_up_keep_nobody_waiting(url: str) -> None:
    async with opened(url) as store, connected(url) as holder, connected(url) as sql:

        async def calls(job: NewJob, count: int, stuck: int) -> list[asyncio.Task[list[Enqueued]]]:
            begun = [asyncio.create_task(store.enqueue([job])) for _ in range(count)]
            await until(lambda: sql.fetchval(f"select count(*) >= {stuck} {STUCK}"))
            return begun

        async with holder.transaction():
            stuck = 0  # the server goes on with what nobody waits for
            for _ in range(AT_ONCE):
                [job] = jobs(1)
                await enqueue_in_async(holder, [job])
                alone = await calls(job, AT_ONCE, stuck + AT_ONCE)
                together = [asyncio.create_task(store.enqueue([job])) for _ in range(3)]
                await end(alone)
                await calls(job, 0, stuck := stuck + AT_ONCE + 1)
                await end(together)
            async with asyncio.timeout(20):
                assert [answer.created for answer in await store.enqueue(jobs(1))] == [True]


async def test_a_job_that_the_database_refuses_is_refused_alone(url: str) -> None:
    async with opened(url) as store, connected(url) as sql:
        await sql.execute(REFUSING)
        given = [*jobs(10), NewJob(task="bad"), *jobs(10)]
        answers = await asyncio.gather(*(store.enqueue([job]) for job in given), return_exceptions=True)
        assert [type(answer) for answer in answers if not isinstance(answer, list)] == [asyncpg.RaiseError]
        assert await sql.fetchval("select count(*) from dibs.job") == 20


ALONE: dict[str, Callable[[], NewJob]] = {
    "long arguments": lambda: NewJob(task="t", args={"text": "x" * 10_000}),
    "long meta": lambda: NewJob(task="t", meta={"text": "x" * 10_000}),
    "a key": lambda: NewJob(task="t", key=token_hex(8)),
    "an id that was made before": lambda: NewJob(task="t", id=derived_id(LONG_AGO, token_hex(8))),
    "a time to live": lambda: NewJob(task="t", expires_at=datetime.now(UTC) + LEASE),
    "a limit key": lambda: NewJob(task="t", limit_key="k"),
}


@pytest.mark.parametrize("what", ALONE)
async def test_jobs_that_others_might_have_to_wait_for_are_stored_alone(url: str, what: str) -> None:
    async with opened(url) as store, connected(url) as sql:
        await asyncio.gather(*(store.enqueue([ALONE[what]()]) for _ in range(20)))
        assert await sql.fetchval("select count(distinct xmin::text) from dibs.job") == 20


async def test_a_store_that_was_closed_can_be_used_on_another_loop(url: str) -> None:
    store = open_store(url)

    async def use() -> None:
        given = jobs(30)
        await asyncio.gather(*(store.enqueue([job]) for job in given))
        await asyncio.gather(*(store.wait(["default"], LEASE) for _ in range(3)))
        found = await asyncio.gather(*(store.claim("default", f"w{n}", 1, LEASE) for n in range(30)))
        assert {claim.id for claims in found for claim in claims} == {job.id for job in given}
        await store.close()

    for _ in range(2):
        await asyncio.to_thread(asyncio.run, use())


async def test_claims_leave_connections_for_other_calls(url: str) -> None:
    async with opened(url, f"pool={CLAIMS_AT_ONCE + 1}") as store, connected(url) as sql:
        await store.enqueue(jobs(30))
        async with sql.transaction(), asyncio.timeout(20):
            await sql.execute("lock table dibs.gate")
            claims = [asyncio.ensure_future(store.claim("default", f"w{n}", 1, LEASE)) for n in range(30)]
            async with connected(url) as other:
                await until(lambda: other.fetchval(f"select count(*) = {CLAIMS_AT_ONCE} {STUCK}"))
                await store.counts()
                assert await other.fetchval(f"select count(*) {STUCK}") == CLAIMS_AT_ONCE
        taken = [claim.id for found in await asyncio.gather(*claims) for claim in found]
        assert len(set(taken)) == len(taken) == 30
