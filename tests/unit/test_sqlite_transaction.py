"""Enqueueing in the caller's own transaction, through every driver that can hold the file open."""

import asyncio
import importlib.util
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from dibs.clock import system_clock
from dibs.errors import ConfigurationError, Refused, SchemaError
from dibs.job import Enqueued, NewJob, OnConflict
from dibs.outcome import Succeeded
from dibs.stores.sqlite import SQLiteStore, enqueue_in, enqueue_with, schema
from tests.unit.sqlite import looked

SRC = str(Path(schema.__file__).parents[3])
LEASE = timedelta(seconds=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE orders (n INTEGER)")
    connection.commit()
    connection.close()
    asyncio.run(_set_up(file))
    return file


async def _set_up(file: Path) -> None:
    store = SQLiteStore(file, migrate=True)
    await store.setup()
    await store.close()


def _stored(file: Path) -> tuple[int, list[str]]:
    connection = sqlite3.connect(file)
    orders = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    tasks = [row[0] for row in connection.execute("SELECT task FROM dibs_jobs ORDER BY id")]
    connection.close()
    return orders, tasks


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(path)
    yield made
    made.close()


# --- sqlite3 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order_first", [True, False])
def test_a_commit_stores_both_and_a_rollback_neither(
    path: Path, connection: sqlite3.Connection, order_first: bool
) -> None:
    for end in (connection.rollback, connection.commit):
        if order_first:
            connection.execute("INSERT INTO orders VALUES (1)")
        enqueue_in(connection, [NewJob(task="a"), NewJob(task="b")])
        if not order_first:
            connection.execute("INSERT INTO orders VALUES (1)")
        assert _stored(path) == (0, [])
        end()
    assert _stored(path) == (1, ["a", "b"])


def test_known_ids_and_busy_keys_answer_as_in_the_store(connection: sqlite3.Connection) -> None:
    first, keyed = NewJob(task="a"), NewJob(task="a", key="k")
    answers = enqueue_in(connection, [first, keyed, first, NewJob(task="b", key="k")])
    assert [(answer.id, answer.created) for answer in answers] == [
        (first.id, True),
        (keyed.id, True),
        (first.id, False),
        (keyed.id, False),
    ]


async def test_windows_and_conflicts_are_as_in_the_store(tmp_path: Path) -> None:
    """One job whose key is busy though it is finished, one that is queued and becomes another."""
    path, soon = tmp_path / "jobs.db", system_clock() + timedelta(hours=1)
    done, there = NewJob(task="done", key="k", unique_for=timedelta(hours=1)), NewJob(task="there", key="l")
    await _run_one(path, done)
    connection = sqlite3.connect(path)
    late = NewJob(task="late", key="k", on_conflict=OnConflict.REPLACE)
    other = NewJob(task="other", key="l", on_conflict=OnConflict.DEBOUNCE, run_at=soon, limit_key="x")
    answers = enqueue_in(connection, [late, there, other])
    assert answers == [Enqueued(done.id, False), Enqueued(there.id, True), Enqueued(there.id, False, True)]
    connection.commit()
    connection.close()
    store = SQLiteStore(path)
    await store.setup()
    found = await store.get(there.id)
    await store.close()
    assert found is not None
    assert (found.task, found.run_at, found.limit_key, found.attempts) == ("other", soon, "x", 0)


async def _run_one(file: Path, job: NewJob) -> None:
    store = SQLiteStore(file)
    await store.setup()
    await store.enqueue([job])
    claim = (await store.claim("default", "w", 1, LEASE))[0]
    await store.settle([claim.settled(Succeeded(None))])
    await store.close()


async def test_a_finished_job_is_known_too(tmp_path: Path) -> None:
    from dibs.outcome import Succeeded

    store = SQLiteStore(tmp_path / "jobs.db")
    await store.setup()
    job = NewJob(task="a")
    await store.enqueue([job])
    (claim,) = await store.claim("default", "w", 1, LEASE)
    await store.settle([claim.settled(Succeeded())])
    await store.close()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    assert not enqueue_in(connection, [job])[0].created
    connection.rollback()
    connection.close()


# --- two libraries in one process -----------------------------------------------------------------------------


async def test_another_library_is_refused_while_dibs_has_the_file_open(path: Path) -> None:
    store = SQLiteStore(path)
    await store.setup()
    connection = sqlite3.connect(path)
    with pytest.raises(ConfigurationError, match="two SQLite libraries"):
        enqueue_in(connection, [NewJob(task="a")])
    await store.close()
    assert enqueue_in(connection, [NewJob(task="a")])[0].created
    connection.close()


async def test_the_same_library_may_enqueue_while_dibs_has_the_file_open(path: Path) -> None:
    store = SQLiteStore(path)
    await store.setup()
    connection = apsw.Connection(str(path))
    with connection:
        assert enqueue_in(connection, [NewJob(task="a")])[0].created
    assert [claim.task for claim in await store.claim("default", "w", 9, LEASE)] == ["a"]
    connection.close()
    await store.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells which files a process has open")
async def test_a_file_that_another_library_has_open_is_not_opened(path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM orders").fetchall()
    store = SQLiteStore(path)
    with pytest.raises(ConfigurationError, match="a file of its own"):
        await store.setup()
    connection.close()
    await store.setup()
    await store.close()


async def test_a_connection_in_use_by_another_thread_keeps_no_store_from_opening(path: Path, tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    def dawdle(*_: Any) -> bool:
        begun.set()
        return over.wait(30)

    other = apsw.Connection(str(tmp_path / "other.db"))
    other.create_scalar_function("dawdle", dawdle, 0)
    thread = threading.Thread(target=lambda: other.execute("SELECT dawdle()").fetchall())
    thread.start()
    assert begun.wait(30)
    store = SQLiteStore(path)
    await store.setup()
    await store.close()
    over.set()
    thread.join()
    other.close()


def test_what_is_refused_begins_nothing(connection: sqlite3.Connection) -> None:
    with pytest.raises(Refused):
        enqueue_in(connection, [NewJob(task="fine"), NewJob(task="")])
    assert not connection.in_transaction


def test_a_failure_in_the_middle_leaves_nothing_of_the_call(path: Path, connection: sqlite3.Connection) -> None:
    calls = 0

    def execute(statement: str, params: Any) -> list[Any]:
        nonlocal calls
        calls += statement.startswith("INSERT")
        if calls == 3:
            calls = -100
            raise OSError("the disk went away")
        return connection.execute(statement, params).fetchall()

    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(OSError, match="went away"):
        enqueue_with(execute, [NewJob(task="t") for _ in range(5)])
    connection.commit()
    assert _stored(path) == (1, [])


def test_without_a_transaction_it_is_refused(path: Path) -> None:
    for autocommit in (sqlite3.connect(path, isolation_level=None), apsw.Connection(str(path))):
        with pytest.raises(ConfigurationError, match="begin one"):
            enqueue_in(autocommit, [NewJob(task="t")])
        autocommit.close()


def test_a_row_factory_does_no_harm(connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda _cursor, row: {"row": row}
    job = NewJob(task="a", key="k")
    enqueue_in(connection, [job])
    assert enqueue_in(connection, [NewJob(task="b", key="k")])[0].id == job.id


def test_a_database_without_the_tables_is_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(SchemaError, match="set up a store"):
        enqueue_in(connection, [NewJob(task="t")])
    connection.close()


def test_an_unknown_connection_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="run_sync"):
        enqueue_in(object(), [NewJob(task="t")])


async def test_a_commit_wakes_a_waiting_worker_and_a_rollback_does_not(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.setup()
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    waiting = asyncio.ensure_future(store.wait(["default"], timedelta(seconds=10)))
    connection.execute("BEGIN IMMEDIATE")
    enqueue_in(connection, [NewJob(task="t")])
    connection.execute("ROLLBACK")
    await looked(store)
    assert not waiting.done()
    connection.execute("BEGIN IMMEDIATE")
    enqueue_in(connection, [NewJob(task="t")])
    connection.execute("COMMIT")
    assert await asyncio.wait_for(waiting, 5) == {"default"}
    connection.close()
    await store.close()


# --- other drivers --------------------------------------------------------------------------------------------


def test_apsw(path: Path) -> None:
    connection = apsw.Connection(str(path))
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN IMMEDIATE; INSERT INTO orders VALUES (1)")
        enqueue_in(connection, [NewJob(task="a")])
        connection.execute(end)
    connection.close()
    assert _stored(path) == (1, ["a"])


@pytest.mark.parametrize("order_first", [True, False])
def test_sqlalchemy_connections_and_sessions(path: Path, order_first: bool) -> None:
    sa = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sa.create_engine(f"sqlite:///{path}")
    for opener in (engine.connect, lambda: orm.Session(engine)):
        for commit in (False, True):
            with opener() as connection:
                if order_first:
                    connection.execute(sa.text("INSERT INTO orders VALUES (1)"))
                enqueue_in(connection, [NewJob(task="a")])
                if not order_first:
                    connection.execute(sa.text("INSERT INTO orders VALUES (1)"))
                if commit:
                    connection.commit()
                else:
                    connection.rollback()
    engine.dispose()
    assert _stored(path) == (2, ["a", "a"])


async def test_sqlalchemy_s_async_connections_and_sessions(tmp_path: Path) -> None:
    for needed in ("aiosqlite", "greenlet"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"SQLAlchemy's async SQLite: {needed} is not installed")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    file = tmp_path / "jobs.db"
    await _set_up(file)
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    async with engine.connect() as connection:
        await connection.run_sync(enqueue_in, [NewJob(task="no")])
        await connection.rollback()
        await connection.run_sync(enqueue_in, [NewJob(task="a")])
        await connection.commit()
    async with AsyncSession(engine) as session:
        await session.run_sync(enqueue_in, [NewJob(task="b")])
        await session.commit()
    await engine.dispose()
    reader = sqlite3.connect(file)
    assert reader.execute("SELECT task FROM dibs_jobs ORDER BY id").fetchall() == [("a",), ("b",)]
    reader.close()


DJANGO = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
import django; django.setup()
from django.db import connection, transaction
from dibs.errors import ConfigurationError
from dibs.job import Enqueued, NewJob, OnConflict
from dibs.outcome import Succeeded
from dibs.stores.sqlite import enqueue_in

for fail in (True, False):
    try:
        with transaction.atomic():
            enqueue_in(connection, [NewJob(task="a")])
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES (%s)", [1])
            if fail:
                raise KeyError
    except KeyError:
        pass
try:
    enqueue_in(connection, [NewJob(task="b")])
except ConfigurationError as problem:
    assert "atomic" in str(problem)
else:
    raise AssertionError("accepted without a transaction")
"""


def test_django(path: Path) -> None:
    pytest.importorskip("django")
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, str(path)], env={"PYTHONPATH": SRC}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert _stored(path) == (1, ["a"])
