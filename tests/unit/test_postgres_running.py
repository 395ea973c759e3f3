"""How PostgreSQL finds the jobs that run: by what claims wrote down, however many jobs wait."""

import json
from datetime import timedelta
from typing import Any

import pytest

from dibs.job import Filter, State
from dibs.outcome import Succeeded
from dibs.scope import Limit, Scope
from dibs.stores.postgres import PostgresStore
from dibs.stores.postgres import store as store_module
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.unit.postgres import LEASE, MANY, connected, in_lab, jobs, needs_postgres, opened

pytestmark = needs_postgres

BACKLOG = 3_000


@pytest.fixture(params=POSTGRES_LABELS)
def url(request: pytest.FixtureRequest, migrated_database: DatabaseFactory) -> str:
    """A database with the schema, on each version."""
    return migrated_database(request.param)


async def running(store: PostgresStore) -> set[Any]:
    """The running jobs, as find and workers agree on them."""
    found = {job.id for job in (await store.find(Filter(states=(State.RUNNING,)), limit=1_000)).jobs}
    assert sum(worker.running for worker in await store.workers()) == len(found)
    return found


async def whole_reads(sql: Any, statement: str) -> int:
    """How often the statement read the table of jobs from one end to the other, as its own transaction counts."""
    async with sql.transaction():
        count = "select seq_scan from pg_stat_xact_user_tables where relid = 'dibs.job'::regclass"
        before = await sql.fetchval(count)
        await sql.execute(statement)
        read: int = await sql.fetchval(count) - before
        return read


async def pages(sql: Any, statement: str) -> int:
    """How many pages the statement looks at."""
    [plan] = json.loads(await sql.fetchval(f"explain (analyze, buffers, format json) {statement}"))
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


