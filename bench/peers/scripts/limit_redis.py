"""The bare loop over redis-py: scripts of the kind that dibs has; for latency RPUSH and BLPOP."""

import json
from typing import Any

from redis.asyncio import Redis

from bench.lib.redis import RedisLimit
from bench.peers.scripts.limit import new_jobs, work
from bench.peers.scripts.side import URL, Job, record, setting

WAKES = bool(setting("wakes", 0))


class Client:
    async def open(self) -> None:
        self._limit = RedisLimit(URL, 1)
        await self._limit.load()
        self._pool: Any = Redis.from_url(URL)

    async def close(self) -> None:
        await self._limit.close()
        await self._pool.aclose()

    async def one(self, job: Job) -> None:
        if WAKES:
            await self._pool.rpush("bare", json.dumps(job.arguments))
        else:
            await self._limit.send(new_jobs([job]), self._pool)

    async def bulk(self, jobs: list[Job]) -> None:
        await self._limit.send(new_jobs(jobs))


async def worker() -> None:
    if not WAKES:
        limit = RedisLimit(URL, 1)
        await limit.load()
        return await work(limit)
    client: Any = Redis.from_url(URL)
    while True:
        _, args = await client.blpop("bare")
        record(**json.loads(args))
