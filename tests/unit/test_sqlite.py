"""SQLite: URLs, opening files, the schema, query plans and waiting. The contract suite has the rest."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from dibs.clock import from_micros, system_clock
from dibs.errors import ConfigurationError, DibsError, SchemaError, StoreUnavailable
from dibs.job import Filter, NewJob, State
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.stores.sqlite import SQLiteStore, schema
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.filters import halves
from dibs.stores.sqlite.options import parse
from dibs.stores.sqlite.schema import open_schema
from tests.unit.sqlite import looked

_: type[Store] = SQLiteStore

LEASE = timedelta(seconds=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path, synchronous="normal")
    await made.setup()
    yield made
    await made.close()


def one_line(problem: DibsError) -> str:
    assert "\n" not in str(problem)
    return str(problem)


# --- URLs -----------------------------------------------------------------------------------------------------


def test_three_slashes_are_relative_and_four_are_absolute() -> None:
    assert parse("sqlite:///jobs.db").path == Path("jobs.db")
    assert parse("sqlite:////srv/my%20jobs.db").path == Path("/srv/my jobs.db")


def test_a_url_sets_the_options() -> None:
    options = parse("sqlite:///jobs.db?synchronous=normal&busy_timeout=2.5&max_bytes=4096&migrate=auto")
    assert (options.synchronous, options.busy_timeout, options.limits.max_bytes) == ("normal", 2.5, 4096)
    assert options.migrate


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("postgresql://x/y", "sqlite:///"),
        ("sqlite:///j.db?speed=9", "busy_timeout, max_bytes, migrate, synchronous"),
        ("sqlite:///j.db?synchronous=off", "full or normal"),
        ("sqlite:///j.db?busy_timeout=soon", "busy_timeout"),
        ("sqlite:///j.db?busy_timeout=nan", "busy_timeout"),
        ("sqlite:///j.db?max_bytes=-1", "max_bytes"),
        ("sqlite:///j.db?migrate=yes", "auto"),
        ("sqlite:///j.db?migrate=auto&migrate=auto", "twice"),
    ],
)
def test_a_wrong_url_is_refused_with_advice(url: str, advice: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SQLiteStore.from_url(url)
    assert advice in one_line(caught.value)


# --- opening --------------------------------------------------------------------------------------------------


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"folder of .* does not exist: create it"):
        await SQLiteStore(tmp_path / "no" / "jobs.db").setup()


async def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder: name a file in it"):
        await SQLiteStore(tmp_path).setup()


async def test_another_kind_of_file_is_left_alone(path: Path) -> None:
    text = "not a database, but long enough to look like one\n" * 100
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is no SQLite database"):
        await SQLiteStore(path).setup()
    assert path.read_text() == text


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_cannot_be_written_is_said(what: str) -> None:
    """In a process without root's rights, where this one has them."""
    with TemporaryDirectory(dir="/tmp") as folder:
        target = Path(folder, "jobs.db")
        asyncio.run(_set_up_once(target))
        os.chmod(folder, 0o555)
        os.chmod(target, 0o444 if what == "file" else 0o666)
        said = _as_nobody(
            "from dibs.errors import DibsError\n"
            "try: asyncio.run(SQLiteStore(sys.argv[1]).setup())\n"
            "except DibsError as problem: print(type(problem).__name__, problem)",
            str(target),
        )
        os.chmod(folder, 0o755)
    assert said.startswith(("ConfigurationError", "StoreUnavailable"))
    assert "its folder" in said
    assert len(said.splitlines()) == 1


async def _set_up_once(path: Path) -> None:
    store = SQLiteStore(path)
    await store.setup()
    await store.close()


def _as_nobody(program: str, *arguments: str) -> str:
    """Run a program that gives up root's rights, if it has them, once everything is imported."""
    become = "import asyncio, encodings.idna, os, sys, concurrent.futures.thread\n"
    become += "from dibs.stores.sqlite import SQLiteStore\n"
    become += "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    done = subprocess.run(
        [sys.executable, "-c", become + program, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(schema.__file__).parents[3])},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_handle_that_is_not_open_says_so(path: Path) -> None:
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="call setup"):
        await store.counts()
    await store.setup()
    await store.setup()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="call setup"):
        await store.enqueue([NewJob(task="t")])


async def test_close_gives_back_threads_and_files_and_the_handle_opens_again(path: Path) -> None:
    store, before = SQLiteStore(path), _threads()
    for _round in range(2):
        await store.setup()
        names = {thread.name for thread in _threads() - before}
        assert {"dibs-sqlite-writer", "dibs-sqlite-reader", "dibs-sqlite-watcher"} <= names
        await store.enqueue([NewJob(task="t")])
        await store.close()
        assert _threads() <= before
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["jobs.db"]
    assert not [fd for fd in os.listdir("/proc/self/fd") if _leads_to(fd, path)]


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("dibs-sqlite")}


