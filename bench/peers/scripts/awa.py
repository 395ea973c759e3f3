import asyncio
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from bench.peers.scripts.side import URL, Job, by_level, handle_async, setting


@dataclass
class Noop:
    i: int
    t: float = 0.0


async def setup() -> None:
    client = AsyncClient(URL)
    await client.migrate()
    await client.install_queue_storage()


class Client:
    async def open(self) -> None:
        self._client = AsyncClient(URL)

    async def close(self) -> None:
        await self._client.close()

    async def one(self, job: Job) -> None:
        await self._client.insert(Noop(job.i, job.t), queue="bench", priority=2 + job.level)

    async def bulk(self, jobs: list[Job]) -> None:
        for level, group in by_level(jobs):
            rows = [Noop(job.i, job.t) for job in group]
            await self._client.enqueue_many_copy(rows, queue="bench", priority=2 + level)


async def left() -> int:
    stats = await AsyncClient(URL).queue_stats()
    return sum(each.scheduled + each.available + each.retryable + each.running for each in stats)


async def worker() -> None:
    client: Any = AsyncClient(URL)

    async def noop(job: Any) -> None:
        await handle_async(job.args.i, job.args.t)

    client.task(Noop, queue="bench")(noop)
    await client.start([("bench", setting("c", 10))])
    await asyncio.Event().wait()
