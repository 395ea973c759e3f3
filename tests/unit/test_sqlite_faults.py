"""SQLite under stress: group commit, full disks, held readers, many processes, forks."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

from dibs.errors import StoreUnavailable
from dibs.job import Enqueued, NewJob, State
from dibs.outcome import Succeeded, Verdict
from dibs.stores.sqlite import SQLiteStore, schema, writer
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection

SRC = str(Path(schema.__file__).parents[3])
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


@pytest.fixture
def outsider(path: Path, store: SQLiteStore) -> Iterator[apsw.Connection]:
    """A connection of another program."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    yield connection
    connection.close()


def raw(store: SQLiteStore) -> apsw.Connection:
    assert store._open is not None
    return store._open.writer.db.raw


def count_commits(store: SQLiteStore) -> list[int]:
    """A list that grows with every commit of the store's writer."""
    commits: list[int] = []

    def committing() -> bool:
        commits.append(1)
        return False

    raw(store).set_commit_hook(committing)
    return commits


async def integrity(path: Path) -> str:
    connection = apsw.Connection(str(path))
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchall()[0][0])
    finally:
        connection.close()


# --- group commit ---------------------------------------------------------------------------------------------


async def test_verbs_that_queue_up_share_a_commit(store: SQLiteStore, outsider: apsw.Connection) -> None:
    commits = count_commits(store)
    outsider.execute("BEGIN IMMEDIATE")
    calls = [asyncio.ensure_future(store.enqueue([NewJob(task="t")])) for _ in range(50)]
    await asyncio.sleep(0.1)
    assert not any(call.done() for call in calls)
    outsider.execute("COMMIT")
    assert all(answer[0].created for answer in await asyncio.gather(*calls))
    assert len(commits) <= 5


async def test_no_answer_comes_before_its_commit(store: SQLiteStore, outsider: apsw.Connection) -> None:
    for answers in await asyncio.gather(*(store.enqueue([NewJob(task="t")]) for _ in range(100))):
        found = outsider.execute("SELECT 1 FROM dibs_jobs WHERE id = ?", (answers[0].id.bytes,)).fetchall()
        assert found == [(1,)]


async def test_a_verb_that_fails_takes_only_its_own_writes_back(store: SQLiteStore, outsider: apsw.Connection) -> None:
    def broken(db: Connection, now: int) -> None:
        db.run(sql.ENQUEUE_ONE, (os.urandom(16), "q", "broken", 0, now, now, 5, None, None, None, "", "{}", "{}"))
        raise ZeroDivisionError

    outsider.execute("BEGIN IMMEDIATE")
    calls: list[Any] = []
    for _ in range(10):
        calls.append(asyncio.ensure_future(store.enqueue([NewJob(task="fine")])))
        calls.append(store._write(broken))
    await asyncio.sleep(0.05)
    outsider.execute("COMMIT")
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, ZeroDivisionError) for answer in answers[1::2])
    tasks = outsider.execute("SELECT task, count(*) FROM dibs_jobs GROUP BY task").fetchall()
    assert tasks == [("fine", 10)]


async def test_a_commit_that_fails_fails_all_of_its_group_and_stores_nothing(
    store: SQLiteStore, outsider: apsw.Connection
) -> None:
    outsider.execute("BEGIN IMMEDIATE")
    calls = [asyncio.ensure_future(store.enqueue([NewJob(task="t")])) for _ in range(20)]
    raw(store).set_commit_hook(lambda: True)  # SQLite then rolls back instead
    await asyncio.sleep(0.05)
    outsider.execute("COMMIT")
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert (await store.counts()) == []
    raw(store).set_commit_hook(None)
    assert (await store.enqueue([NewJob(task="t")]))[0].created


async def test_a_group_ends_when_it_is_old(store: SQLiteStore, outsider: apsw.Connection) -> None:
    commits = count_commits(store)
    outsider.execute("BEGIN IMMEDIATE")

    def slow(db: Connection, now: int) -> None:
        db.run(sql.PAUSE, ("q", 0))
        time.sleep(writer.GROUP_SECONDS * 0.6)

    calls = [store._write(slow) for _ in range(6)]
    await asyncio.sleep(0.02)
    outsider.execute("COMMIT")
    await asyncio.gather(*calls)
    assert len(commits) >= 3


