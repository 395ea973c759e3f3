"""What is special about claiming in PostgreSQL: plans, places, locks, and the work that a claim costs."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from statistics import median
from typing import Any
from uuid import UUID

import pytest

from dibs.job import Claim, Filter, NewJob, Order
from dibs.outcome import Failed, Pulse, Released, Retry, Succeeded, Verdict
from dibs.stores.postgres import PostgresStore, places
from dibs.stores.postgres.places import Lookout
from dibs.testing.labs.postgres import PostgresLab
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresServer, choose, find_postgres
from tests.unit.postgres import LEASE, MANY, NEWEST, connected, in_lab, jobs, migrated, needs_postgres, opened

pytestmark = needs_postgres

SECOND = timedelta(seconds=1)


@pytest.fixture(params=POSTGRES_LABELS)
def url(request: pytest.FixtureRequest, migrated_database: DatabaseFactory) -> str:
    """A database with the schema, on each version."""
    return migrated_database(request.param)


@pytest.fixture
def newest(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


def numbers(claims: list[Claim]) -> list[int]:
    return [claim.args["n"] for claim in claims]


# --- never too many -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["single", "two-phase"])
@pytest.mark.parametrize("plans", ["force_generic_plan", "force_custom_plan"])
async def test_a_claim_never_takes_more_than_its_limit_whatever_the_planner_thinks(
    url: str, plans: str, way: str
) -> None:
    async with connected(url) as sql, opened(url, f"claim={way}&plan_cache_mode={plans}") as store:
        await sql.execute("alter table dibs.job set (autovacuum_enabled = off)")

        async def take(limit: int) -> int:
            return len(await store.claim("default", "w", limit, LEASE))

        await sql.execute("analyze dibs.job")  # the planner learns that it is empty
        assert await take(5) == 0
        await sql.execute(MANY, timedelta(0), 0, 1)
        assert [await take(5), await take(5)] == [1, 0]
        await sql.execute(MANY, timedelta(0), 0, 3_000)
        assert [await take(limit) for limit in (1, 7, 500, 1)] == [1, 7, 500, 1]
        await sql.execute("analyze dibs.job")  # and now that it is full
        await sql.execute("delete from dibs.job")
        await sql.execute(MANY, timedelta(0), 3, 10)
        assert [await take(limit) for limit in (1, 7, 500)] == [1, 7, 2]


async def test_concurrent_claims_stay_within_their_limits_and_share_nothing(url: str) -> None:
    async with connected(url) as sql, opened(url, "pool=16") as store:
        await sql.execute(MANY, timedelta(0), 0, 500)
        taken = await asyncio.gather(*(store.claim("default", f"w{n}", 7, LEASE) for n in range(64)))
    assert max(len(claims) for claims in taken) == 7
    ids = [claim.id for claims in taken for claim in claims]
    assert len(ids) == len(set(ids)) > 400


# --- the clock and the rows -----------------------------------------------------------------------


async def test_a_claim_in_a_long_transaction_uses_the_time_of_the_call(url: str) -> None:
    async with connected(url) as sql, opened(url) as store, sql.transaction():
        began = await sql.fetchval("select now()")
        job = NewJob(task="t")
        await store.enqueue([job])  # due after the transaction began
        [claim] = await sql.fetch("select * from dibs.claim('default', 'w', lease => '1 minute')")
        assert claim["id"] == job.id
        assert claim["locked_until"] - timedelta(minutes=1) > claim["run_at"] > began


@pytest.fixture(params=choose(find_postgres()), ids=lambda one: one.label)
async def alone(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A database on a server that nobody else uses, and that does nothing by itself.

    A row's older versions go when nobody can need them. What a transaction in another database or an autovacuum may
    need the server only estimates, and keeps too much.
    """
    with PostgresServer(request.param, autovacuum="off") as server:
        yield await migrated(server.create_database("alone"))


