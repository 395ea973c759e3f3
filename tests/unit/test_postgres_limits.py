"""Keys, limits and cancels in PostgreSQL: what only its tables, its functions and its locks can get wrong."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from dibs.job import Enqueued, Filter, NewJob, OnConflict
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.transaction import enqueue_in_async
from tests.conftest import DatabaseFactory
from tests.unit.postgres import LEASE, MANY, NEWEST, connected, in_lab, needs_postgres, opened, until

pytestmark = needs_postgres

SECOND = timedelta(seconds=1)
READ = "select idx_tup_fetch from pg_stat_xact_user_tables where relname = 'job'"
"""How many jobs the transaction has looked at."""
QUEUE, KEYS = Scope(queue="default"), Scope(queue="default", each_key=True)


@pytest.fixture
def url(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


# --- keys -----------------------------------------------------------------------------------------


async def test_sql_replaces_and_debounces_and_says_so(url: str) -> None:
    async with connected(url) as sql:
        [id_, *_] = await sql.fetchrow("select * from dibs.enqueue('a', key => 'k', unique_for => '1 hour')")
        later = "select * from dibs.enqueue('b', key => 'k', on_conflict => 'debounce', run_at => '2030-01-01Z')"
        assert tuple(await sql.fetchrow(later)) == (id_, False, True)
        many = '[{"task": "c", "key": "k", "on_conflict": "replace", "limit_key": "t", "unique_for": "2 days"}]'
        assert tuple(await sql.fetchrow("select * from dibs.enqueue_many($1)", many)) == (id_, False, True)
        assert await sql.fetchval("select unique_until - created_at from dibs.get($1)", id_) == 2 * timedelta(days=1)
        assert await sql.fetchval("select count(*) from dibs.key_window") == 1


async def test_a_window_is_as_long_in_every_time_zone(url: str) -> None:
    async with connected(url, server_settings={"timezone": "Europe/Berlin"}) as sql:
        spring = "select timestamptz ''2026-03-28 12:00+00''"
        await sql.execute(f"create or replace function dibs.clock() returns timestamptz language sql as '{spring}'")
        [id_] = await sql.fetchrow("select id from dibs.enqueue('a', key => 'k', unique_for => '1 day')")
        until_ = await sql.fetchval("select unique_until - created_at = interval '24 hours' from dibs.get($1)", id_)
    assert until_, "that day had 23 hours"


async def test_windows_that_are_over_are_forgotten(url: str) -> None:
    async with in_lab(url) as (lab, store), connected(url) as sql:
        await store.enqueue([NewJob(task="t", key="k", unique_for=SECOND)])
        await lab.advance(1)
        await sql.execute("select dibs.prune()")
        assert await sql.fetchval("select count(*) from dibs.key_window") == 0


async def test_a_deleted_job_that_comes_again_under_its_id_has_no_window_but_its_own(url: str) -> None:
    async with opened(url) as store:
        first = NewJob(task="t", key="k", unique_for=SECOND * 60)
        await store.enqueue([first])
        await store.delete(Filter(ids=(first.id,)))
        again = NewJob(task="t", key="other", id=first.id)
        free = NewJob(task="t", key="k")
        assert await store.enqueue([again, free]) == [Enqueued(first.id, True), Enqueued(free.id, True)]
        await store.delete(Filter(everything=True))
        assert await store.enqueue([first]) == [Enqueued(first.id, True)]
        assert await store.enqueue([NewJob(task="t", key="k")]) == [Enqueued(first.id, False)]


async def test_a_transaction_of_the_caller_takes_all_of_it(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        first = NewJob(task="a", key="k")
        await store.enqueue([first])
        second = NewJob(task="b", key="k", on_conflict=OnConflict.REPLACE, limit_key="t", unique_for=SECOND * 1.5)
        async with sql.transaction():
            assert await enqueue_in_async(sql, [second]) == [Enqueued(first.id, False, True)]
        job = await store.get(first.id)
    assert job is not None and job.unique_until is not None
    assert (job.task, job.limit_key, job.unique_until - job.created_at) == ("b", "t", SECOND * 1.5)


@pytest.mark.parametrize(
    "wrong",
    [
        "on_conflict => 'replace'",
        "key => 'k', on_conflict => 'other'",
        "key => 'k', max_delay => '1 s'",
        "key => 'k', unique_for => '0 s'",
        "unique_for => '1 s'",
        "limit_key => ' '",
        "run_at => '2030-01-02Z', expires_at => '2030-01-01Z'",
    ],
)
async def test_sql_refuses_what_python_refuses(url: str, wrong: str) -> None:
    async with connected(url) as sql:
        with pytest.raises(asyncpg.CheckViolationError):
            await sql.execute(f"select dibs.enqueue('t', {wrong})")


# --- limits ---------------------------------------------------------------------------------------


async def test_sql_sets_limits_and_shows_them(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await sql.execute("select dibs.limit(queue => 'default', concurrency => 3)")
        await sql.execute("select dibs.limit(task => 't', starts => 5, per => '1 minute', rank => 2)")
        assert [(use.scope, use.limit) for use in await store.limits()] == [
            (QUEUE, Limit(concurrency=3)),
            (Scope(task="t"), Limit(rate=Rate(5, SECOND * 60))),
        ]
        await sql.execute("select dibs.limit(queue => 'default')")
        assert await sql.fetchval("select array_agg(task) from dibs.limits()") == ["t"]
        for wrong in ("", "queue => 'q', task => 't'", "task => 't', each_key => true", "queue => 'q', starts => 1"):
            with pytest.raises(asyncpg.CheckViolationError):
                await sql.execute(f"select dibs.limit({wrong})")


async def test_a_claim_that_has_not_committed_counts_for_a_limit_that_comes_after_it(url: str) -> None:
    async with opened(url) as store, connected(url) as claimer, connected(url) as sql:
        await store.enqueue([NewJob(task="t") for _ in range(3)])
        transaction = claimer.transaction()
        await transaction.start()
        await claimer.execute("select dibs.claim('default', 'w', 2)")
        setting = asyncio.ensure_future(store.limit(QUEUE, Limit(concurrency=2)))
        waits = "select exists (select from pg_locks where relation = 'dibs.gate'::regclass and not granted)"
        await until(lambda: sql.fetchval(waits))
        await transaction.commit()
        await setting
        assert await store.claim("default", "v", 1, LEASE) == []


async def test_a_heartbeat_that_comes_late_does_not_get_a_slot_back(url: str) -> None:
    """It waits for the claim that found its lease expired and gave its slot away."""
    async with in_lab(url) as (lab, store), connected(url) as sql:
        await store.limit(QUEUE, Limit(concurrency=1))
        await store.enqueue([NewJob(task="t"), NewJob(task="u")])
        [claim] = await store.claim("default", "w", 1, LEASE)
        await lab.advance(LEASE.total_seconds())
        async with sql.transaction():
            [taken] = await sql.fetch("select id from dibs.claim('default', 'v', 1, tasks => '{u}')")
            beat = asyncio.ensure_future(store.heartbeat("w", [claim], LEASE))
            await asyncio.wait([beat], timeout=0.05)
        assert taken[0] != claim.id
        await beat
        assert [use.running for use in await store.limits()] == [1]


async def test_slots_and_buckets_of_keys_do_not_pile_up(url: str) -> None:
    async with in_lab(url) as (lab, store), connected(url) as sql:
        await store.limit(KEYS, Limit(concurrency=5, rate=Rate(5, SECOND)))
        await store.enqueue([NewJob(task="t", limit_key=f"k{n}") for n in range(20)])
        claims = await store.claim("default", "w", 20, LEASE)
        await store.settle([claim.settled(Succeeded()) for claim in claims[:19]])
        await lab.advance(1)
        await sql.execute("select dibs.prune()")
        assert [await sql.fetchval(f"select count(*) from dibs.{table}") for table in ("slot", "bucket")] == [1, 1]
        await store.limit(KEYS, None)
        assert [await sql.fetchval(f"select count(*) from dibs.{table}") for table in ("slot", "bucket")] == [0, 0]


async def test_a_claim_writes_few_rows_of_slots_and_what_has_ended_is_taken_out_of_them(url: str) -> None:
    entries = """
        select slot.name, one.key, count(*)::integer from dibs.slot
        cross join lateral unnest(slot.keys, slot.jobs) as one (key, job) group by 1, 2 order by 1, 2
    """
    buckets = "select name, key, slots from dibs.bucket order by name, key"
    async with opened(url) as store, connected(url) as sql:
        await store.limit(KEYS, Limit(concurrency=2))
        keys = [f"k{number:02}" for number in range(20)]
        await store.enqueue([NewJob(task="t", limit_key=key) for key in keys * 2])
        claims = await store.claim("default", "w", 100, LEASE)
        assert len(claims) == 40
        assert await sql.fetchval("select count(*) from dibs.slot") <= 8
        assert await sql.fetch(entries) == await sql.fetch(buckets) == [("default", key, 2) for key in keys]
        await store.settle([claim.settled(Succeeded()) for claim in claims[:20]])
        await store.enqueue([NewJob(task="t", limit_key=key) for key in keys * 3])
        again = await store.claim("default", "w", 100, LEASE)
        assert len(again) == 20, "one of each key has ended"
        assert await sql.fetch(entries) == await sql.fetch(buckets) == [("default", key, 2) for key in keys]
        assert await store.claim("default", "w", 100, LEASE) == []


async def test_held_back_jobs_in_front_are_not_walked_by_every_claim(url: str) -> None:
    claim = "select * from dibs.claim('default', 'w', 1, '60 s', null, $1, $2, $3, now() + interval '1 hour')"
    async with connected(url) as sql, opened(url) as store:
        await store.limit(Scope(task="t"), Limit(concurrency=0))
        await sql.execute(MANY, timedelta(seconds=-5), 0, 3_000)
        await store.enqueue([NewJob(task="free") for _ in range(2)])
        async with sql.transaction():
            first = await sql.fetchrow(claim, [], [], [])
            walked = await sql.fetchval(READ)
            second = await sql.fetchrow(claim, [0], [first["run_at"]], [first["id"]])
            assert (first["task"], second["task"]) == ("free", "free")
            assert walked > 3_000 > 5 * (await sql.fetchval(READ) - walked)


async def test_running_jobs_in_front_are_not_walked_where_no_limit_has_held_anything_back(url: str) -> None:
    places = "'1 hour', null, '{0}', array[$1::timestamptz], array[$2::uuid], 'infinity'"
    blind = f"select id from dibs.claim('default', 'w', 1, {places})"
    knowing = f"select id from dibs.claim('default', 'w', 1, {places}, true, $3::timestamptz)"
    async with opened(url) as store, connected(url) as sql:
        await store.limit(KEYS, Limit(concurrency=10_000))
        await store.enqueue([NewJob(task="t", limit_key="a") for _ in range(3_010)])
        claim = "select run_at, id, locked_until - interval '1 hour' from dibs.claim('default', 'w', 3000, '1 hour')"
        run_at, id_, looked_at = (await sql.fetch(claim))[-1]
        async with sql.transaction():
            before = await sql.fetchval(READ)
            assert await sql.fetchval(blind, run_at, id_)
            walked = await sql.fetchval(READ) - before
            assert await sql.fetchval(knowing, run_at, id_, looked_at)
            assert walked > 3_000 > 5 * (await sql.fetchval(READ) - before - walked)


async def test_a_job_that_was_held_back_is_first_when_there_is_room_again(url: str) -> None:
    """Also for a handle that has claimed others behind it meanwhile, and has not looked from the beginning since."""
    async with opened(url) as store, opened(url) as other:
        await store.limit(KEYS, Limit(concurrency=1))
        jobs = [NewJob(task="t", limit_key=key) for key in ("a", "b", "c", "d", "e")]
        await store.enqueue(jobs)
        [first] = await store.claim("default", "w", 1, LEASE)
        early = NewJob(task="t", limit_key="a", run_at=first.run_at - SECOND)
        await other.enqueue([early])
        [second] = await other.claim("default", "v", 1, LEASE)
        assert (first.id, second.id) == (jobs[0].id, jobs[1].id), "the early one has no room"
        assert [claim.id for claim in await store.claim("default", "w", 1, LEASE)] == [jobs[2].id]
        await other.settle([first.settled(Succeeded())])
        assert [claim.id for claim in await store.claim("default", "w", 1, LEASE)] == [early.id]
        assert [claim.id for claim in await store.claim("default", "w", 9, LEASE)] == [jobs[3].id, jobs[4].id]


# --- cancels --------------------------------------------------------------------------------------


async def test_a_claim_that_finds_too_few_behind_a_held_back_front_ends(url: str) -> None:
    """The look goes from the front to the caller's place, and comes back for what lies between: once."""
    async with opened(url) as store, connected(url) as sql:
        await store.limit(Scope(task="scarce"), Limit(concurrency=1))
        front = [NewJob(task="scarce") for _ in range(150)]
        behind = [NewJob(task="plenty") for _ in range(2)]
        await store.enqueue([*front, *behind])
        assert await sql.fetchval("select id from dibs.claim('default', 'w')") == front[0].id
        await sql.execute("set statement_timeout = '20s'")
        due = await sql.fetchval("select run_at from dibs.get($1)", front[-1].id)
        claimed = await sql.fetch(
            "select id from dibs.claim('default', 'w', 5, after_priority => '{0}', "
            "after_run_at => array[$1::timestamptz], after_id => array[$2::uuid], after_until => 'infinity')",
            due,
            front[-1].id,
        )
        assert [row["id"] for row in claimed] == [job.id for job in behind]


async def test_a_listener_in_any_language_hears_whose_claim_is_to_end(url: str) -> None:
    heard: list[object] = []
    async with connected(url) as sql, opened(url) as store:
        await sql.add_listener("dibs_asked", lambda *given: heard.append(given[-1]))
        await store.enqueue([NewJob(task="t"), NewJob(task="t")])
        await store.claim("default", "ann", 1, LEASE)
        await sql.execute("select dibs.cancel('{\"everything\": true}')")
        await sql.execute("select 1")
    assert heard == ["ann"]