# --- whatever the backlog ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "select dibs.sweep()",
        "select * from dibs.workers()",
        """select * from dibs.find('{"states": ["running"]}')""",
        """select * from dibs.find('{"states": ["running"], "workers": ["w"]}')""",
        "select dibs.limit(queue => 'other', concurrency => 5)",
        "select * from dibs.limits()",
        "select dibs.prune()",
    ],
    ids=["sweep", "workers", "find", "of a worker", "limit", "limits", "prune"],
)
async def test_what_runs_is_found_without_reading_what_waits(url: str, statement: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await sql.execute(MANY, timedelta(0), 0, BACKLOG)
        await sql.execute("analyze dibs.job")
        assert len(await store.claim("default", "w", 3, LEASE)) == 3
        assert await whole_reads(sql, "select count(*) from dibs.job") == 1, "it would be seen"
        assert await whole_reads(sql, statement) == 0


async def test_a_limit_counts_what_ran_before_it_was_set(url: str) -> None:
    async with opened(url) as store:
        await store.enqueue(jobs(5))
        assert len(await store.claim("default", "w", 2, LEASE)) == 2
        await store.sweep()
        await store.limit(Scope(queue="default"), Limit(concurrency=3))
        assert len(await store.claim("default", "w", 5, LEASE)) == 1


# --- whoever ends, sweeps and begins meanwhile -------------------------------------------------------------------


async def test_sweeps_keep_what_runs_and_drop_what_has_ended(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await store.enqueue(jobs(500))
        claims = [claim for _ in range(10) for claim in await store.claim("default", "w", 30, LEASE)]
        left = claims[::3]
        await store.settle([claim.settled(Succeeded()) for claim in claims if claim not in left])
        for _ in range(3):
            assert await store.sweep() == 0
            assert await running(store) == {claim.id for claim in left}
            assert set(await sql.fetchval("select dibs.maybe_running()")) == {claim.id for claim in left}
        await store.settle([claim.settled(Succeeded()) for claim in left])
        await store.sweep()
        assert await sql.fetchval("select count(*) from dibs.taken") == 0
        assert await running(store) == set()


@pytest.mark.parametrize("way", ["single", "two-phase"])
async def test_who_claims_very_many_sweeps_now_and_then(url: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SWEEP_AFTER", 100)
    async with connected(url) as sql, opened(url, f"claim={way}") as store:
        await store.enqueue(jobs(500))
        first = await store.claim("default", "w", 10, LEASE)
        longest = 0
        for _ in range(20):
            claims = await store.claim("default", "w", 20, LEASE)
            await store.settle([claim.settled(Succeeded()) for claim in claims])
            longest = max(longest, len(await sql.fetchval("select dibs.maybe_running()")))
        assert 100 < longest < 200
        assert await running(store) == {claim.id for claim in first}


async def test_a_claim_that_commits_after_a_sweep_is_found(url: str) -> None:
    async with connected(url) as sql, connected(url) as other, opened(url) as store:
        await store.enqueue(jobs(3))
        async with sql.transaction():
            slow = await sql.fetchval("select id from dibs.claim('default', 'slow')")
            quick = await other.fetchval("select id from dibs.claim('default', 'quick')")
            assert await store.sweep() == 0
            assert await store.sweep() == 0
            assert await running(store) == {quick}
        assert await running(store) == {slow, quick}
        assert await store.sweep() == 0
        assert await running(store) == {slow, quick}


async def test_a_transaction_may_sweep_and_then_claim(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await store.enqueue(jobs(3))
        first = await sql.fetchval("select id from dibs.claim('default', 'w')")
        async with sql.transaction():
            await sql.execute("select dibs.sweep()")
            second = await sql.fetchval("select id from dibs.claim('default', 'w')")
            await sql.execute("select dibs.sweep()")
            third = await sql.fetchval("select id from dibs.claim('default', 'w')")
        assert await running(store) == {first, second, third}
        assert await store.sweep() == 0
        assert await running(store) == {first, second, third}


async def test_a_sweep_that_is_rolled_back_has_forgotten_nothing(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await store.enqueue(jobs(1))
        [claim] = await store.claim("default", "w", 1, LEASE)
        change = sql.transaction()
        await change.start()
        await sql.execute("select dibs.sweep()")
        assert await store.sweep() == 0, "it passes over what another sweep looks at, and does not wait"
        await change.rollback()
        assert await running(store) == {claim.id}


async def test_leases_that_expired_are_found_by_any_later_sweep(migrated_database: DatabaseFactory) -> None:
    async with in_lab(migrated_database(POSTGRES_LABELS[-1])) as (lab, store):
        await store.enqueue(jobs(250))
        claims = await store.claim("default", "w", 250, LEASE)
        await store.sweep()
        await lab.advance(LEASE.total_seconds() + 1)
        assert [await store.sweep(100) for _ in range(4)] == [100, 100, 50, 0]
        assert len(await store.claim("default", "w", 1_000, LEASE)) == len(claims)


async def test_what_one_worker_has_swept_others_need_not_sweep(migrated_database: DatabaseFactory) -> None:
    spared = timedelta(seconds=2)
    async with in_lab(migrated_database(POSTGRES_LABELS[-1])) as (lab, store):
        await store.enqueue(jobs(2))
        for seconds in (1, 60):
            await store.claim("default", "w", 1, timedelta(seconds=seconds))
        assert await store.sweep(not_within=spared) == 0
        await lab.advance(1.5)
        assert await store.sweep(not_within=spared) == 0
        await lab.advance(0.5)
        assert await store.sweep(not_within=spared) == 1
        await lab.advance(10)
        assert await store.sweep(not_within=spared) == 0
        await lab.advance(-8)  # a clock that was set back
        assert len(await store.claim("default", "w", 1, timedelta(seconds=1))) == 1
        await lab.advance(1)
        assert await store.sweep(not_within=spared) == 1


async def test_where_nothing_runs_a_sweep_writes_nothing(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await store.enqueue(jobs(1))
        await store.sweep()
        before = await sql.fetchval("select xmin::text from dibs.swept")
        await store.sweep()
        assert await sql.fetchval("select xmin::text from dibs.swept") == before


# --- old snapshots and new servers -------------------------------------------------------------------------------


async def test_an_old_snapshot_does_not_make_it_read_what_was_swept(url: str) -> None:
    async with connected(url) as sql, connected(url) as old, opened(url) as store:
        await store.enqueue(jobs(401))
        async with old.transaction(isolation="repeatable_read"):
            await old.execute("select count(*) from dibs.taken")
            for _ in range(400):
                [claim] = await store.claim("default", "w", 1, LEASE)
                await store.settle([claim.settled(Succeeded())])
            assert await pages(sql, "select dibs.maybe_running()") > 100
            await store.sweep()
            [claim] = await store.claim("default", "w", 1, LEASE)
            assert await pages(sql, "select dibs.maybe_running()") < 20
            assert await running(store) == {claim.id}


async def test_a_database_restored_on_a_server_that_counts_from_the_beginning_finds_all(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await store.enqueue(jobs(2))
        await store.claim("default", "w", 1, LEASE)
        far = "99999999990:99999999999:99999999990"
        await sql.execute("update dibs.swept set seen = $1::text::pg_snapshot, sweeper = '99999999998'", far)
        await store.claim("default", "w", 1, LEASE)
        assert len(await running(store)) == 2
        assert await store.sweep() == 0
        assert len(await running(store)) == 2
        assert await sql.fetchval("select pg_snapshot_xmax(seen) < '99999999990'::xid8 from dibs.swept")


async def test_whoever_empties_all_tables_has_not_ended_the_sweeps(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await sql.execute("truncate dibs.job, dibs.taken, dibs.swept")
        await store.enqueue(jobs(1))
        [claim] = await store.claim("default", "w", 1, LEASE)
        for _ in range(2):
            assert await running(store) == {claim.id}
            assert await store.sweep() == 0
        assert await sql.fetchval("select pg_snapshot_xmax(seen) > '1'::xid8 from dibs.swept")
