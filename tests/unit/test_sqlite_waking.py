"""How soon a handle that waits notices what another process, or another handle, has written."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from dibs.clock import system_clock
from dibs.job import NewJob
from dibs.stores.sqlite import SQLiteStore
from dibs.stores.sqlite import watching as watching_module
from dibs.stores.sqlite.bell import Bell, Woken
from dibs.stores.sqlite.connect import Connection
from dibs.stores.sqlite.options import parse
from dibs.stores.sqlite.watching import Waiter, Watcher
from tests.process.waiting import until

LONG = 10.0
on_linux = pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux tells of writes")


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell()
    yield bell
    bell.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def other(path: Path) -> AsyncIterator[SQLiteStore]:
    """Another handle on the file: it rings no bell of ours."""
    store = SQLiteStore(path)
    await store.setup()
    yield store
    await store.close()


# --- the bell -----------------------------------------------------------------------------------------------


def test_a_stroke_ends_a_wait_and_many_are_one(bell: Bell) -> None:
    for _ in range(100_000):  # more than any buffer holds
        bell.ring()
    while bell.wait(0) is Woken.STROKE:
        pass
    bell.ring()
    assert bell.wait(None) is Woken.STROKE
    assert bell.wait(0) is Woken.TIME


@on_linux
def test_a_write_to_the_file_that_it_follows_ends_a_wait_for_writes_only(bell: Bell, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    bell.follow(log)
    assert bell.follows()
    (tmp_path / "another").write_text("x")
    assert bell.wait(0, writes=True) is Woken.TIME
    log.write_text("x")
    assert bell.wait(0) is Woken.TIME
    assert bell.wait(LONG, writes=True) is Woken.WRITE
    assert not bell.written(), "it has been told"
    log.write_text("y")
    bell.ring()
    assert bell.wait(LONG, writes=True) is Woken.STROKE, "which says more"
    assert bell.written()
    bell.forsake()
    log.write_text("z")
    assert not bell.follows()
    assert bell.wait(0, writes=True) is Woken.TIME


def test_a_file_that_is_not_there_cannot_be_followed(bell: Bell, tmp_path: Path) -> None:
    bell.follow(tmp_path / "nothing")
    assert not bell.follows()
    bell.ring()
    assert bell.wait(LONG, writes=True) is Woken.STROKE


# --- waiting for others -------------------------------------------------------------------------------------


@asynccontextmanager
async def watching(path: Path, log: Path) -> AsyncIterator[Watcher]:
    """A watcher that is told of writes to that log, whosever it is."""
    watcher = Watcher(Connection(parse(f"sqlite:///{path}")), system_clock, log)
    try:
        yield watcher
    finally:
        await asyncio.to_thread(watcher.close)


async def hears_of(watcher: Watcher, store: SQLiteStore, queue: str) -> None:
    """Return when somebody who waits for a queue is told of a job in it."""
    waiter = Waiter(frozenset({queue}), None)
    watcher.add(waiter)
    await store.enqueue([NewJob(task="t", queue=queue)])
    async with asyncio.timeout(LONG):
        assert await waiter.future == {queue}


@on_linux
async def test_every_commit_of_another_handle_is_noticed(path: Path, other: SQLiteStore) -> None:
    mine = SQLiteStore(path)
    await mine.setup()
    for number in range(50):
        queue = f"q{number}"
        waiting = asyncio.create_task(mine.wait([queue], timedelta(seconds=LONG)))
        await asyncio.sleep(0)
        await other.enqueue([NewJob(task="t", queue=queue)])
        assert await waiting == {queue}
    await mine.close()


@on_linux
async def test_no_commit_comes_unannounced_where_the_log_is_followed(path: Path, other: SQLiteStore) -> None:
    async with watching(path, path.with_name("jobs.db-wal")) as watcher:
        for number in range(100):
            await hears_of(watcher, other, f"q{number}")
        assert watcher.bell.follows(), "it would have stopped listening"


@on_linux
def test_a_commit_that_comes_long_after_its_write_was_announced(
    bell: Bell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be slow, and a commit can be seen only when it is on it."""
    monkeypatch.setattr(watching_module, "_REST", 0.01)
    log = tmp_path / "log"
    log.write_text("")
    bell.follow(log)
    pace = watching_module._Pace(bell)
    for writes in (True, False):
        with log.open("a") as out:
            out.write("x" * writes)
        for _ in range(20):  # longer and longer, until it rests
            assert not pace.wait(1)
        pace.found_news()
        assert bell.follows() == writes, "who was told of nothing listens no more"


@pytest.mark.parametrize("log", ["nowhere", "another"])
async def test_commits_are_noticed_where_nobody_tells_of_writes(path: Path, other: SQLiteStore, log: str) -> None:
    (path.parent / "another").write_text("that nobody writes to")
    async with watching(path, path.parent / log) as watcher:
        for number in range(20):
            await hears_of(watcher, other, f"q{number}")


@on_linux
async def test_whoever_did_not_tell_of_a_commit_is_not_listened_to_any_more(path: Path, other: SQLiteStore) -> None:
    (path.parent / "another").write_text("that nobody writes to")
    async with watching(path, path.parent / "another") as watcher:
        waiter = Waiter(frozenset({"never"}), None)
        watcher.add(waiter)
        await until(watcher.bell.follows)
        async with asyncio.timeout(LONG):
            while watcher.bell.follows():
                await other.enqueue([NewJob(task="t")])
        watcher.remove(waiter)
