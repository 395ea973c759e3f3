"""SQLite: dibs, and direct calls of apsw in one thread on the same schema; a file on a disk, synchronous=FULL."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from bench.lib.arenas import Arena
from bench.lib.ways import LEASE, QUEUE, BareWay, DibsWay, Tally, Way, text_of, worker_of
from dibs import Store, open_store
from dibs.clock import span_micros

PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -16000;
PRAGMA temp_store = MEMORY;
"""
_TALLY = """
SELECT (SELECT count(*) FROM dibs_jobs WHERE state = 'queued'),
    (SELECT count(*) FROM dibs_jobs WHERE state = 'running'),
    (SELECT count(*) FROM dibs_history WHERE state = 'succeeded')
"""


class SQLiteLimit(BareWay):
    """One connection and one transaction for each call; nothing waits for another thread.

    More claimers change nothing here: calls follow one another. dibs lets those that wait share a commit, so with
    many claimers it can be faster than this.
    """

    def __init__(self, url: str, path: Path) -> None:
        self._url = url
        self._db: Any = apsw.Connection(str(path))
        self._db.execute(PRAGMAS).fetchall()
        self._lease = span_micros(LEASE)

    async def fill(self, count: int) -> list[UUID]:
        store = open_store(self._url)
        await store.setup()
        try:
            return await DibsWay(store).fill(count)
        finally:
            await store.close()

    async def claim(self, claimer: int, limit: int) -> list[Any]:
        db, now, decode = self._db, time.time_ns() // 1000, self.decode
        db.execute("BEGIN IMMEDIATE")
        db.execute(text_of("sql/sqlite_limit_expired.sql"), (QUEUE, now))
        fence = (QUEUE, now, limit, worker_of(claimer), now + self._lease)
        rows = db.execute(text_of("sql/sqlite_limit_claim.sql"), fence).fetchall()
        db.execute("COMMIT")
        rows.sort(key=_place)
        return [
            (id_, epoch, task, decode(args), priority, run_at, created_at, attempt, most, until, key,
             {} if meta == "{}" else decode(meta))
            for priority, run_at, id_, epoch, task, args, created_at, attempt, most, until, key, meta in rows
        ]  # fmt: skip

    def ids(self, claims: Sequence[Any]) -> list[bytes]:
        return [claim[0] for claim in claims]

    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        db, now, worker, results = self._db, time.time_ns() // 1000, worker_of(claimer), self.results(claims)
        db.execute("BEGIN IMMEDIATE")
        if len(claims) == 1:
            [(id_, epoch, *_)], ids = claims, claims[0][0]
            db.execute(text_of("sql/sqlite_limit_keep.sql"), (id_, epoch, worker, now, results[0]))
            remove = "sql/sqlite_limit_remove.sql"
        else:
            pairs = zip(claims, results, strict=True)
            fences = tuple(b"%b%010d%b" % (claim[0], claim[1], result.encode()) for claim, result in pairs)
            db.execute(text_of("sql/sqlite_limit_keep_many.sql"), (apsw.carray(fences), worker, now))
            ids, remove = apsw.carray(tuple(claim[0] for claim in claims)), "sql/sqlite_limit_remove_many.sql"
        accepted: int = db.changes()
        if accepted == len(claims):
            db.execute(text_of(remove), (ids,))
        db.execute("COMMIT" if accepted == len(claims) else "ROLLBACK")
        return accepted

    async def tally(self) -> Tally:
        return Tally(*self._db.execute(_TALLY).fetchall()[0])

    async def close(self) -> None:
        self._db.close()


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


class SQLiteArena(Arena):
    """A folder on a disk; a new file for every run."""

    name = "sqlite"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dibs-bench-", dir=disk()))
        self._files = 0

    async def stop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        return {"apsw": apsw.apsw_version(), "SQLite": apsw.sqlite_lib_version()}

    async def open(self, way: str, claimers: int) -> Way:
        for old in self._folder.glob("run-*"):
            old.unlink()
        self._files += 1
        path = self._folder / f"run-{self._files}.db"
        self.url = f"sqlite:///{path}?synchronous=full"
        store = await self._open_store(path)
        if way == "dibs":
            return DibsWay(store)
        await store.close()
        return SQLiteLimit(f"sqlite:///{path}", path)

    async def open_place(self, place: str) -> Store:
        return await self._open_store(self._folder / f"{place}.db")

    async def _open_store(self, path: Path) -> Store:
        store = open_store(f"sqlite:///{path}?synchronous=full")
        await store.setup()
        return store


ARENA = SQLiteArena


def disk() -> Path:
    """A folder that is not in memory: a commit must cost what it costs."""
    for folder in (Path(tempfile.gettempdir()), Path("/var/tmp"), Path(__file__).parents[1]):
        if folder.is_dir() and _file_system(folder) not in ("tmpfs", "ramfs"):
            return folder
    raise RuntimeError("every folder for temporary files is in memory: set TMPDIR to one on a disk")


def _file_system(folder: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    entries = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    above = [(point, kind) for point, kind in entries if folder.resolve().is_relative_to(point)]
    return max(above, key=lambda entry: len(entry[0]), default=("", "unknown"))[1]
