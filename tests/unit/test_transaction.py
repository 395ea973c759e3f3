"""Enqueueing in a transaction of the caller's, through every driver: both stay, or neither.

The drivers of SQLite are in `test_sqlite_transaction.py`; here each passes once through the public entry.
"""

import asyncio
import importlib.util
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dibs.errors import ConfigurationError, Refused, SchemaError
from dibs.job import Enqueued, NewJob
from dibs.stores.schema import open_schema
from dibs.transaction import enqueue_in, enqueue_in_async
from tests.conftest import DatabaseFactory
from tests.unit.postgres import NEWEST, connected, needs_postgres, opened

SOURCES = str(Path(__file__).parents[2] / "src")
ORDER = "insert into orders values (1)"

pytestmark = needs_postgres


@pytest.fixture
async def url(migrated_database: DatabaseFactory) -> str:
    """A database with the schema and a table of the application's own."""
    url = migrated_database(NEWEST)
    async with connected(url) as sql:
        await sql.execute("create table orders (n integer)")
    return url


def alchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


# --- ways to reach the database: each gives a connection and how to end its transaction -----------

Sync = Callable[[str], AbstractContextManager[tuple[Any, Callable[[], None], Callable[[], None]]]]
Async = Callable[[str], AbstractAsyncContextManager[tuple[Any, Any, Any]]]


@contextmanager
def disposing(engine: sa.Engine) -> Iterator[sa.Engine]:
    try:
        yield engine
    finally:
        engine.dispose()


