"""Many connections on the steps of the same flows: nobody deadlocks, and whatever happens once happens once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from dibs.errors import ConfigurationError, Refused
from dibs.job import Claim, Enqueued, Filter, FlowState, NewFlow, NewJob, NewStep, OnFailure, State
from dibs.outcome import Failed, Released, Retry, Succeeded
from dibs.stores.postgres import PostgresStore
from dibs.transaction import start_in, start_in_async
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.unit.postgres import LEASE, NEWEST, connected, in_lab, jobs, needs_postgres, opened, until

pytestmark = needs_postgres

CONNECTIONS = 16

# Everything that a flow, waiting or finished, must hold whenever nobody is in the middle of a verb.
BROKEN = {
    "a flow is finished while a step is not, or the other way round": """
        select id from dibs.flow
        where (finished_at is not null) = exists (select from dibs.job where job.flow = flow.id)
    """,
    "a running flow is finished": "select id from dibs.flow where state = 'running' and finished_at is not null",
    "a step waits for another number of needs than have not succeeded": """
        select job.id from dibs.job, lateral (
            select
                count(*) filter (where finished.state <> 'succeeded' or open.id is not null) as at_least,
                count(*) filter (where finished.state is distinct from 'succeeded') as at_most  -- some may be gone
            from unnest(job.need_ids) as need (id)
            left join dibs.finished on finished.id = need.id
            left join dibs.job as open on open.id = need.id
        ) as needs
        where job.unmet > 0 and job.unmet not between at_least and at_most
    """,
    "a step can run before its needs have succeeded": """
        select job.id from dibs.job, unnest(job.need_ids) as need (id)
        where job.unmet = 0 and job.locked_until is null and job.attempts = 0
            and exists (select from dibs.job as open where open.id = need.id)
    """,
    "a stopped flow has steps that wait or are queued": """
        select job.id from dibs.job join dibs.flow on flow.id = job.flow
        where flow.state <> 'running' and job.locked_until is null
    """,
    "a need is kept of a step that is gone": """
        select needs from dibs.need, unnest(array[need.needs, need.step]) as either (id)
        where not exists (select from dibs.job where job.id = either.id)
            and not exists (select from dibs.finished where finished.id = either.id)
    """,
    "a flow is kept that has no step": """
        select id from dibs.flow
        where not exists (select from dibs.job where job.flow = flow.id)
            and not exists (select from dibs.finished where finished.flow = flow.id)
    """,
}


def diamond(width: int, on_failure: OnFailure = OnFailure.STOP, **fields: Any) -> NewFlow:
    """One step, many that need it, one that needs all of those."""
    names = [f"m{n}" for n in range(width)]
    steps = [NewStep(name="first", job=NewJob(task="t", **fields))]
    steps += [NewStep(name=name, job=NewJob(task="t", **fields), needs=("first",)) for name in names]
    steps.append(NewStep(name="last", job=NewJob(task="t", **fields), needs=tuple(names)))
    return NewFlow(name="diamond", steps=tuple(steps), on_failure=on_failure)


@asynccontextmanager
async def crowd(url: str) -> AsyncIterator[list[PostgresStore]]:
    """Stores of one connection each, at which a deadlock would be found at once."""
    stores = [PostgresStore(f"{url}?pool=1&look_every=0&deadlock_timeout=20ms") for _ in range(CONNECTIONS)]
    try:
        await asyncio.gather(*(store.setup() for store in stores))
        yield stores
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def no_deadlock_was_seen(url: str) -> None:
    async with connected(url) as sql:  # the numbers are complete once those who counted have gone
        others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        await until(lambda: sql.fetchval(f"select not exists (select {others} and application_name = 'dibs')"))
        assert await sql.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def assert_whole(url: str) -> None:
    async with connected(url) as sql:
        for what, query in BROKEN.items():
            assert await sql.fetch(query) == [], what


@pytest.mark.parametrize("label", POSTGRES_LABELS)
@pytest.mark.parametrize("claim", ["single", "two-phase"])
async def test_sixteen_connections_that_do_everything_to_the_same_flows_do_not_deadlock(
    migrated_database: DatabaseFactory, label: str, claim: str
) -> None:
    url, dice = migrated_database(label), random.Random(7)
    async with in_lab(url, look_every=0, claim=claim) as (lab, store):
        flows = [diamond(6, on_failure, max_attempts=3) for on_failure in (*OnFailure, *OnFailure)]
        for flow in flows:
            await store.start(flow)
        await store.enqueue(jobs(20, max_attempts=50))
        ids = tuple(flow.id for flow in flows)
        async with crowd(url) as stores:
            for _ in range(12):
                claims = await store.claim("default", "w", 100, LEASE)
                if dice.random() < 0.4:
                    await lab.advance(61)
                await asyncio.gather(*(_disturb(n, one, claims, ids, dice) for n, one in enumerate(stores)))
                await assert_whole(url)
    await no_deadlock_was_seen(url)


async def _disturb(n: int, store: PostgresStore, claims: list[Claim], flows: tuple[Any, ...], dice: Any) -> None:
    """Some verb, on all that there is, every other one in the opposite order."""
    mine, which = claims[:: -1 if n % 2 else 1], Filter(flows=flows[:: -1 if n % 2 else 1])
    outcomes = [Succeeded(n), Succeeded(n), Retry("again"), Failed("no"), Released()]
    for verb in dice.sample(range(9), 3):
        match verb:
            case 0 | 1:
                some = dice.sample(mine, len(mine) // 2)
                await store.settle([claim.settled(dice.choice(outcomes)) for claim in some])
            case 2:
                await store.settle([claim.settled(Succeeded(n)) for claim in mine])
            case 3:
                await store.heartbeat("w", mine, LEASE)
            case 4:
                await store.requeue(which)
            case 5:
                await store.sweep()
            case 6:
                await store.claim("default", "w", 5, LEASE)
            case 7:
                await store.reprioritise(which, n)
            case 8:
                await store.cancel(Filter(flows=(dice.choice(flows),)), force=n % 4 == 0)


async def test_steps_that_are_deleted_and_pruned_meanwhile_leave_nothing_behind(
    migrated_database: DatabaseFactory,
) -> None:
    url, dice = migrated_database(NEWEST), random.Random(8)
    async with in_lab(url, look_every=0) as (_, store):
        async with crowd(url) as stores:
            for _ in range(8):
                flows = [diamond(4, on_failure) for on_failure in OnFailure]
                for flow in flows:
                    await store.start(flow)
                claims = await store.claim("default", "w", 100, LEASE)
                ids = tuple(flow.id for flow in flows)
                await asyncio.gather(
                    *(_disturb(n, one, claims, ids, dice) for n, one in enumerate(stores[:8])),
                    *(
                        one.delete(Filter(flows=ids), limit=n, force=n % 2 == 0)
                        for n, one in enumerate(stores[8:12], 1)
                    ),
                    *(_prune(one) for one in stores[12:]),
                )
                await assert_whole(url)
            await store.delete(Filter(everything=True), force=True)
        assert (await store.flows()).flows == ()
        async with connected(url) as sql:
            assert await sql.fetchval("select count(*) from dibs.need") == 0
    await no_deadlock_was_seen(url)


async def _prune(store: PostgresStore) -> None:
    async with connected(store._url) as sql:
        await sql.execute("select dibs.prune('0', '0', '0')")


ONCE = """
create table public.ends (flow uuid not null);
create function note_end() returns trigger language plpgsql as
    $$ begin insert into public.ends values (new.id); return null; end $$;
