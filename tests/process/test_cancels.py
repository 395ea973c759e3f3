"""A cancel reaches a handler in another process by a wake-up of its store: its heartbeat is hours away."""

import signal
from functools import partial
from pathlib import Path

from dibs.job import Filter, State
from dibs.store import Store
from dibs.stores import open_store
from tests.process.workers import all_jobs, enqueue, worker
from tests.unit.working import until

DAY = 24 * 3600.0


async def test_a_cancel_does_not_wait_for_the_heartbeat(shared_url: str, tmp_path: Path) -> None:
    store = open_store(shared_url)
    await store.setup()
    try:
        ids = await enqueue(store, "hold", 3, 3_600)
        with worker(shared_url, tmp_path, "w", lease=DAY) as process:
            await until(lambda: _count(store, State.RUNNING, 3), 30)
            for number, job in enumerate(ids, 1):
                await store.cancel(Filter(ids=(job,)))
                await until(partial(_count, store, State.CANCELLED, number), 30)
            process.send(signal.SIGTERM)
            assert process.stats().cancelled == 3
    finally:
        await store.close()


async def _count(store: Store, state: State, count: int) -> bool:
    return sum(job.state is state for job in await all_jobs(store)) == count