async def test_what_was_cancelled_before_its_turn_is_not_done(store: SQLiteStore, outsider: apsw.Connection) -> None:
    outsider.execute("BEGIN IMMEDIATE")
    first = asyncio.ensure_future(store.enqueue([NewJob(task="first")]))
    await asyncio.sleep(0.05)
    second = asyncio.ensure_future(store.enqueue([NewJob(task="second")]))
    await asyncio.sleep(0)
    second.cancel()
    outsider.execute("COMMIT")
    await first
    await store.pause("q")  # stands behind both
    assert outsider.execute("SELECT task FROM dibs_jobs").fetchall() == [("first",)]


# --- no room --------------------------------------------------------------------------------------------------


async def test_a_full_file_is_said_and_nothing_is_lost(store: SQLiteStore) -> None:
    """As far as a limit on the pages of the file can play a full disk."""
    await store.enqueue([NewJob(task="t", args={"n": n}) for n in range(100)])
    claims = await store.claim("default", "w", 10, LEASE)
    pages = raw(store).execute("PRAGMA page_count").fetchall()[0][0]
    raw(store).execute(f"PRAGMA max_page_count = {pages}")
    big = NewJob(task="t", args={"text": "x" * 200_000})
    results = await asyncio.gather(
        store.enqueue([big]),
        store.settle([claim.settled(Succeeded()) for claim in claims[:5]]),
        store.enqueue([big]),
        return_exceptions=True,
    )
    assert isinstance(results[0], StoreUnavailable)
    assert "free space" in str(results[0])
    assert results[1] == [Verdict.ACCEPTED] * 5
    (counts,) = await store.counts()
    assert sum(counts.states.values()) == 100
    raw(store).execute("PRAGMA max_page_count = 1000000")
    assert (await store.enqueue([big]))[0].created
    assert await store.settle([claims[5].settled(Succeeded())]) == [Verdict.ACCEPTED]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte; only root can make one."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a full disk: cannot mount a small one here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_full_disk_is_said_and_work_goes_on_when_there_is_room(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    store = SQLiteStore(tiny_disk / "jobs.db")
    await store.setup()
    stored: list[Enqueued] = []

    async def fill() -> None:
        for _ in range(200):
            stored.extend(await store.enqueue([NewJob(task="t", args={"text": "x" * 20_000})]))

    with pytest.raises(StoreUnavailable, match="free space"):
        await fill()
    with pytest.raises(StoreUnavailable, match="free space"):
        await store.enqueue([NewJob(task="t", args={"text": "x" * 300_000})])
    for answer in stored:
        assert await store.get(answer.id) is not None
    ballast.unlink()
    claims = await store.claim("default", "w", 5, LEASE)
    assert await store.settle([claim.settled(Succeeded()) for claim in claims]) == [Verdict.ACCEPTED] * 5
    await store.close()
    assert await integrity(tiny_disk / "jobs.db") == "ok"


# --- locks and readers ----------------------------------------------------------------------------------------


async def test_a_lock_held_too_long_is_said(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=0.2)
    await store.setup()
    outsider = apsw.Connection(str(path))
    outsider.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"locked by another program for 0.2 s: .*busy_timeout"):
        await store.enqueue([NewJob(task="t")])
    assert await store.counts() == []  # readers do not care
    outsider.execute("ROLLBACK")
    outsider.close()
    assert (await store.enqueue([NewJob(task="t")]))[0].created
    await store.close()


