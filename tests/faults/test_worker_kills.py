"""A random worker is killed every now and then, and another takes its place: no job is lost, none has two owners."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from random import Random

from dibs.job import State
from dibs.store import Store
from dibs.stores import open_store
from tests.process.workers import Process, enqueue, faults
from tests.unit.working import until

FULL = os.environ.get("DIBS_FAULTS") == "full"
JOBS = 100_000 if FULL else 5_000
KILLS = 20 if FULL else 3


async def _left(store: Store) -> int:
    [counts] = await store.counts()
    return sum(counts.states[state] for state in (State.QUEUED, State.RUNNING))


async def test_workers_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    store, random, names = open_store(url), Random(11), iter(range(1_000))
    await store.setup()
    ids = []
    for _ in range(0, JOBS, 5_000):
        ids += await enqueue(store, "hold", 5_000, 0.02, max_attempts=100)
    with ExitStack() as stack:

        def start() -> Process:
            process = Process(url, tmp_path, f"w{next(names)}", lease=1, concurrency=10)
            stack.callback(process.close)
            return process

        crew = [start() for _ in range(3)]
        for _ in range(KILLS):
            await _get_on(store, random.randrange(JOBS // KILLS // 4, JOBS // KILLS // 2))
            victim = crew.pop(random.randrange(len(crew)))
            victim.send(signal.SIGKILL)
            victim.end()
            crew.append(start())
        await until(lambda: _is_empty(store), 600 if FULL else 60)
        for process in crew:
            process.wait_until_ready()
            process.send(signal.SIGTERM)
            process.stats()
    assert await faults(store, tmp_path, ids) == []
    [counts] = await store.counts()
    assert counts.states[State.SUCCEEDED] == len(ids)
    await store.close()


async def _get_on(store: Store, jobs: int) -> None:
    """Until so many more have ended."""
    goal = max(0, await _left(store) - jobs)

    async def reached() -> bool:
        return await _left(store) <= goal

    await until(reached, 60)


async def _is_empty(store: Store) -> bool:
    await asyncio.sleep(0.1)
    return await _left(store) == 0