async def test_claims_and_heartbeats_are_hot_updates(alone: str) -> None:
    claim = "select dibs.claim('default', 'w{n}', max_jobs => 20)"
    beat = "select dibs.heartbeat('w{n}', array_agg(id), array_agg(epoch)) from dibs.job where worker = 'w{n}'"
    # A report that makes the row much longer may find no room in the page, and is a plain update then.
    report = '{{"progress": 0.5}}'
    tell = beat.replace("array_agg(epoch)", f"array_agg(epoch), reports => array_agg('{report}'::jsonb)")
    async with connected(alone) as sql:
        await sql.execute(MANY, timedelta(0), 0, 400)
        claimed = [await _hot(sql, claim.format(n=n)) for n in range(20)]
        beaten = [await _hot(sql, beat.format(n=n)) for n in (*range(20), *range(20))]
        told = [await _hot(sql, tell.format(n=n)) for n in (*range(20), *range(20))]
    assert sum(count for count, _ in claimed) == 400
    assert sum(hot for _, hot in claimed) >= 0.95 * 400
    assert sum(count for count, _ in beaten) == 800
    assert sum(hot for _, hot in beaten) >= 0.95 * 800
    assert sum(count for count, _ in told) == 800
    assert sum(hot for _, hot in told) >= 0.95 * 800


async def _hot(sql: Any, statement: str) -> tuple[int, int]:
    """How many rows of dibs.job a statement updates, and how many of them without touching an index."""
    job = "'dibs.job'::regclass"
    read = f"select pg_stat_get_xact_tuples_updated({job}), pg_stat_get_xact_tuples_hot_updated({job})"
    async with sql.transaction():
        before = await sql.fetchrow(read)
        await sql.execute(statement)
        after = await sql.fetchrow(read)
    return after[0] - before[0], after[1] - before[1]


# --- the work of a claim --------------------------------------------------------------------------


async def blocks(sql: Any, more: str = "") -> float:
    """How many blocks a claim touches, in a session whose plans are made."""
    statement = f"explain (analyze, buffers, format json) select * from dibs.claim('default', 'w'{more})"
    found = [json.loads(await sql.fetchval(statement))[0]["Plan"] for _ in range(9)]
    return median(int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) for plan in found[4:])


@pytest.mark.parametrize("vacuumed", [True, False])
async def test_a_claim_costs_no_more_behind_thousands_of_future_and_queued_jobs(url: str, vacuumed: bool) -> None:
    async with connected(url) as sql:
        await sql.execute("alter table dibs.job set (autovacuum_enabled = off)")
        await sql.execute(MANY, timedelta(days=1), -10, 20)
        await sql.execute(MANY, timedelta(0), 0, 20)
        almost_empty = await blocks(sql)
        await sql.execute(MANY, timedelta(days=1), -10, 20_000)
        await sql.execute(MANY, timedelta(0), 0, 20_000)
        if vacuumed:
            await sql.execute("vacuum analyze dibs.job")
        assert await blocks(sql) <= 2 * almost_empty


async def test_a_claim_that_knows_its_place_does_not_walk_through_what_is_running(url: str) -> None:
    async with connected(url) as sql:
        await sql.execute("alter table dibs.job set (autovacuum_enabled = off)")
        await sql.execute(MANY, timedelta(0), 0, 20)
        almost_empty = await blocks(sql)
        await sql.execute("delete from dibs.job")
        await sql.execute(MANY, timedelta(0), 0, 3_000)
        last = (await sql.fetch("select priority, run_at, id from dibs.claim('default', 'w', 2000)"))[-1]
        places = (
            f", after_priority => '{{{last[0]}}}', after_run_at => array['{last[1].isoformat()}'::timestamptz]"
            f", after_id => '{{{last[2]}}}', after_until => 'infinity'"
        )
        assert await blocks(sql, places) <= 2 * almost_empty < await blocks(sql)


async def test_the_work_of_a_claim_does_not_grow_while_an_old_snapshot_is_held(url: str) -> None:
    size, rounds = 10, 400
    read = "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class where relnamespace = 'dibs'::regnamespace"
    async with connected(url) as holder, connected(url) as sql, opened(url, "pool=1") as store:
        await sql.execute(MANY, timedelta(0), 0, size * rounds)
        await holder.execute("begin isolation level repeatable read; select from dibs.job limit 1")
        costs = []
        for _ in range(rounds):
            [[before]] = await store._fetch(read)
            claims = await store.claim("default", "w", size, LEASE)
            [[after]] = await store._fetch(read)
            costs.append(int(after - before))  # negative when the server took the numbers in between
            await store.settle([claim.settled(Succeeded()) for claim in claims])
        assert await store.claim("default", "w", 1, LEASE) == []
    quarter = rounds // 4
    assert median(costs[-quarter:]) <= 1.5 * median(costs[:quarter])