async def test_a_held_reader_lets_the_wal_grow_says_so_and_it_shrinks_afterwards(
    store: SQLiteStore,
    path: Path,
    outsider: apsw.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(writer, "JOURNAL_LIMIT", 8 << 20)
    raw(store).execute("PRAGMA journal_size_limit = 8388608").fetchall()
    wal = Path(f"{path}-wal")
    await store.enqueue([NewJob(task="t")])
    outsider.execute("BEGIN; SELECT count(*) FROM dibs_jobs").fetchall()
    with caplog.at_level(logging.WARNING, "dibs.stores.sqlite"):
        while wal.stat().st_size < 20 << 20:
            await store.enqueue([NewJob(task="t", args={"text": "x" * 10_000}) for _ in range(100)])
    assert "end its transaction" in caplog.text
    outsider.execute("COMMIT")
    for _ in range(60):
        await store.enqueue([NewJob(task="t", args={"text": "x" * 10_000}) for _ in range(100)])
        if wal.stat().st_size < 16 << 20:
            break
    assert wal.stat().st_size < 16 << 20


# --- many processes -------------------------------------------------------------------------------------------

HAMMER = """
import asyncio, json, sys, threading
from datetime import timedelta
from dibs.job import NewJob
from dibs.outcome import Succeeded
from dibs.stores.sqlite import SQLiteStore

store, number = SQLiteStore(sys.argv[1], synchronous="normal"), sys.argv[2]
log, errors = [], []

async def work(name):
    await store.enqueue([NewJob(task="t") for _ in range(20)])
    while claims := await store.claim("default", name, 3, timedelta(seconds=60)):
        log.extend((claim.id.hex, claim.epoch) for claim in claims)
        verdicts = await store.settle([claim.settled(Succeeded()) for claim in claims])
        assert set(verdicts) == {"accepted"}

def run(name):
    try:
        asyncio.run(work(name))
    except BaseException as problem:
        errors.append(repr(problem))

async def main():
    await store.setup()
    threads = [threading.Thread(target=run, args=(f"{number}-{n}",)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: await asyncio.to_thread(thread.join)
    await store.close()

asyncio.run(main())
print(json.dumps([log, errors]))
"""


async def test_eight_processes_with_four_threads_each_never_see_a_lock(store: SQLiteStore, path: Path) -> None:
    await store.enqueue([NewJob(task="t") for _ in range(2000)])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(path), str(number)],
            env={**os.environ, "PYTHONPATH": SRC},
            stdout=subprocess.PIPE,
        )
        for number in range(8)
    ]
    outputs = [json.loads((await asyncio.to_thread(process.communicate))[0]) for process in processes]
    assert [error for _, errors in outputs for error in errors] == []
    claims = [tuple(claim) for log, _ in outputs for claim in log]
    assert len(claims) == len(set(claims)) == 2000 + 8 * 4 * 20
    (counts,) = await store.counts()
    assert counts.states[State.SUCCEEDED] == len(claims)
    assert await integrity(path) == "ok"


async def test_one_handle_serves_several_event_loops(store: SQLiteStore) -> None:
    created: list[bool] = []

    def run() -> None:
        async def work() -> None:
            created.extend([(await store.enqueue([NewJob(task="t")]))[0].created for _ in range(20)])

        asyncio.run(work())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(created) == 80


FORK = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from dibs.errors import StoreUnavailable
from dibs.job import NewJob
from dibs.stores.sqlite import SQLiteStore

def child(inherited):
    async def main():
        try:
            await inherited.enqueue([NewJob(task="t")])
        except StoreUnavailable as problem:
            assert "fork" in str(problem)
        else:
            raise AssertionError("the inherited handle was used")
        await inherited.close()
        own = SQLiteStore(sys.argv[1])
        await own.setup()
        for _ in range(20):
            await own.enqueue([NewJob(task="child")])
        await own.close()
    asyncio.run(main())

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.setup()
    busy = [asyncio.ensure_future(store.enqueue([NewJob(task="parent")])) for _ in range(20)]
    await asyncio.sleep(0.001)
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            asyncio._set_running_loop(None)
            try:
                child(store)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        pids.append(pid)
        busy += [asyncio.ensure_future(store.enqueue([NewJob(task="parent")])) for _ in range(20)]
        await asyncio.sleep(0.002)
    await asyncio.gather(*busy)
    for pid in pids:
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0, status
    await store.enqueue([NewJob(task="parent")])
    await store.close()

asyncio.run(main())
"""


async def test_a_fork_leaves_the_parent_alone_and_the_child_opens_its_own(path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FORK, str(path)],
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    connection = apsw.Connection(str(path))
    tasks = connection.execute("SELECT task, count(*) FROM dibs_jobs GROUP BY task").fetchall()
    connection.close()
    assert tasks == [("child", 80), ("parent", 101)]
    assert await integrity(path) == "ok"


# --- a process that dies --------------------------------------------------------------------------------------

BUSY = """
import asyncio, sys
from datetime import timedelta
from dibs.job import NewJob
from dibs.outcome import Succeeded
from dibs.stores.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.setup()
    async def work():
        while True:
            for answer in await store.enqueue([NewJob(task="t") for _ in range(3)]):
                print("enqueued", answer.id, flush=True)
            claims = await store.claim("default", "w", 2, timedelta(hours=1))
            await store.settle([claim.settled(Succeeded()) for claim in claims])
            for claim in claims:
                print("settled", claim.id, flush=True)
    await asyncio.gather(*(work() for _ in range(8)))

asyncio.run(main())
"""


async def test_a_killed_process_loses_nothing_that_was_answered(path: Path) -> None:
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", BUSY, str(path)], env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(100)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait()
        told = [line.decode().split() for line in lines if line.endswith(b"\n")]
        store = SQLiteStore(path)
        await store.setup()
        for what, job in told:
            found = await store.get(UUID(job))
            assert found is not None
            assert what == "enqueued" or found.state is State.SUCCEEDED
        await store.close()
        assert await integrity(path) == "ok"
