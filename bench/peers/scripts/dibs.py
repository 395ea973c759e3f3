"""dibs, as its guides say: ``App``, ``task.enqueue``, ``enqueue_many``, and ``dibs work`` with default settings."""

import os
import sys
from typing import Any

from bench.peers.scripts.side import URL, Job, handler, record, setting
from dibs import App
from dibs.job import UNFINISHED

SYNCHRONOUS = setting("synchronous", "")
app = App(f"{URL}?synchronous={SYNCHRONOUS}" if SYNCHRONOUS else URL)
BATCH = setting("batch", 0)


async def _many(jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        record(job["i"], job.get("t", 0.0))


noop: Any = app.task(name="noop", batch=BATCH)(_many) if BATCH else app.task(name="noop")(handler)
LEVELS = {level: noop.options(priority=level) for level in (-1, 0, 1)}


async def setup() -> None:
    from dibs import open_store

    store = open_store(f"{URL}{'&' if '?' in URL else '?'}migrate=auto" if URL.startswith("postgres") else URL)
    await store.setup()
    await store.close()


class Client:
    chunk = 10_000

    async def open(self) -> None:
        await app.store()

    async def close(self) -> None:
        await app.close()

    async def one(self, job: Job) -> None:
        if BATCH:
            await LEVELS[job.level].enqueue(job.arguments)
        else:
            await LEVELS[job.level].enqueue(**job.arguments)

    async def bulk(self, jobs: list[Job]) -> None:
        if BATCH:
            await noop.enqueue_many((job.arguments,) for job in jobs)
        elif any(job.level for job in jobs):
            await noop.enqueue_many(LEVELS[job.level].job(**job.arguments) for job in jobs)
        else:
            await noop.enqueue_many(job.arguments for job in jobs)


async def left() -> int:
    counts = await (await app.store()).counts()
    return sum(count for each in counts for state, count in each.states.items() if state in UNFINISHED)


def worker() -> None:
    options = ["--log-level", "warning"]
    if setting("c", 0):
        options += ["--concurrency", str(setting("c", 0))]
    os.execv(sys.executable, [sys.executable, "-m", "dibs", "work", "bench.peers.scripts.dibs:app", *options])
