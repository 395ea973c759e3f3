import os
from typing import Any

from redis.asyncio import Redis
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from bench.peers.scripts.side import URL, Job, handler, setting

STREAM = bool(setting("stream", 0))
CLIENT: Any = Redis.from_url(URL)
if STREAM:
    broker: Any = RedisStreamBroker(url=URL, consumer_id="0", xread_count=setting("xread", 100))
else:
    broker = ListQueueBroker(url=URL)
noop: Any = broker.task(task_name="noop")(handler)


async def setup() -> None:
    await broker.startup()
    await broker.shutdown()


class Client:
    chunk = 500

    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def one(self, job: Job) -> None:
        await noop.kiq(**job.arguments)


async def left() -> int:
    if not STREAM:
        waiting: int = await CLIENT.llen("taskiq")
        return waiting
    # A stream is never shortened: what was not read yet, and what was read and not acknowledged.
    groups = await CLIENT.xinfo_groups("taskiq")
    return sum(int(group["pending"]) + int(group["lag"] or 0) for group in groups)


def worker() -> None:
    command = ["taskiq", "worker", "bench.peers.scripts.taskiq:broker", "--workers", "1", "--log-level", "WARNING"]
    command += ["--max-async-tasks", str(setting("c", 100)), "--max-prefetch", str(setting("prefetch", 0))]
    os.execvp("taskiq", command)