def _leads_to(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(path))
    except OSError:
        return False


# --- schema ---------------------------------------------------------------------------------------------------


async def test_setup_creates_the_schema_in_an_empty_file(path: Path) -> None:
    path.touch()
    await _set_up_once(path)
    status = await open_schema(f"sqlite:///{path}").status()
    assert (status.current, status.pending) == (schema.LATEST, ())


async def test_eight_processes_may_set_up_at_once(path: Path) -> None:
    program = (
        "import asyncio, sys; from dibs.stores.sqlite import SQLiteStore\n"
        "async def main():\n"
        "    store = SQLiteStore(sys.argv[1]); await store.setup(); await store.close()\n"
        "asyncio.run(main())"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(schema.__file__).parents[3])}
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], env=env, stderr=subprocess.PIPE) for _ in range(8)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, errors
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM dibs_schema").fetchall() == [(len(schema.MIGRATIONS),)]
    connection.close()


async def test_the_tables_of_dibs_are_not_taken_for_an_application_s(path: Path) -> None:
    """They may appear between two looks at the file, when another process is setting it up."""
    store = SQLiteStore(path)
    await store.setup()
    await store.close()
    connection = apsw.Connection(str(path))
    assert connection.execute(schema._OTHERS).fetchall() == []
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert connection.execute(schema._OTHERS).fetchall() == [(1,)]
    connection.close()


async def test_a_file_with_other_tables_is_not_touched_unless_told(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE customers (name); PRAGMA user_version = 42")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="migrate=auto"):
        await SQLiteStore(path).setup()
    assert (await open_schema(f"sqlite:///{path}").status()).current == 0
    assert path.read_bytes() == before
    store = SQLiteStore.from_url(f"sqlite:///{path}?migrate=auto")
    await store.setup()
    await store.close()
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA user_version").fetchall() == [(42,)]
    connection.close()
    await _set_up_once(path)


async def test_an_older_schema_is_migrated_only_if_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _set_up_once(path)
    newer = schema.Migration(schema.LATEST + 1, "0099_more.sql")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, newer))
    monkeypatch.setattr(schema, "LATEST", newer.version)
    monkeypatch.setattr(schema, "script", lambda _folder, _name: "CREATE TABLE dibs_more (x)")
    with pytest.raises(SchemaError, match="run dibs migrate"):
        await SQLiteStore(path).setup()
    assert (await open_schema(f"sqlite:///{path}").status()).pending == ("0099_more.sql",)
    assert await open_schema(f"sqlite:///{path}").up() == ("0099_more.sql",)
    assert await open_schema(f"sqlite:///{path}").up() == ()
    await _set_up_once(path)
    assert "dibs_more" in await open_schema(f"sqlite:///{path}").dump()


async def test_a_migration_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "script", lambda _folder, _name: "CREATE TABLE dibs_x (x); CREATE TABLE dibs_x (x)")
    with pytest.raises(StoreUnavailable):
        await SQLiteStore(path).setup()
    assert await open_schema(f"sqlite:///{path}").dump() == ""


