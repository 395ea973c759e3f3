import os

import redis
from rq import Queue

from bench.peers.scripts.side import PLAIN, URL, Job, handle, handle_async, setting


def plain_noop(i: int, t: float = 0.0) -> None:
    handle(i, t)


async def async_noop(i: int, t: float = 0.0) -> None:
    await handle_async(i, t)


noop = plain_noop if PLAIN else async_noop


class Client:
    def open(self) -> None:
        self._queue = Queue(connection=redis.Redis.from_url(URL))

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        self._queue.enqueue(noop, kwargs=job.arguments)

    def bulk(self, jobs: list[Job]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(noop, kwargs=job.arguments) for job in jobs])


def worker() -> None:
    os.execvp("rq", ["rq", "worker", "-q", "-u", URL, "-w", f"rq.{setting('class', 'Worker')}", "default"])
