"""The bare loop over apsw: plain statements on the tables of dibs; for enqueue and latency on one of its own."""

import json
import time
from pathlib import Path
from typing import Any

import apsw

from bench.lib.sqlite import PRAGMAS, SQLiteLimit
from bench.lib.ways import QUEUE, TASK, text_of
from bench.peers.scripts.limit import BARE, fill, new_jobs, work
from bench.peers.scripts.side import URL, Job, record, setting
from dibs import open_store

PATH = URL.removeprefix("sqlite:///")
WAKES = bool(setting("wakes", 0))
LOOK = 0.001
"""Nothing wakes another process on SQLite: it has to look."""


def _connect() -> Any:
    connection = apsw.Connection(PATH)
    connection.set_busy_timeout(10_000)
    connection.execute(PRAGMAS).fetchall()
    return connection


async def setup() -> None:
    store = open_store(URL)
    await store.setup()
    await store.close()
    _connect().execute(text_of("sql/bare_sqlite_table.sql")).fetchall()


class Client:
    chunk = 10_000

    async def open(self) -> None:
        self._db = _connect()
        self._store = open_store(URL)
        await self._store.setup()

    async def close(self) -> None:
        await self._store.close()

    async def one(self, job: Job) -> None:
        self._bare([job])

    async def bulk(self, jobs: list[Job]) -> None:
        if BARE:
            self._bare(jobs)
        else:
            await fill(self._store, jobs)

    def _bare(self, jobs: list[Job]) -> None:
        now = time.time_ns() // 1000
        ids, args = [new.id.bytes for new in new_jobs(jobs)], [json.dumps(job.arguments) for job in jobs]
        self._db.execute("BEGIN IMMEDIATE")
        if len(jobs) == 1:
            self._db.execute(text_of("sql/bare_sqlite_enqueue.sql"), (ids[0], QUEUE, TASK, now, args[0]))
        else:
            rows = apsw.carray(tuple(id_ + text.encode() for id_, text in zip(ids, args, strict=True)))
            self._db.execute(text_of("sql/bare_sqlite_enqueue_many.sql"), (rows, QUEUE, TASK, now))
        self._db.execute("COMMIT")


async def worker() -> None:
    if not WAKES:
        return await work(SQLiteLimit(URL, Path(PATH)))
    db, seen = _connect(), -1
    while True:
        version = db.execute("PRAGMA data_version").fetchall()[0][0]
        if version == seen:
            time.sleep(LOOK)
            continue
        seen = version
        for (args,) in db.execute(text_of("sql/bare_sqlite_take.sql"), (QUEUE,)).fetchall():
            record(**json.loads(args))