# --- places ---------------------------------------------------------------------------------------


async def _give_back(store: PostgresStore, claim: Claim, how: str) -> None:
    one = Filter(ids=(claim.id,))
    match how:
        case "release":
            await store.settle([claim.settled(Released())])
        case "retry":
            await store.settle([claim.settled(Retry("no"))])
        case "requeue":
            await store.settle([claim.settled(Failed("no"))])
            await store.requeue(one)


@pytest.mark.parametrize("how", ["release", "retry", "requeue"])
async def test_a_job_given_back_is_next_in_the_same_store(newest: str, how: str) -> None:
    async with in_lab(newest) as (_, store):
        await store.enqueue(jobs(6))
        first, *_ = [(await store.claim("default", "w", 1, LEASE))[0] for _ in range(3)]
        await _give_back(store, first, how)
        assert numbers(await store.claim("default", "w", 2, LEASE)) == [0, 3]


async def test_a_job_moved_to_the_front_is_next_in_the_same_store(newest: str) -> None:
    async with in_lab(newest) as (lab, store):
        added = await store.enqueue(jobs(8))
        await store.claim("default", "w", 2, LEASE)
        await store.reschedule(Filter(ids=(added[6].id,)), lab.now - SECOND)
        assert numbers(await store.claim("default", "w", 1, LEASE)) == [6]
        await store.reprioritise(Filter(ids=(added[5].id,)), -1)
        assert numbers(await store.claim("default", "w", 1, LEASE)) == [5]
        await store.enqueue([NewJob(task="t", args={"n": 99}, run_at=lab.now - 2 * SECOND)])
        assert numbers(await store.claim("default", "w", 2, LEASE)) == [99, 2]


async def test_places_reached_in_one_order_are_not_used_in_the_other(newest: str) -> None:
    async with in_lab(newest) as (_, store):
        await store.enqueue(jobs(4))
        await store.configure("default", order=Order.LIFO)
        assert numbers(await store.claim("default", "w", 1, LEASE)) == [3]
        await store.enqueue([NewJob(task="t", args={"n": 4})])
        await store.configure("default", order=Order.FIFO)
        assert numbers(await store.claim("default", "w", 1, LEASE)) == [0]


async def test_without_places_every_claim_looks_from_the_beginning_however_long_that_takes(newest: str) -> None:
    async with in_lab(newest) as (_, store):
        await store.enqueue(jobs(1))
        claims = await store.claim("default", "w", 1, LEASE)
    lookout = Lookout(look_every=0)
    lookout.claimed(claims, 1, LEASE, began=time.monotonic() - 60)
    assert lookout.arguments() == (True, (None, None, None, None, True, None))


