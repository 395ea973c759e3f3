"""SQLite: who writes by itself and who takes the writer's thread."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from dibs.job import NewJob
from dibs.stores.sqlite import SQLiteStore, shortcut
from dibs.stores.sqlite.connect import Connection
from dibs.stores.sqlite.writer import Writer


class Watch:
    """What the shortcut measures by: a busy machine is no slow disk."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(shortcut, "time", watch)
    return watch


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "jobs.db", synchronous="normal")
    await made.setup()
    yield made
    await made.close()


@pytest.fixture
def writer(store: SQLiteStore) -> Writer:
    assert store._open is not None
    return store._open.writer


def thread(_db: Connection, _now: int) -> int:
    return threading.get_ident()


async def test_who_comes_alone_writes_by_itself(writer: Writer) -> None:
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_those_who_come_together_share_the_writer_s_thread(writer: Writer) -> None:
    first, *others = await asyncio.gather(*(writer.ask_briefly(thread) for _ in range(5)))
    assert first == threading.get_ident()
    assert len(set(others)) == 1 and others[0] != first


async def test_after_a_crowd_the_next_but_one_writes_by_itself_again(writer: Writer) -> None:
    await asyncio.gather(*(writer.ask_briefly(thread) for _ in range(5)))
    assert await writer.ask_briefly(thread) != threading.get_ident()
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_after_something_slow_the_event_loop_is_spared_for_a_while(writer: Writer, watch: Watch) -> None:
    def take(seconds: float) -> None:
        watch.now += seconds

    await writer.ask_briefly(lambda _db, _now: take(0.5))
    assert await writer.ask_briefly(thread) != threading.get_ident()
    take(9.5)
    assert await writer.ask_briefly(thread) != threading.get_ident()
    take(1.0)
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_a_lock_of_another_process_does_not_hold_up_the_event_loop(store: SQLiteStore, tmp_path: Path) -> None:
    outsider = apsw.Connection(str(tmp_path / "jobs.db"))
    outsider.execute("BEGIN IMMEDIATE")
    enqueueing = asyncio.create_task(store.enqueue([NewJob(task="t")]))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not enqueueing.done()
    outsider.execute("COMMIT")
    assert (await enqueueing)[0].created
    outsider.close()


async def test_a_caller_who_is_cancelled_does_not_block_the_shortcut(writer: Writer) -> None:
    leaving = asyncio.create_task(writer.ask_briefly(thread))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_a_verb_that_fails_leaves_nothing_and_says_why(writer: Writer, store: SQLiteStore) -> None:
    def fail(db: Connection, _now: int) -> None:
        db.run("INSERT INTO dibs_queues (name) VALUES ('half')")
        raise LookupError("what the caller sees")

    with pytest.raises(LookupError, match="what the caller sees"):
        await writer.ask_briefly(fail)
    assert await store.counts() == []
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_an_error_of_sqlite_is_looked_at_again_by_the_writer_s_thread(writer: Writer) -> None:
    threads: list[int] = []

    def fail_once(_db: Connection, _now: int) -> str:
        threads.append(threading.get_ident())
        if len(threads) == 1:
            raise apsw.IOError("the disk had a bad moment")
        return "done"

    assert await writer.ask_briefly(fail_once) == "done"
    assert threads[0] == threading.get_ident() != threads[1]


async def test_the_log_is_kept_short_without_the_writer_s_thread_being_asked(
    store: SQLiteStore, tmp_path: Path
) -> None:
    jobs = [NewJob(task="t", args={"text": "x" * 60_000}) for _ in range(400)]
    for job in jobs:
        await store.enqueue([job])
    await store.counts()
    assert (tmp_path / "jobs.db").stat().st_size > 4_000_000, "nothing was copied from the log into the file"