@asynccontextmanager
async def disposing_later(engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    try:
        yield engine
    finally:
        await engine.dispose()


@contextmanager
def by_psycopg(url: str, **options: Any) -> Any:
    with psycopg.connect(url, **options) as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def by_psycopg_with_dicts(url: str) -> Any:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def by_sqlalchemy(url: str) -> Any:
    with disposing(sa.create_engine(alchemy(url, "psycopg"))) as engine, engine.connect() as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def by_session(url: str) -> Any:
    with disposing(sa.create_engine(alchemy(url, "psycopg"))) as engine, Session(engine) as session:
        yield session, session.commit, session.rollback


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction.commit, transaction.rollback


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction.commit, transaction.rollback


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, connection.commit, connection.rollback


def by_async_sqlalchemy(driver: str, session: bool) -> Async:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        made = create_async_engine(alchemy(url, driver))
        async with disposing_later(made) as engine, AsyncSession(engine) if session else engine.connect() as connection:
            yield connection, connection.commit, connection.rollback

    return opened


SYNC = {
    "psycopg": by_psycopg,
    "psycopg with dicts as rows": by_psycopg_with_dicts,
    "SQLAlchemy connection": by_sqlalchemy,
    "SQLAlchemy session": by_session,
}
ASYNC = {
    "asyncpg": by_asyncpg,
    "asyncpg from a pool": by_asyncpg_pool,
    "psycopg async": by_async_psycopg,
    "AsyncConnection on asyncpg": by_async_sqlalchemy("asyncpg", False),
    "AsyncConnection on psycopg": by_async_sqlalchemy("psycopg", False),
    "AsyncSession on asyncpg": by_async_sqlalchemy("asyncpg", True),
    "AsyncSession on psycopg": by_async_sqlalchemy("psycopg", True),
}


async def attempt(way: str, url: str, commit: bool, given: list[NewJob]) -> list[Enqueued]:
    """Store an order and enqueue in one transaction, then end it one way or the other."""
    if way in SYNC:
        return await asyncio.to_thread(_attempt, SYNC[way], url, commit, given)
    async with ASYNC[way](url) as (connection, keep, drop):
        await connection.execute(sa.text(ORDER) if "Async" in way else ORDER)
        answers = await enqueue_in_async(connection, given)
        await (keep if commit else drop)()
        return answers


def _attempt(opened: Sync, url: str, commit: bool, given: list[NewJob]) -> list[Enqueued]:
    with opened(url) as (connection, keep, drop):
        connection.execute(ORDER if isinstance(connection, psycopg.Connection) else sa.text(ORDER))
        answers = enqueue_in(connection, given)
        (keep if commit else drop)()
        return answers


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
async def test_a_rollback_leaves_no_job_and_wakes_nobody_and_a_commit_does_both(url: str, way: str) -> None:
    heard: list[object] = []
    jobs = [NewJob(task="a", args={"é": [1.50, None]}, meta={"by": "me"}), NewJob(task="b", priority=-1, key="k")]
    async with opened(url) as store, connected(url) as sql:
        await sql.add_listener("dibs", lambda *given: heard.append(given[-1]))
        waiting = asyncio.ensure_future(store.wait(["default"], timedelta(seconds=10)))
        assert [one.created for one in await attempt(way, url, False, jobs)] == [True, True]
        await sql.execute("select 1")  # whatever was sent has arrived by now
        assert (heard, waiting.done()) == ([], False)
        assert await sql.fetchval("select count(*) from dibs.job") == 0
        assert await attempt(way, url, True, jobs) == [Enqueued(job.id, True) for job in jobs]
        assert await waiting == {"default"}
        assert await sql.fetchval("select count(*) from orders") == 1
        assert heard == ["default"]
        found = await store.get(jobs[0].id)
        assert found is not None and (found.args, found.meta) == (jobs[0].args, jobs[0].meta)
        # Known ids and busy keys answer with the job that is there.
        again = await attempt(way, url, True, [jobs[0], NewJob(task="c", key="k")])
        assert again == [Enqueued(jobs[0].id, False), Enqueued(jobs[1].id, False)]


@pytest.mark.parametrize("way", ["psycopg", "asyncpg", "AsyncSession on asyncpg"])
async def test_what_is_refused_is_refused_before_anything_is_sent(url: str, way: str) -> None:
    with pytest.raises(Refused, match="task must have"):
        await attempt(way, url, True, [NewJob(task="fine"), NewJob(task="")])
    if way == "psycopg":
        with psycopg.connect(url) as connection:
            with pytest.raises(Refused):
                enqueue_in(connection, [NewJob(task="")])
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
async def test_a_database_without_the_schema_is_named(postgres_database: DatabaseFactory, way: str) -> None:
    url = postgres_database(NEWEST)
    async with connected(url) as sql:
        await sql.execute("create table orders (n integer)")
    with pytest.raises(SchemaError, match="dibs migrate up"):
        await attempt(way, url, True, [NewJob(task="t")])


# --- no transaction, no connection ----------------------------------------------------------------


async def test_without_a_transaction_it_is_refused(url: str) -> None:
    async with connected(url) as connection:
        with pytest.raises(ConfigurationError, match="begin one"):
            await enqueue_in_async(connection, [NewJob(task="t")])
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with pytest.raises(ConfigurationError, match="begin one"):
            await enqueue_in_async(connection, [NewJob(task="t")])
        async with connection.transaction():
            assert (await enqueue_in_async(connection, [NewJob(task="t")]))[0].created
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(ConfigurationError, match="begin one"):
            enqueue_in(connection, [NewJob(task="t")])
        with connection.transaction():
            assert enqueue_in(connection, [NewJob(task="t")])[0].created


async def test_sqlalchemy_in_autocommit_is_refused(url: str) -> None:
    with disposing(sa.create_engine(alchemy(url, "psycopg"), isolation_level="AUTOCOMMIT")) as engine:
        for opener in (engine.connect, lambda: Session(engine)):
            with opener() as connection, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                enqueue_in(connection, [NewJob(task="t")])
    for driver in ("asyncpg", "psycopg"):
        made = create_async_engine(alchemy(url, driver), isolation_level="AUTOCOMMIT")
        async with disposing_later(made) as later, later.connect() as connection:
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                await enqueue_in_async(connection, [NewJob(task="t")])
    async with connected(url) as sql:
        assert await sql.fetchval("select count(*) from dibs.job") == 0


async def test_anything_else_is_refused_with_what_can_be_passed(url: str) -> None:
    engine, later = sa.create_engine(alchemy(url, "psycopg")), create_async_engine(alchemy(url, "asyncpg"))
    async with connected(url) as plain, asyncpg.create_pool(url, min_size=1) as pool, AsyncSession(later) as session:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            for wrong in (None, object(), engine, cursor, plain, pool, later, session):
                with pytest.raises(ConfigurationError, match=r"through a \S+: pass a psycopg, SQLAlchemy"):
                    enqueue_in(wrong, [NewJob(task="t")])
            for wrong in (None, object(), engine, cursor, connection, pool, later):
                with pytest.raises(ConfigurationError, match=r"through a \S+: pass an asyncpg, async psycopg"):
                    await enqueue_in_async(wrong, [NewJob(task="t")])


async def test_a_subclass_of_a_driver_s_connection_will_do(url: str) -> None:
    class Own(asyncpg.Connection):  # type: ignore[misc]
        pass

    class OwnToo(psycopg.Connection[Any]):
        pass

    async with connected(url, connection_class=Own) as connection, connection.transaction():
        assert (await enqueue_in_async(connection, [NewJob(task="t")]))[0].created
    with OwnToo.connect(url) as own:
        assert enqueue_in(own, [NewJob(task="t")])[0].created


# --- Django, in a process of its own: its settings belong to the whole process --------------------

DJANGO = """
import sys
from django.conf import settings
engine, name, port = sys.argv[1:]
database = {"ENGINE": f"django.db.backends.{engine}", "NAME": name}
if port:
    database |= {"HOST": "127.0.0.1", "PORT": port, "USER": "postgres"}
settings.configure(DATABASES={"default": database})
import django; django.setup()
from django.db import connection, transaction
from dibs.errors import ConfigurationError
from dibs.job import NewJob
from dibs.transaction import enqueue_in

for task in ("dropped", "kept"):
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("insert into orders values (%s)", [1])
            [answer] = enqueue_in(connection, [NewJob(task=task, key="k")])
            assert answer.created
            assert enqueue_in(connection, [NewJob(task="again", key="k")])[0].id == answer.id
            if task == "dropped":
                raise KeyError
    except KeyError:
        pass
try:
    enqueue_in(connection, [NewJob(task="outside")])
except ConfigurationError as problem:
    assert "atomic()" in str(problem)
else:
    raise AssertionError("accepted without a transaction")
connection.close()
"""


@pytest.mark.parametrize("engine", ["postgresql", "sqlite3"])
async def test_django(url: str, tmp_path: Path, engine: str) -> None:
    name, port = url.rpartition("/")[2], url.rpartition("/")[0].rpartition(":")[2]
    if engine == "sqlite3":
        name, port = str(_sqlite(tmp_path)), ""
        await open_schema(f"sqlite:///{name}").up()
    command = [sys.executable, "-c", DJANGO, engine, name, port]
    done = subprocess.run(command, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if engine == "sqlite3":
        assert _tasks(Path(name)) == (1, ["kept"])
    else:
        async with connected(url) as sql:
            assert await sql.fetchval("select array_agg(task) from dibs.job") == ["kept"]
            assert await sql.fetchval("select count(*) from orders") == 1


# --- SQLite, through the same entry ---------------------------------------------------------------


def _sqlite(folder: Path) -> Path:
    file = folder / "app.db"
    connection = sqlite3.connect(file)
    connection.execute("create table orders (n integer)")
    connection.commit()
    connection.close()
    return file


def _tasks(file: Path) -> tuple[int, list[str]]:
    connection = sqlite3.connect(file)
    orders = connection.execute("select count(*) from orders").fetchone()[0]
    tasks = [row[0] for row in connection.execute("select task from dibs_jobs order by id")]
    connection.close()
    return orders, tasks


async def test_every_way_into_sqlite(tmp_path: Path) -> None:
    file = _sqlite(tmp_path)
    await open_schema(f"sqlite:///{file}").up()
    with sqlite3.connect(file) as plain:
        enqueue_in(plain, [NewJob(task="sqlite3")])
    plain.close()
    other = apsw.Connection(str(file))
    with other:
        enqueue_in(other, [NewJob(task="apsw")])
    other.close()
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        enqueue_in(connection, [NewJob(task="connection")])
    with Session(engine) as session, session.begin():
        enqueue_in(session, [NewJob(task="session")])
    engine.dispose()
    if importlib.util.find_spec("aiosqlite"):
        later = create_async_engine(f"sqlite+aiosqlite:///{file}")
        async with later.begin() as connection:
            await enqueue_in_async(connection, [NewJob(task="async")])
        await later.dispose()
    assert _tasks(file)[1][:4] == ["sqlite3", "apsw", "connection", "session"]
