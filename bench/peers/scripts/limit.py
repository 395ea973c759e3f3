"""What the three limits share: a loop that claims, runs and settles, with nothing around it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from bench.lib.ways import QUEUE, TASK, Way
from bench.peers.scripts.side import WORK, Job, handle_async, record, setting
from dibs import NewJob, Store

BATCH = 200
REST = 0.01
"""Seconds before a queue that had nothing is asked again."""
BARE = bool(setting("bare", 0))
"""Enqueue into a table of its own instead of those of dibs."""
_ARGUMENTS = 3
"""Where the arguments stand in a claim of a bare way."""


def new_jobs(jobs: Sequence[Job]) -> list[NewJob]:
    return [NewJob(task=TASK, args=job.arguments, queue=QUEUE) for job in jobs]


async def fill(store: Store, jobs: Sequence[Job]) -> None:
    """Through dibs itself: the limit claims from its tables."""
    await store.enqueue(new_jobs(jobs))


async def work(way: Way) -> None:
    """Until killed."""
    while True:
        await (_many(way, setting("c", 100)) if WORK else _one_batch(way))


async def _one_batch(way: Way) -> None:
    claims = await way.claim(0, BATCH)
    if not claims:
        return await asyncio.sleep(REST)
    for claim in claims:
        record(**claim[_ARGUMENTS])
    await way.settle(0, claims)


async def _many(way: Way, slots: int) -> None:
    """Jobs that take their time, so many at once; those that have ended are settled together."""
    running: dict[asyncio.Task[None], Any] = {}
    while True:
        if len(running) < slots:
            for claim in await way.claim(0, slots - len(running)):
                running[asyncio.create_task(handle_async(**claim[_ARGUMENTS]))] = claim
        if not running:
            return await asyncio.sleep(REST)
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await way.settle(0, [running.pop(task) for task in done])