async def test_a_newer_schema_asks_for_a_newer_dibs(path: Path) -> None:
    await _set_up_once(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO dibs_schema VALUES (999, 'x', 0)")
    connection.close()
    with pytest.raises(SchemaError, match="upgrade dibs"):
        await SQLiteStore(path).setup()


# --- query plans ----------------------------------------------------------------------------------------------


@pytest.fixture(params=[0, 1, 3_000], ids=["no statistics", "of one job", "of many jobs"])
async def analysed(request: pytest.FixtureRequest, store: SQLiteStore, path: Path) -> Path:
    """A file that somebody may have had analysed, most likely while there was little to do."""
    jobs: int = request.param
    if jobs:
        await store.enqueue([NewJob(task="t") for _ in range(jobs)])
        if jobs > 1:
            await store.claim("default", "w", jobs // 30, LEASE)
        connection = apsw.Connection(str(path))
        connection.execute("ANALYZE").fetchall()
        connection.close()
    return path


@pytest.mark.parametrize(
    ("statement", "parameters", "expected"),
    [
        (sql.TAKE[0], 8, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.TAKE[1], 8, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.FIRST_DUE[0], 5, "USING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.FIRST_DUE[1], 5, "USING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.TAKE_ALL, 5, "SEARCH dibs_jobs USING COVERING INDEX sqlite_autoindex_dibs_jobs_1 (id=?)"),
        (sql.SUCCEED_ALL, 3, "SEARCH dibs_jobs USING INDEX sqlite_autoindex_dibs_jobs_1 (id=?)"),
        (sql.REMOVE_ALL, 1, "SEARCH dibs_jobs USING INDEX sqlite_autoindex_dibs_jobs_1 (id=?)"),
        (sql.PULSES, 3, "SEARCH job USING INDEX sqlite_autoindex_dibs_jobs_1 (id=?)"),
        (sql.BEAT_ALL, 4, "SEARCH dibs_jobs USING INDEX sqlite_autoindex_dibs_jobs_1 (id=?)"),
        (sql.ENQUEUE_ALIKE, 10, "SEARCH dibs_history USING COVERING INDEX"),
        (sql.NEXT_PRIORITY, 3, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.LINE_UP, 2, "USING INDEX dibs_leases (queue=? AND ready=? AND locked_until<?)"),
        (sql.LOOK, 2, "USING COVERING INDEX dibs_leases (queue=? AND ready=? AND locked_until<?)"),
        (sql.LOOK, 2, "USING COVERING INDEX dibs_special (state=? AND queue=? AND expires_at<?)"),
        (sql.READY, 2, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.WALK[0], 7, "dibs_ready (queue=? AND line=? AND priority=? AND (run_at,id)>(?,?) AND run_at<?)"),
        (sql.WALK[1], 7, "USING INDEX dibs_ready (queue=? AND line=? AND priority=? AND (run_at,id)<(?,?))"),
        (sql.NEXT_CLASSES[0], 5, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.BRING_BACK[0], 4, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=?)"),
        (sql.CLASSES, 1, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority>?)"),
        (sql.NOT_IN_TIME, 3, "USING COVERING INDEX dibs_special (state=? AND queue=? AND expires_at<?)"),
        (sql.USE_OF_QUEUE, 2, "USING COVERING INDEX dibs_leases (queue=? AND ready=? AND locked_until>?)"),
        (sql.USE_OF_KEYS, 2, "USING COVERING INDEX dibs_counted (queue=? AND locked_until>?)"),
        (sql.KNOWN_USE_OF_KEYS, 2, "SEARCH known USING PRIMARY KEY (kind=? AND name=? AND key=?)"),
        (sql.ENQUEUE_ONE, 13, "USING COVERING INDEX dibs_windows (queue=? AND key=? AND unique_until>?)"),
        (sql.KEY_HOLDERS, 1, "USING INDEX dibs_keys (queue=? AND key=?)"),
        (sql.WINDOW_HOLDERS, 2, "USING INDEX dibs_windows (queue=? AND key=? AND unique_until>?)"),
        (sql.KNOWN_IDS, 1, "SEARCH dibs_history USING COVERING INDEX"),
        (sql.PRUNE, 4, "USING COVERING INDEX dibs_finished (state=? AND finished_at<?)"),
        (sql.COUNT_DUE, 5, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at<?)"),
        (sql.COUNT_SCHEDULED, 5, "USING COVERING INDEX dibs_ready (queue=? AND line=? AND priority=? AND run_at>?)"),
        (sql.COUNT_ENDED, 3, "USING COVERING INDEX dibs_finished (state=? AND finished_at>?)"),
        (sql.FLOOR_ENDED, 3, "USING COVERING INDEX dibs_unsuccessful (state=? AND id<?)"),
    ],
)
async def test_hot_statements_search_an_index_and_sort_nothing(
    analysed: Path, statement: str, parameters: int, expected: str
) -> None:
    connection = apsw.Connection(str(analysed))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * parameters).fetchall()
    connection.close()
    details = [str(row[3]) for row in plan]
    assert any(expected in detail for detail in details)
    assert not any(detail.startswith(("SCAN dibs_jobs", "SCAN dibs_history")) for detail in details)
    if statement != sql.PRUNE:  # which merges three short lists
        assert not any("TEMP B-TREE" in detail for detail in details)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((State.FAILED,), "dibs_unsuccessful (state=?)"),
        ((State.FAILED, State.CANCELLED), "dibs_unsuccessful (state=?)"),
        ((State.RUNNING,), "dibs_leases"),
        ((State.WAITING,), "dibs_special (state=?)"),
    ],
)
async def test_lists_of_the_states_that_few_jobs_are_in_go_by_an_index(
    store: SQLiteStore, path: Path, states: tuple[State, ...], expected: str
) -> None:
    which = halves(Filter(states=states), None)
    connection = apsw.Connection(str(path))
    parts = [sql.UNFINISHED.format(where=where) for where in which.unfinished]
    parts += [sql.FINISHED.format(where=where) for where in which.finished]
    asked = f"EXPLAIN QUERY PLAN {' UNION ALL '.join(parts)} ORDER BY id DESC LIMIT 10"
    details = [str(row[3]) for row in connection.execute(asked, which.params).fetchall()]
    connection.close()
    assert sum(expected in detail for detail in details) == len(states), details
    if expected.startswith("dibs_unsuccessful"):
        assert not any("B-TREE" in detail for detail in details), details


