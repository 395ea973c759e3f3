"""The schema in PostgreSQL: how it comes to be, what it refuses, and the days of the finished jobs.

`DIBS_UPDATE_SNAPSHOT=1` writes the snapshot instead of comparing it.
"""

import asyncio
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import SchemaError
from dibs.job import NewJob, State
from dibs.outcome import Succeeded
from dibs.stores.postgres.schema import LATEST, VERSIONS
from dibs.stores.schema import SchemaStatus, open_schema
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.unit.postgres import LEASE, NEWEST, connected, migrated, needs_postgres, opened

pytestmark = needs_postgres

SNAPSHOT = Path(__file__).parents[2] / "docs" / "reference" / "postgres-schema.txt"
LABELS = tuple(f"{version.number:04}" for version in VERSIONS)
OLD_DAY = date(2020, 1, 1)


@pytest.fixture(params=POSTGRES_LABELS)
def empty(request: pytest.FixtureRequest, postgres_database: DatabaseFactory) -> str:
    """A database without the schema, on each version."""
    return postgres_database(request.param)


@pytest.fixture
def newest(postgres_database: DatabaseFactory) -> str:
    """A database without the schema, on the newest version."""
    return postgres_database(NEWEST)


def today() -> date:
    return datetime.now(UTC).date()


async def days(connection: Any) -> list[str]:
    """The partitions of dibs.finished that belong to a day."""
    found = await connection.fetch(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'dibs.finished'::regclass order by 1"
    )
    return [row[0] for row in found if row[0] != "dibs.finished_other"]


def day_name(day: date) -> str:
    return f"dibs.finished_{day:%Y%m%d}"


async def make_day(connection: Any, day: date) -> str:
    """A partition as dibs.make_days made it on that day."""
    bounds = [f"(dibs.first_id_of('{one} 00:00+00'))" for one in (day, day + timedelta(days=1))]
    first, last = [await connection.fetchval(f"select {bound}::text") for bound in bounds]
    name = day_name(day)
    await connection.execute(
        f"create table {name} partition of dibs.finished for values from ('{first}') to ('{last}')"
    )
    return name


# --- up, status, dump ---------------------------------------------------------------------------


async def test_up_creates_the_schema_once_and_status_says_so(empty: str) -> None:
    schema = open_schema(empty)
    assert await schema.status() == SchemaStatus(0, LATEST, LABELS)
    assert await schema.up() == LABELS
    assert await schema.status() == SchemaStatus(LATEST, LATEST, ())
    assert await schema.up() == ()


async def test_of_eight_ups_at_once_one_does_the_work_and_none_fails(empty: str) -> None:
    applied = await asyncio.gather(*(open_schema(empty).up() for _ in range(8)))
    assert sorted(applied, reverse=True) == [LABELS, *[()] * 7]


async def test_up_on_a_newer_schema_changes_nothing_and_says_what_to_do(newest: str) -> None:
    await migrated(newest)
    async with connected(newest) as connection:
        await connection.execute("insert into dibs.migration (version) values (9999)")
    with pytest.raises(SchemaError, match="version 9999, newer than this dibs knows: upgrade dibs"):
        await open_schema(newest).up()


async def test_a_migration_that_breaks_off_leaves_nothing(newest: str) -> None:
    async with connected(newest) as connection:
        # The schema is there and has a table of the same name: a statement in the middle of the version fails.
        await connection.execute("create schema dibs; create table dibs.need (a integer)")
        with pytest.raises(Exception, match="already exists"):
            await open_schema(newest).up()
        assert await connection.fetchval("select count(*) from pg_class where relnamespace = 'dibs'::regnamespace") == 1


async def test_a_dump_needs_a_schema(newest: str) -> None:
    with pytest.raises(SchemaError, match="dibs migrate up"):
        await open_schema(newest).dump()


async def test_the_schema_is_the_one_in_the_snapshot(newest: str) -> None:
    await migrated(newest)
    dump = await open_schema(newest).dump()
    if os.environ.get("DIBS_UPDATE_SNAPSHOT"):
        SNAPSHOT.write_text(dump, "utf-8")
    advice = f"{SNAPSHOT.name} is out of date: DIBS_UPDATE_SNAPSHOT=1 pytest {Path(__file__).name} writes it anew"
    assert dump == SNAPSHOT.read_text("utf-8"), advice


async def test_every_version_of_the_server_holds_the_same_functions(postgres_database: DatabaseFactory) -> None:
    dumps = [await open_schema(await migrated(postgres_database(label))).dump() for label in POSTGRES_LABELS]
    functions = {dump[dump.index("CREATE OR REPLACE FUNCTION") :] for dump in dumps}
    assert len(functions) == 1


# --- a store on it --------------------------------------------------------------------------------


async def test_a_store_without_the_schema_names_the_remedy_and_creates_nothing(empty: str) -> None:
    with pytest.raises(SchemaError, match=r"run dibs migrate up, or add \?migrate=auto to the URL") as caught:
        async with opened(empty):
            pass
    assert "\n" not in str(caught.value)
    assert (await open_schema(empty).status()).current == 0
    async with connected(empty) as connection:
        assert await connection.fetchval("select to_regnamespace('dibs')") is None


