"""Enqueue calls of one process at the same time: few transactions, and each call has an answer of its own."""

import asyncio

import pytest

from dibs.job import NewJob
from dibs.stores.postgres.enqueueing import AT_ONCE
from dibs.stores.postgres.store import CLAIMS_AT_ONCE
from dibs.transaction import enqueue_in_async
from tests.conftest import DatabaseFactory
from tests.unit.postgres import LEASE, NEWEST, connected, jobs, migrated, needs_postgres, opened, until

pytestmark = needs_postgres

STUCK = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
async def url(postgres_database: DatabaseFactory) -> str:
    return await migrated(postgres_database(NEWEST))


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