async def test_a_claim_reads_neither_future_nor_running_jobs(store: SQLiteStore, path: Path) -> None:
    """Counted in steps of SQLite's virtual machine, which no busy machine can change."""
    await store.enqueue([NewJob(task="t") for _ in range(10)])
    before = await _claim_steps(store)
    later = system_clock() + timedelta(days=1)
    await store.enqueue([NewJob(task="t", priority=-10) for _ in range(2000)])
    assert len(await store.claim("default", "long", 2000, timedelta(hours=1))) == 2000
    await store.enqueue([NewJob(task="t", priority=-20, run_at=later) for _ in range(5000)])
    assert await _claim_steps(store) <= 2 * before


async def _claim_steps(store: SQLiteStore) -> int:
    opened = store._open
    assert opened is not None
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    opened.writer.db.raw.set_progress_handler(count, 10)
    assert len(await store.claim("default", "w", 1, LEASE)) == 1
    opened.writer.db.raw.set_progress_handler(None)
    return steps


# --- waiting --------------------------------------------------------------------------------------------------


async def test_another_process_s_enqueue_wakes_soon(store: SQLiteStore, path: Path) -> None:
    other = SQLiteStore(path, synchronous="normal")
    await other.setup()
    delays = []
    for turn in range(5):
        waiting = asyncio.ensure_future(store.wait([f"q{turn}"], timedelta(seconds=10)))
        await looked(store)
        await other.enqueue([NewJob(task="t", queue=f"q{turn}")])
        enqueued = time.monotonic()
        assert await waiting == {f"q{turn}"}
        delays.append(time.monotonic() - enqueued)
    await other.close()
    assert min(delays) < 0.05


async def test_a_job_that_becomes_due_wakes(store: SQLiteStore) -> None:
    due = system_clock() + timedelta(seconds=0.3)
    await store.enqueue([NewJob(task="t", run_at=due)])
    assert await store.wait(["default"], timedelta(0)) == frozenset()
    assert await store.wait(["default", "other"], timedelta(seconds=10)) == {"default"}
    assert due <= system_clock() < due + timedelta(seconds=5)


async def test_a_lease_that_ends_wakes(store: SQLiteStore) -> None:
    await store.enqueue([NewJob(task="t")])
    await store.claim("default", "w", 1, timedelta(seconds=1))
    assert await store.wait(["default"], timedelta(seconds=10)) == {"default"}


async def test_a_waiter_can_be_cancelled_and_close_ends_the_others(path: Path) -> None:
    store = SQLiteStore(path)
    await store.setup()
    cancelled, left = (asyncio.ensure_future(store.wait(["q"], timedelta(seconds=60))) for _ in range(2))
    await looked(store, 2)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await store.close()
    with pytest.raises(StoreUnavailable):
        await left


async def test_waiting_costs_next_to_no_processor_time(store: SQLiteStore) -> None:
    before = time.process_time()
    assert await store.wait(["a", "b"], timedelta(seconds=1)) == frozenset()
    assert time.process_time() - before < 0.4


# --- odds and ends --------------------------------------------------------------------------------------------


async def test_a_caller_sees_its_own_writes(store: SQLiteStore) -> None:
    for _ in range(50):
        (there,) = await store.enqueue([NewJob(task="t")])
        assert await store.get(there.id) is not None


async def test_pages_of_pruned_jobs_are_used_again(store: SQLiteStore, path: Path) -> None:
    from dibs.job import Retention

    nothing = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))
    sizes = []
    for _ in range(4):
        await store.enqueue([NewJob(task="t", args={"text": "x" * 500}) for _ in range(1000)])
        claims = await store.claim("default", "w", 1000, LEASE)
        await store.settle([claim.settled(Succeeded()) for claim in claims])
        assert await store.prune(nothing, 10_000) == 1000
        connection = apsw.Connection(str(path))
        sizes.append(int(str(connection.execute("PRAGMA page_count").fetchall()[0][0])))
        connection.close()
    assert sizes[-1] <= sizes[0] * 1.2


async def test_the_file_can_be_read_with_any_sqlite(store: SQLiteStore, path: Path) -> None:
    import sqlite3

    await store.enqueue([NewJob(task="t")])
    connection = sqlite3.connect(path)
    (row,) = connection.execute("SELECT task, state, run_at FROM dibs_jobs").fetchall()
    connection.close()
    assert row[:2] == ("t", State.QUEUED)
    assert from_micros(row[2]) <= system_clock()