create trigger ends after update on dibs.flow for each row
    when (new.finished_at is not null and old.finished_at is distinct from new.finished_at)
    execute function note_end();
"""


@pytest.mark.parametrize("label", POSTGRES_LABELS)
async def test_each_flow_ends_once_and_each_step_is_released_once_however_many_settle(
    migrated_database: DatabaseFactory, label: str
) -> None:
    url = migrated_database(label)
    flows = [diamond(8) for _ in range(40)]
    async with connected(url) as sql, crowd(url) as stores:
        await sql.execute(ONCE)
        await asyncio.gather(*(_start(stores[0], flow) for flow in flows))
        await asyncio.gather(*(_work(store, f"w{n}", len(flows)) for n, store in enumerate(stores)))
        assert await sql.fetch("select flow from public.ends group by flow having count(*) > 1") == []
        assert await sql.fetchval("select count(*) from public.ends") == len(flows)
        states = {flow.state for flow in (await stores[0].flows(limit=1000)).flows}
        assert states == {FlowState.SUCCEEDED}
        steps = (await stores[0].find(Filter(tasks=("t",)), limit=1000)).jobs
        assert {(step.state, step.epoch) for step in steps} == {(State.SUCCEEDED, 1)}
        assert {len(step.inputs) for step in steps if step.step == "last"} == {8}
        assert all(step.inputs == {name: name for name in step.needs} for step in steps)
    await no_deadlock_was_seen(url)


async def _start(store: PostgresStore, flow: NewFlow) -> None:
    assert (await store.start(flow)).created


async def _work(store: PostgresStore, worker: str, flows: int) -> None:
    """Until every flow has ended."""
    while True:
        claims = await store.claim("default", worker, 5, timedelta(seconds=60))
        await store.settle([claim.settled(Succeeded(claim.step)) for claim in claims])
        if not claims and len((await store.flows([FlowState.SUCCEEDED], limit=1000)).flows) == flows:
            return


async def test_a_claim_does_not_wait_for_a_flow_that_somebody_else_has_locked(
    migrated_database: DatabaseFactory,
) -> None:
    url = migrated_database(NEWEST)
    async with in_lab(url) as (lab, store), connected(url) as other:
        flow = NewFlow(name="f", steps=(NewStep(name="a", job=NewJob(task="t", max_attempts=1)),))
        await store.start(flow)
        [claim] = await store.claim("default", "w", 1, LEASE)
        await store.enqueue(jobs(1))
        await lab.advance(61)
        async with other.transaction():
            await other.execute("select from dibs.flow for update")
            found = await asyncio.wait_for(store.claim("default", "w", 2, LEASE), 10)
            assert [one.task for one in found] == ["t"] and found[0].id != claim.id
            assert await asyncio.wait_for(store.sweep(), 10) == 0
        assert await store.sweep() == 1
        ended = await store.flow(flow.id)
        assert ended is not None and ended.state is FlowState.FAILED


async def test_plain_jobs_are_settled_without_a_look_at_flows(migrated_database: DatabaseFactory) -> None:
    url = migrated_database(NEWEST)
    async with opened(url, "pool=1") as store, connected(url) as other:
        await store.enqueue(jobs(3))
        claims = await store.claim("default", "w", 3, LEASE)
        async with other.transaction():
            await other.execute("lock table dibs.flow, dibs.need in access exclusive mode")
            verdicts = await asyncio.wait_for(store.settle([one.settled(Succeeded()) for one in claims]), 10)
        assert verdicts == ["accepted"] * 3


async def test_a_claim_of_steps_is_a_hot_update(migrated_database: DatabaseFactory) -> None:
    url = migrated_database(NEWEST)
    async with opened(url, "pool=1") as store:
        await store.start(
            NewFlow(name="f", steps=tuple(NewStep(name=f"s{n}", job=NewJob(task="t")) for n in range(50)))
        )
        assert len(await store.claim("default", "w", 50, LEASE)) == 50
    async with connected(url) as sql:
        query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'job'"
        await until(lambda: sql.fetchval(f"select n_tup_upd = 50 from ({query}) as seen"))
        assert tuple(await sql.fetchrow(query)) == (50, 50)


async def test_a_flow_is_refused_by_the_function_as_by_limits(migrated_database: DatabaseFactory) -> None:
    url = migrated_database(NEWEST)
    async with connected(url) as sql:
        for steps, words in (
            ("[]", "1 to 10000 steps"),
            ('[{"name": "a"}]', "task and needs of a step must have"),
            ('[{"name": " a", "task": "t"}]', "needs of a step must have"),
            ('[{"name": "a", "task": "t"}, {"name": "a", "task": "t"}]', "a name and a job id of its own"),
            ('[{"name": "a", "task": "t", "key": "k"}]', "must have no key"),
            ('[{"name": "a", "task": "t", "needs": ["b"]}]', '"b" is needed and is no step of the flow'),
            ('[{"name": "a", "task": "t", "needs": ["a"]}]', "in a circle"),
            ('[{"name": "a", "task": "t", "needs": ["b", "b"]}, {"name": "b", "task": "t"}]', "needs once"),
            ('[{"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t", "needs": ["a"]}]', "in a circle"),
        ):
            with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=words):
                await sql.execute("select dibs.start_flow('f', $1)", steps)
        backwards = '[{"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t"}]'
        await sql.execute("select dibs.start_flow('f', $1)", backwards)
        assert await sql.fetchval("select count(*) from dibs.flow") == 1


# --- in a transaction of the caller's ---------------------------------------------------------------------------------


async def test_a_flow_started_in_a_transaction_is_there_exactly_if_the_transaction_is(
    migrated_database: DatabaseFactory,
) -> None:
    url = migrated_database(NEWEST)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    later = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    kept: list[NewFlow] = []
    for commit in (True, False):
        flows = [diamond(2) for _ in range(4)]
        with psycopg.connect(url) as one, engine.connect() as two:
            assert start_in(one, flows[0]) == Enqueued(flows[0].id, True)
            assert start_in(one, flows[0]) == Enqueued(flows[0].id, False)
            assert start_in(two, flows[1]).created
            for connection in (one, two):
                (connection.commit if commit else connection.rollback)()
        async with connected(url) as three, later.connect() as four:
            transaction = three.transaction()
            await transaction.start()
            assert (await start_in_async(three, flows[2])).created
            assert (await start_in_async(four, flows[3])).created
            await (transaction.commit if commit else transaction.rollback)()
            await (four.commit if commit else four.rollback)()
        kept += flows if commit else []
    engine.dispose()
    await later.dispose()
    async with opened(url) as store:
        assert {flow.id for flow in (await store.flows()).flows} == {flow.id for flow in kept}


async def test_a_flow_started_in_a_transaction_is_refused_in_the_words_of_the_store(
    migrated_database: DatabaseFactory,
) -> None:
    url = migrated_database(NEWEST)
    flow = diamond(2)
    async with opened(url) as store:
        await store.start(flow)
    again = NewFlow(name="again", steps=flow.steps)
    with psycopg.connect(url) as connection, pytest.raises(Refused, match="a job that is there already"):
        start_in(connection, again)
    with pytest.raises(ConfigurationError, match="start_in"):
        start_in(object(), flow)
    async with connected(url) as connection:
        with pytest.raises(ConfigurationError, match="begin one"):
            await start_in_async(connection, flow)
