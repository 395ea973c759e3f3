import json
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.peers.scripts.side import URL, Job, handle_async, setting


async def setup() -> None:
    connection = await asyncpg.connect(URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


class Client:
    """A pool, because its callers may be many at once."""

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(URL, min_size=1, max_size=10)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def close(self) -> None:
        await self._pool.close()

    async def one(self, job: Job) -> None:
        await self._queries.enqueue("noop", _payload(job), -job.level)

    async def bulk(self, jobs: list[Job]) -> None:
        await self._queries.enqueue(["noop"] * len(jobs), [_payload(job) for job in jobs], [-job.level for job in jobs])


def _payload(job: Job) -> bytes:
    return json.dumps(job.arguments).encode()


async def worker() -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    async def noop(job: Any) -> None:
        await handle_async(**json.loads(job.payload))

    queuer.entrypoint("noop")(noop)
    await queuer.run(batch_size=setting("batch", 10), max_concurrent_tasks=setting("c", 0) or None)
