import logging
from typing import Any

from saq import Job as SaqJob
from saq import Queue, Worker

from bench.peers.scripts.side import PLAIN, URL, Job, handle, handle_async, setting

POSTGRES = URL.startswith("postgres")


async def noop(context: Any, *, i: int, t: float = 0.0) -> None:
    await handle_async(i, t)


def plain_noop(context: Any, *, i: int, t: float = 0.0) -> None:
    handle(i, t)


def _queue(**options: Any) -> Any:
    return Queue.from_url(URL, name="default", **options)


async def setup() -> None:
    if POSTGRES:
        queue = _queue()
        await queue.connect()
        await queue.disconnect()


class Client:
    chunk = 500

    async def open(self) -> None:
        self._queue = _queue()
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def one(self, job: Job) -> None:
        options = {"priority": job.level} if POSTGRES and job.level else {}
        await self._queue.enqueue(SaqJob("noop", kwargs=job.arguments, **options))


async def worker() -> None:
    logging.disable(logging.INFO)
    queue = _queue(**({"max_size": 20} if POSTGRES else {}))
    function = plain_noop if PLAIN else noop
    await queue.connect()
    await Worker(queue, functions=[("noop", function)], concurrency=setting("c", 10)).start()