@asynccontextmanager
async def _late_commit(lab: PostgresLab, store: PostgresStore, url: str) -> AsyncIterator[Any]:
    """A transaction that has enqueued job 100, before jobs 0 to 9 were enqueued and job 0 was claimed."""
    async with connected(url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select dibs.enqueue('t', args => '{\"n\": 100}')")
        await lab.advance(0.1)
        await store.enqueue(jobs(10))
        assert numbers(await store.claim("default", "w", 1, LEASE)) == [0]
        yield transaction


async def test_a_late_commit_is_found_by_the_next_claim_that_comes_back_short(
    newest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_LONG", 60)  # on a busy machine a short look may take long
    async with in_lab(newest) as (lab, store), _late_commit(lab, store, newest) as late:
        await late.commit()
        assert sorted(numbers(await store.claim("default", "w", 20, LEASE))) == [*range(1, 10), 100]


async def test_a_late_commit_is_found_by_the_first_claim_a_second_later(newest: str) -> None:
    async with in_lab(newest) as (lab, store), _late_commit(lab, store, newest) as late:
        await late.commit()
        assert len(await store.claim("default", "w", 1, LEASE)) == 1
        await lab.advance(1)
        assert 100 in numbers(await store.claim("default", "w", 2, LEASE))


async def test_places_of_different_tasks_do_not_hide_each_other_s_jobs(newest: str) -> None:
    async with in_lab(newest) as (_, store):
        await store.enqueue([NewJob(task="ab"[n % 2], args={"n": n}) for n in range(6)])
        assert numbers(await store.claim("default", "w", 2, LEASE, ["b"])) == [1, 3]
        assert numbers(await store.claim("default", "w", 1, LEASE, ["a"])) == [0]
        assert numbers(await store.claim("default", "w", 9, LEASE)) == [2, 4, 5]


# --- two ways to claim ----------------------------------------------------------------------------


async def _mixed(url: str, way: str, seed: int) -> list[tuple[UUID, int, int]]:
    """Jobs of every kind, claimed to the end; answers the claims in their order."""
    random = Random(seed)
    async with in_lab(url, look_every=0, claim=way) as (lab, store):
        await store.configure("lifo", order=Order.LIFO)
        for batch in range(4):
            base = UUID(int=(0x0190_0000_0000 + batch) << 80 | 7 << 76 | 2 << 62)
            await store.enqueue(
                [
                    NewJob(
                        id=UUID(int=base.int + n),
                        task=random.choice("ab"),
                        queue=random.choice(("fifo", "lifo")),
                        priority=random.choice((-1, 0, 5)),
                        run_at=random.choice((None, lab.now + random.choice((-1, 0, 1, 100)) * SECOND)),
                        max_attempts=random.choice((1, 2)),
                    )
                    for n in range(40)
                ]
            )
            for queue in ("fifo", "lifo"):
                held = await store.claim(queue, "w", 12, random.choice((1, 50)) * SECOND)
                await store.cancel(Filter(ids=tuple(claim.id for claim in held[::3])))
            await lab.advance(random.choice((0, 2)))
        await lab.advance(2)
        taken: list[Claim] = []
        for queue, tasks in (("fifo", ["a"]), ("lifo", ["b"]), ("fifo", None), ("lifo", None)):
            while claims := await store.claim(queue, "w", random.randint(1, 9), LEASE, tasks):
                taken += claims
        return [(claim.id, claim.epoch, claim.attempt) for claim in taken]


@pytest.mark.parametrize("seed", range(3))
async def test_claims_in_one_and_in_two_phases_take_the_same_jobs_in_the_same_order(
    migrated_database: DatabaseFactory, seed: int
) -> None:
    single, two_phase = [await _mixed(migrated_database(NEWEST), way, seed) for way in ("single", "two-phase")]
    assert single == two_phase
    assert len(single) > 50


async def test_statistics_from_an_empty_queue_do_not_make_large_calls_slow(url: str) -> None:
    """A plan that reads the table once for each item would take a hundred times as long as one that does not."""
    async with opened(url, "look_every=1") as store, connected(url) as sql:
        await store.enqueue([NewJob(task="t") for _ in range(8_000)])
        await sql.execute("delete from dibs.job where id <> (select id from dibs.job limit 1)")
        await sql.execute("analyze dibs.job")
        await sql.execute("delete from dibs.job")
        await store.enqueue([NewJob(task="t") for _ in range(8_000)])
        began = time.monotonic()
        claims = await store.claim("default", "w", 8_000, LEASE)
        assert set(await store.heartbeat("w", claims, LEASE)) == {Pulse.HELD}
        outcomes = [Retry("x") if number % 2 else Succeeded() for number in range(8_000)]
        settled = [claim.settled(outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
        assert set(await store.settle(settled)) == {Verdict.ACCEPTED}
        again = await store.claim("default", "w", 8_000, LEASE)
        assert set(await store.settle([claim.settled(Succeeded()) for claim in again])) == {Verdict.ACCEPTED}
        assert len(again) == 4_000
        assert time.monotonic() - began < 25  # it takes half a second, or most of a minute