async def test_migrate_auto_creates_the_schema(empty: str) -> None:
    async with opened(empty, "migrate=auto") as store:
        [job] = await store.enqueue([NewJob(task="t")])
        assert job.created
    assert (await open_schema(empty).status()).pending == ()


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0", r"no dibs schema: run dibs migrate up, or add \?migrate=auto"),
        ("9999", "has schema version 9999, newer than this dibs knows: upgrade dibs"),
    ],
)
async def test_a_store_refuses_a_version_that_it_does_not_know(newest: str, version: str, words: str) -> None:
    await migrated(newest)
    async with connected(newest) as connection:
        await connection.execute(f"update dibs.migration set version = {version}")
    for options in ("", *(["migrate=auto"] if version == "9999" else [])):
        with pytest.raises(SchemaError, match=words) as caught:
            async with opened(newest, options):
                pass
        assert "\n" not in str(caught.value)


def test_a_version_between_none_and_the_latest_is_told_to_migrate() -> None:
    from dibs.stores.postgres.schema import check

    with pytest.raises(SchemaError, match="has schema version 1, 2 is needed: run dibs migrate up"):
        check(SchemaStatus(1, 2, ("0002",)), "postgresql://h/shop")


async def test_a_schema_dropped_under_a_store_is_a_schema_error(newest: str) -> None:
    await migrated(newest)
    async with opened(newest) as store, connected(newest) as connection:
        await connection.execute("drop schema dibs cascade")
        with pytest.raises(SchemaError, match="dibs migrate up"):
            await store.claim("default", "w", 1, LEASE)


# --- days -----------------------------------------------------------------------------------------


async def test_up_makes_today_and_three_days_ahead(empty: str) -> None:
    before = today()
    await migrated(empty)
    async with connected(empty) as connection:
        found = await days(connection)
    assert found in [[day_name(first + timedelta(days=n)) for n in range(4)] for first in (before, today())]


async def test_making_days_again_changes_nothing(newest: str) -> None:
    await migrated(newest)
    async with connected(newest) as connection:
        before = await days(connection)
        assert await connection.fetchval("select dibs.make_days()") == 0
        assert await days(connection) == before
        assert await connection.fetchval("select dibs.make_days(ahead => 5)") == 2


async def test_an_old_day_goes_when_it_is_empty_and_stays_while_it_is_not(newest: str) -> None:
    await migrated(newest)
    async with connected(newest) as connection:
        empty, full = await make_day(connection, OLD_DAY), await make_day(connection, OLD_DAY + timedelta(days=1))
        yesterday = await make_day(connection, today() - timedelta(days=1))
        await _finish(connection, datetime(2020, 1, 2, 12, tzinfo=UTC))
        assert await connection.fetchval("select dibs.make_days()") == 1
        left = await days(connection)
        assert empty not in left
        assert {full, yesterday} < set(left)
        await connection.execute(f"delete from {full}")
        assert await connection.fetchval("select dibs.make_days()") == 1


async def test_making_days_does_not_wait_for_whoever_reads_an_old_one(empty: str) -> None:
    await migrated(empty)
    async with connected(empty) as connection, connected(empty) as reader:
        old = await make_day(connection, OLD_DAY)
        async with reader.transaction():
            await reader.execute(f"select from {old}")
            assert await connection.fetchval("select dibs.make_days()", timeout=5) == 0
            assert old in await days(connection)
        assert await connection.fetchval("select dibs.make_days()") == 1


async def test_making_days_does_not_wait_for_whoever_writes_finished_jobs(empty: str) -> None:
    await migrated(empty)
    async with connected(empty) as connection, connected(empty) as writer:
        old = await make_day(connection, OLD_DAY)
        await connection.execute(f"drop table {day_name(today() + timedelta(days=3))}")
        async with writer.transaction():
            await writer.execute("lock table dibs.finished, dibs.finished_other in row exclusive mode")
            assert await connection.fetchval("select dibs.make_days()", timeout=5) == 0
            assert old in await days(connection)
        assert await connection.fetchval("select dibs.make_days()") == 2


async def test_a_finished_job_lands_in_the_day_of_its_id(empty: str) -> None:
    await migrated(empty)
    async with opened(empty) as store, connected(empty) as connection:
        job = NewJob(task="t")
        await store.enqueue([job])
        [claim] = await store.claim("default", "w", 1, LEASE)
        await store.settle([claim.settled(Succeeded())])
        where = await connection.fetchval("select tableoid::regclass::text from dibs.finished")
    born = datetime.fromtimestamp((job.id.int >> 80) / 1000, UTC).date()
    assert where == day_name(born)


async def test_a_job_of_a_day_without_a_partition_lands_beside_them_and_is_found(newest: str) -> None:
    await migrated(newest)
    async with opened(newest) as store, connected(newest) as connection:
        id_ = await _finish(connection, datetime(2031, 1, 1, tzinfo=UTC))
        assert await connection.fetchval("select tableoid::regclass::text from dibs.finished") == "dibs.finished_other"
        found = await store.get(id_)
        assert found is not None and found.state is State.SUCCEEDED
        await connection.fetchval("select dibs.make_days()")
        assert await store.get(id_) == found


async def _finish(connection: Any, born: datetime) -> Any:
    """A job that was enqueued at some time and has succeeded."""
    id_ = await connection.fetchval("select dibs.first_id_of($1)", born)
    await connection.execute("select dibs.enqueue('t', id => $1)", id_)
    [(epoch,)] = await connection.fetch("select epoch from dibs.claim('default', 'w')")
    assert await connection.fetchval("select dibs.settle_one($1, $2, 'w')", id_, epoch) == "accepted"
    return id_
