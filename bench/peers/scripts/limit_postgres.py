"""The bare loop over asyncpg: plain statements on the tables of dibs; for enqueue and latency on one of its own."""

import asyncio
import json
from typing import Any

import asyncpg

from bench.lib.postgres import PostgresLimit
from bench.lib.ways import QUEUE, TASK, text_of
from bench.peers.scripts.limit import BARE, fill, new_jobs, work
from bench.peers.scripts.side import URL, Job, record, setting
from dibs import open_store

WAKES = bool(setting("wakes", 0))


async def setup() -> None:
    store = open_store(f"{URL}?migrate=auto")
    await store.setup()
    await store.close()
    connection = await asyncpg.connect(URL)
    await connection.execute(text_of("sql/bare_postgres_table.sql"))
    await connection.close()


class Client:
    chunk = 10_000

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(URL, min_size=1, max_size=10)
        self._store = open_store(URL)
        await self._store.setup()

    async def close(self) -> None:
        await self._pool.close()
        await self._store.close()

    async def one(self, job: Job) -> None:
        (new,) = new_jobs([job])
        if WAKES:
            await self._pool.execute(
                text_of("sql/bare_postgres_wake.sql"), QUEUE, TASK, new.id, json.dumps(job.arguments)
            )
        else:
            await self._bare([job])

    async def bulk(self, jobs: list[Job]) -> None:
        await (self._bare(jobs) if BARE else fill(self._store, jobs))

    async def _bare(self, jobs: list[Job]) -> None:
        ids = [new.id for new in new_jobs(jobs)]
        args = [json.dumps(job.arguments) for job in jobs]
        await self._pool.execute(text_of("sql/bare_postgres_enqueue.sql"), QUEUE, TASK, ids, args)


async def worker() -> None:
    await (_woken() if WAKES else work(await PostgresLimit.open(URL, 1)))


async def _woken() -> None:
    """LISTEN, and take what is there."""
    listening = await asyncpg.connect(URL)
    taking = await asyncpg.connect(URL)
    take: Any = await taking.prepare(text_of("sql/bare_postgres_take.sql"))
    woken = asyncio.Event()
    await listening.add_listener("bare", lambda *_: woken.set())
    while True:
        rows = await take.fetch(QUEUE)
        for (args,) in rows:
            record(**json.loads(args))
        if not rows:
            await woken.wait()
            woken.clear()
