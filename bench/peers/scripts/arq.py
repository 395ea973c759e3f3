import logging
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from bench.peers.scripts.side import URL, Job, handle_async, setting

ADDRESS = RedisSettings.from_dsn(URL)


async def noop(context: Any, i: int, t: float = 0.0) -> None:
    await handle_async(i, t)


class Client:
    chunk = 500

    async def open(self) -> None:
        self._pool = await create_pool(ADDRESS)

    async def close(self) -> None:
        await self._pool.aclose()

    async def one(self, job: Job) -> None:
        await self._pool.enqueue_job("noop", **job.arguments)


async def worker() -> None:
    logging.disable(logging.INFO)
    options = {"max_jobs": setting("c", 10), "poll_delay": setting("poll", 0.5)}
    await Worker([noop], redis_settings=ADDRESS, handle_signals=False, **options).async_run()
