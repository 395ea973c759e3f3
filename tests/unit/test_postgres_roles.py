"""What a role may do that was allowed one purpose and nothing else, and that it cannot get more by a trick."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from dibs.errors import ConfigurationError
from dibs.job import Filter, NewJob
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.store import Offer
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresAddress
from tests.unit.postgres import LEASE, NEWEST, as_role, connected, needs_postgres, opened
from tests.unit.working import until

pytestmark = needs_postgres

RoleFactory = Callable[[str], Awaitable[str]]


@pytest.fixture
def role_name(postgres_servers: Mapping[str, PostgresAddress]) -> Iterator[str]:
    """Comes before the database, so that the role goes after it."""
    name = f"r_{uuid4().hex}"
    postgres_servers[NEWEST].execute(f"create role {name} login")
    yield name
    postgres_servers[NEWEST].execute(f"drop role {name}")


@pytest.fixture
def url(role_name: str, migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


@pytest.fixture
def allowed(role_name: str, url: str) -> RoleFactory:
    """`await allowed("worker")` gives the URL of a role that may do that and nothing else."""

    async def allow(purpose: str) -> str:
        async with connected(url) as owner:
            await owner.execute("select dibs.allow($1, $2)", role_name, purpose)
        return as_role(url, role_name)

    return allow


async def test_a_producer_can_enqueue_and_look_up_but_not_work(allowed: RoleFactory) -> None:
    url = await allowed("producer")
    async with connected(url) as role, opened(url) as store:
        id_ = await role.fetchval("select id from dibs.enqueue('t')")
        assert await role.fetchval("select state from dibs.get($1)", id_) == "queued"
        await role.execute('select dibs.enqueue_many(\'[{"task": "t"}]\')')
        for _ in range(3):  # more than one within the gap between two wake-ups
            await store.enqueue([NewJob(task="t")])
        for forbidden in (
            "claim('default', 'w')",
            "settle_one(dibs.new_id(), 1, 'w')",
            "sweep()",
            "kept('{colour}')",
            "attend('x')",
            "offer('w', 'x', '{q}', '1 minute')",
            "retract('w')",
            "keep('colour', '{sky}', '{null}')",
            "find()",
            "cancel('{\"everything\": true}')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await role.execute(f"select dibs.{forbidden}")
        with pytest.raises(ConfigurationError, match=r"permission denied.*dibs\.allow"):
            await store.claim("default", "w", 1, LEASE)


async def test_a_worker_can_work_but_not_operate(allowed: RoleFactory) -> None:
    url = await allowed("worker")
    async with connected(url) as role, opened(url) as store:
        await store.enqueue([NewJob(task="t"), NewJob(task="t")])
        assert await store.wait(["default"], timedelta(seconds=10)) == {"default"}
        one, two = await store.claim("default", "w", 2, LEASE)
        assert await store.heartbeat("w", [one, two], LEASE) == [Pulse.HELD] * 2
        assert await store.settle([one.settled(Succeeded())]) == [Verdict.ACCEPTED]
        assert await role.fetchval("select dibs.settle_one($1, 1, 'w')", two.id) == "accepted"
        await store.keep("colour", {"sky": {"is": "blue"}, "sea": None}, rank=3)
        assert (await store.kept(["colour"])).values == {"colour": {"sky": {"is": "blue"}}}
        assert await role.fetchval("select dibs.sweep()") == await role.fetchval("select dibs.prune()") == 0
        for forbidden in (
            "cancel('{\"everything\": true}')",
            "find_flows()",
            "delete('{\"everything\": true}')",
            "requeue('{\"everything\": true}')",
            "pause('default')",
            "allow('x', 'operator')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await role.execute(f"select dibs.{forbidden}")


async def test_a_worker_can_offer_and_a_producer_claim_for_it_by_enqueueing(
    allowed: RoleFactory, role_name: str
) -> None:
    url, came = await allowed("worker"), []
    producer = f"{role_name}_p"
    async with connected(url.replace(f"{role_name}@", "postgres@")) as owner, opened(url) as store:
        await owner.execute(f"create role {producer} login")
        try:
            await owner.execute("select dibs.allow($1, 'producer')", producer)
            waiting = asyncio.create_task(store.wait(["q"], timedelta(seconds=20)))
            offer = Offer("w", LEASE, None, lambda claim, asked_at: came.append(claim), timedelta(seconds=20))
            await until(lambda: store.offer(["q"], offer))
            async with opened(url.replace(f"{role_name}@", f"{producer}@")) as theirs:
                await theirs.enqueue([NewJob(task="t", queue="q")])
            await until(lambda: came)
            waiting.cancel()
        finally:
            await owner.execute(f"drop owned by {producer}; drop role {producer}")


async def test_an_operator_can_call_every_verb(allowed: RoleFactory) -> None:
    async with opened(await allowed("operator")) as store:
        await store.enqueue([NewJob(task="t"), NewJob(task="t")])
        everything = Filter(everything=True)
        assert len((await store.find(everything)).jobs) == 2
        assert (await store.cancel(everything, dry_run=True)).count == 2
        assert (await store.cancel(everything)).count == 2
        assert (await store.requeue(everything)).count == 2
        assert (await store.delete(everything)).count == 2
        await store.pause("q")
        assert [row.paused for row in await store.counts()] == [True]
        assert await store.workers() == []


async def test_no_role_reads_or_writes_a_table_directly(allowed: RoleFactory) -> None:
    async with connected(await allowed("operator")) as role:
        tables = await role.fetch(
            "select oid::regclass::text, relname, relkind::text from pg_class "
            "where relnamespace = 'dibs'::regnamespace and relkind in ('r', 'p', 'v')"
        )
        assert len(tables) > 8
        for name, bare, kind in tables:
            writes = [] if kind == "v" else [f"delete from {name}", f"insert into {name} default values"]
            reads = [] if bare == "migration" else [f"select from {name}"]
            for statement in (*reads, *writes):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await role.execute(statement)


async def test_a_wrong_purpose_names_those_there_are(allowed: RoleFactory) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="producer, worker or operator, not admin"):
        await allowed("admin")


@pytest.mark.parametrize("label", POSTGRES_LABELS)
async def test_nothing_is_open_to_everybody(label: str, migrated_database: DatabaseFactory) -> None:
    async with connected(migrated_database(label)) as sql:
        for kind, catalogue in (("function", "pg_proc"), ("table", "pg_class")):
            space = "pronamespace" if kind == "function" else "relnamespace"
            rights = "execute" if kind == "function" else "select, insert, update, delete"
            condition = "true" if kind == "function" else "relkind in ('r', 'p', 'v')"
            open_to_all = await sql.fetch(
                f"select oid::reg{'procedure' if kind == 'function' else 'class'}::text from {catalogue} "
                f"where {space} = 'dibs'::regnamespace and {condition} "
                f"and has_{kind}_privilege('public', oid, '{rights}')"
            )
            assert open_to_all == []
        assert not await sql.fetchval("select has_schema_privilege('public', 'dibs', 'usage, create')")


async def test_whatever_runs_with_the_owner_s_rights_has_its_search_path_fixed(url: str) -> None:
    async with connected(url) as sql:
        loose = await sql.fetch(
            "select oid::regprocedure::text from pg_proc where pronamespace = 'dibs'::regnamespace and prosecdef "
            "and not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']"
        )
    assert loose == []


TRAPS = """
create schema trap;
create function trap.sprung() returns boolean language plpgsql as $$ begin raise 'the trap sprang'; end $$;
create function trap.same(uuid, uuid) returns boolean language sql as 'select trap.sprung()';
create function trap.same(text, text) returns boolean language sql as 'select trap.sprung()';
create function trap.up_to(timestamptz, timestamptz) returns boolean language sql as 'select trap.sprung()';
create function trap.cardinality(anyarray) returns integer language sql as 'select trap.sprung()::integer';
create function trap.clock_timestamp() returns timestamptz language sql as 'select now() where trap.sprung()';
create operator trap.= (leftarg = uuid, rightarg = uuid, function = trap.same);
create operator trap.= (leftarg = text, rightarg = text, function = trap.same);
create operator trap.<= (leftarg = timestamptz, rightarg = timestamptz, function = trap.up_to);
create temporary table job (id uuid);
grant usage on schema trap to public;
set search_path = trap, pg_temp, pg_catalog;
"""


async def test_a_caller_s_own_objects_are_never_called(url: str, role_name: str, allowed: RoleFactory) -> None:
    async with connected(url) as owner:
        await owner.execute(f'grant create on database "{url.rpartition("/")[2]}" to {role_name}')
    async with connected(await allowed("operator")) as role:
        await role.execute(TRAPS)
        for sprung in ("'a'::text = 'b'::text", "cardinality('{}'::text[])", "clock_timestamp() <= now()"):
            with pytest.raises(asyncpg.RaiseError, match="the trap sprang"):
                await role.execute(f"select {sprung}")
        for call in (
            "enqueue('t', key => 'k')",
            "enqueue('t', key => 'k')",
            'enqueue_many(\'[{"task": "u"}]\')',
            "claim('default', 'w', max_jobs => 1)",
            "settle_one((dibs.find('{\"states\": [\"running\"]}')).id, 1, 'w', 'retry', error => 'e')",
            "claim_take(dibs.claim_lock('default', 2), 'w')",
            "heartbeat('w', array(select id from dibs.find()), array[2, 1])",
            "cancel('{\"everything\": true}', force => true)",
            "requeue('{\"everything\": true}')",
            "reschedule('{\"everything\": true}', now())",
            "reprioritise('{\"everything\": true}', 3)",
            "due(array['default'])",
            "counts()",
            "workers()",
            "sweep()",
            """start_flow('f', '[{"name": "a", "task": "t"}, {"name": "b", "task": "t", "needs": ["a"]}]')""",
            "claim_next_step('w')",
            'extend_step((dibs.find(\'{"states": ["running"], "tasks": ["t"]}\')).id, \'w\')',
            'fail_step((dibs.find(\'{"states": ["running"], "tasks": ["t"]}\')).id, \'w\', \'e\')',
            "claim_next_step('w')",
            'complete_step((dibs.find(\'{"states": ["running"], "tasks": ["t"]}\')).id, \'w\')',
            'requeue(\'{"states": ["succeeded"]}\')',
            "get_flow((dibs.find_flows()).id)",
            "delete('{\"everything\": true}')",
            "prune('0', '0', '0')",
            "make_days()",
            "pause('q')",
            "resume('q')",
            "configure('q', true)",
        ):
            await role.execute(f"select dibs.{call}")
