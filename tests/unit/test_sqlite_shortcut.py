"""SQLite: who writes by itself and who takes the writer's thread."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
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


async def test_one_slow_commit_is_no_slow_disk(writer: Writer, watch: Watch) -> None:
    def take(seconds: float) -> int:
        watch.now += seconds
        return threading.get_ident()

    assert {await writer.ask_briefly(lambda _db, _now: take(0.003)) for _ in range(2)} == {threading.get_ident()}
    assert await writer.ask_briefly(thread) != threading.get_ident(), "6 ms are to be made good, twenty times"
    take(0.05)
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_who_writes_again_at_once_need_not_wait_for_the_event_loop(writer: Writer) -> None:
    round_ = asyncio.Event()
    asyncio.get_running_loop().call_soon(round_.set)
    assert {await writer.ask_briefly(thread) for _ in range(5)} == {threading.get_ident()}
    assert not round_.is_set()


async def test_who_writes_on_and_on_gives_way_to_others_every_millisecond(writer: Writer, watch: Watch) -> None:
    turns = [watch.now]

    async def count_turns() -> None:
        while True:
            turns.append(watch.now)
            await asyncio.sleep(0)

    def take_some(_db: Connection, _now: int) -> int:
        watch.now += 0.0003
        return threading.get_ident()

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        assert {await writer.ask_briefly(take_some) for _ in range(100)} == {threading.get_ident()}
        counting.cancel()
    assert watch.now > 100.029
    assert max(later - sooner for sooner, later in pairwise([*turns, watch.now])) < 0.0015


async def test_who_fails_on_and_on_gives_way_too(writer: Writer, watch: Watch) -> None:
    def fail(_db: Connection, _now: int) -> None:
        watch.now += 0.002
        raise LookupError

    round_ = asyncio.Event()
    asyncio.get_running_loop().call_soon(round_.set)
    with pytest.raises(LookupError):
        await writer.ask_briefly(fail)
    assert round_.is_set()


async def test_a_caller_who_is_cancelled_does_not_block_the_shortcut(writer: Writer, watch: Watch) -> None:
    def take_long(_db: Connection, _now: int) -> None:
        watch.now += 0.002

    leaving = asyncio.create_task(writer.ask_briefly(take_long))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_a_caller_whose_event_loop_ended_does_not_block_the_shortcut(writer: Writer, watch: Watch) -> None:
    def write_and_end() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(writer.ask_briefly(thread))
        loop.call_soon(loop.stop)  # before it has gone round
        loop.run_forever()
        assert task.result() == threading.get_ident()
        loop.close()

    await asyncio.to_thread(write_and_end)
    watch.now += 0.02
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


async def test_what_takes_more_than_one_statement_is_done_in_a_transaction_at_once(writer: Writer) -> None:
    asked: list[bool] = []

    def see(db: Connection, _now: int) -> int | None:
        asked.append(db.raw.in_transaction)
        return threading.get_ident() if db.raw.in_transaction else None

    assert await writer.ask_briefly(see, see) == threading.get_ident()
    assert asked == [False, True]


async def test_a_single_statement_that_fails_is_left_to_the_writer_s_thread(writer: Writer) -> None:
    def fail(_db: Connection, _now: int) -> None:
        raise apsw.FullError("no room")

    assert await writer.ask_briefly(thread, fail) not in (None, threading.get_ident())


async def test_a_clock_that_fails_leaves_no_transaction_open(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise LookupError("no time")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_now", fail)
        with pytest.raises(LookupError, match="no time"):
            await writer.ask_briefly(thread)
    assert await writer.ask_briefly(thread) == threading.get_ident()


async def test_the_log_is_kept_short_without_the_writer_s_thread_being_asked(
    store: SQLiteStore, tmp_path: Path
) -> None:
    jobs = [NewJob(task="t", args={"text": "x" * 60_000}) for _ in range(400)]
    for job in jobs:
        await store.enqueue([job])
    await store.counts()
    assert (tmp_path / "jobs.db").stat().st_size > 4_000_000, "nothing was copied from the log into the file"


class Disk:
    """One that takes its time, or fails, when the log is to be on it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.done = threading.Event()
        self.problem: OSError | None = None

    def fdatasync(self, _descriptor: int) -> None:
        self.asked.set()
        assert self.done.wait(30)
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync, raising=False)
    return disk


async def fill_the_log(store: SQLiteStore, disk: Disk) -> None:
    for _ in range(400):
        await store.enqueue([NewJob(task="t", args={"text": "x" * 60_000})])
        if disk.asked.is_set():
            break
    assert await asyncio.to_thread(disk.asked.wait, 30)


async def test_others_write_while_the_log_is_on_its_way_to_the_disk(
    store: SQLiteStore, writer: Writer, disk: Disk, tmp_path: Path
) -> None:
    await fill_the_log(store, disk)
    size = (tmp_path / "jobs.db").stat().st_size
    assert {await writer.ask_briefly(thread) for _ in range(10)} == {threading.get_ident()}
    assert (tmp_path / "jobs.db").stat().st_size == size
    disk.done.set()
    await writer.ask(thread)  # behind the copying
    assert (tmp_path / "jobs.db").stat().st_size > size


async def test_a_log_that_the_disk_would_not_take_is_copied_all_the_same(
    store: SQLiteStore, writer: Writer, disk: Disk, tmp_path: Path
) -> None:
    disk.problem = OSError("a bad moment")
    disk.done.set()
    size = (tmp_path / "jobs.db").stat().st_size
    await fill_the_log(store, disk)
    await writer.ask(thread)
    assert (tmp_path / "jobs.db").stat().st_size > size


async def test_a_log_that_every_commit_waits_for_is_not_sent_to_the_disk_again(tmp_path: Path, disk: Disk) -> None:
    store = SQLiteStore(tmp_path / "full.db")
    await store.setup()
    size = (tmp_path / "full.db").stat().st_size
    for _ in range(100):
        await store.enqueue([NewJob(task="t", args={"text": "x" * 60_000})])
    assert store._open is not None
    await store._open.writer.ask(thread)
    assert (tmp_path / "full.db").stat().st_size > size
    assert not disk.asked.is_set()
    await store.close()
