import logging
from typing import Any

from streaq import Worker

from bench.peers.scripts.side import URL, Job, handler, setting

# In the order of their weight, the least first.
PRIORITIES = ["low", "normal", "high"]
app: Any = Worker(
    redis_url=URL,
    concurrency=setting("c", 16),
    prefetch=setting("prefetch", 0) or None,
    queue_name="default",
    anyio_kwargs={"use_uvloop": True},
    priorities=PRIORITIES,
)
noop: Any = app.task(name="noop", silent=True)(handler)


class Client:
    async def open(self) -> None:
        self._context = app.__asynccontextmanager__()
        await self._context.__aenter__()

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def one(self, job: Job) -> None:
        await _started(job)

    async def bulk(self, jobs: list[Job]) -> None:
        await app.enqueue_many([_started(job) for job in jobs])


def _started(job: Job) -> Any:
    return noop.enqueue(**job.arguments).start(priority=PRIORITIES[1 - job.level])


def worker() -> None:
    logging.disable(logging.INFO)
    app.run_sync()
