"""A schedule with a tick every second, three workers in processes of their own, and one of them is killed."""

import signal
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from dibs.app import App
from dibs.job import Job, NewJob, State
from dibs.store import Store
from dibs.stores import open_store
from dibs.timetable import HANDLED, handled
from tests.process.workers import Process, all_jobs, faults, worker
from tests.unit.working import until

BEFORE, AFTER = 3, 5
"""Ticks before the kill, and behind it."""


def _tick(job: Job) -> datetime:
    return datetime.fromisoformat(job.meta["schedule"]["tick"])


async def _succeeded(store: Store, count: int) -> bool:
    return sum(job.state is State.SUCCEEDED for job in await all_jobs(store)) >= count


async def each_tick_once(url: str, folder: Path) -> None:
    store = open_store(url)
    await store.setup()
    app = App(store=store)
    await app.schedules.add("seconds", NewJob(task="hold", args={"seconds": 0.05}), every=1, missed="all")
    with ExitStack() as stack:
        crew: list[Process] = [stack.enter_context(worker(url, folder, f"w{n}", lease=1)) for n in range(3)]
        await until(partial(_succeeded, store, BEFORE), 60)
        crew[0].send(signal.SIGKILL)
        crew[0].end()
        await until(partial(_succeeded, store, BEFORE + AFTER), 60)
        await app.schedules.pause("seconds")
        paused_at = (await store.kept([])).now
        # One that saw the schedule before the pause may still be enqueueing: wait until a tick was passed over.
        await until(partial(_passed_over, store, paused_at + timedelta(seconds=1)), 60)
        for process in crew[1:]:
            process.send(signal.SIGTERM)
            process.stats()
    jobs = sorted(await all_jobs(store), key=_tick)
    ticks = [_tick(job) for job in jobs]
    assert ticks == [ticks[0] + number * timedelta(seconds=1) for number in range(len(ticks))], (
        "none missing, none twice"
    )
    assert len(ticks) >= BEFORE + AFTER
    assert ticks[-1] <= paused_at + timedelta(seconds=1)
    assert all(job.created_at >= _tick(job) for job in jobs), "none before its time, by the clock of the store"
    assert [job.state for job in jobs] == [State.SUCCEEDED] * len(jobs)
    assert await faults(store, folder, [job.id for job in jobs]) == []
    await store.close()


async def _passed_over(store: Store, moment: datetime) -> bool:
    done = handled(await store.kept([HANDLED]))["seconds"]
    return done.until > moment and all(job.state is State.SUCCEEDED for job in await all_jobs(store))


async def test_each_tick_is_run_once_although_a_worker_is_killed(shared_url: str, tmp_path: Path) -> None:
    await each_tick_once(shared_url, tmp_path)
