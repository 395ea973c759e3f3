"""``dibs bench``: how fast is this store, from here, with one worker? In a queue of its own, which it empties."""

import asyncio
import statistics
import sys
from collections import Counter
from secrets import token_hex
from time import perf_counter
from uuid import UUID

import click
import msgspec
from rich.table import Table

from dibs.admin import Admin
from dibs.app import App
from dibs.attempt import current
from dibs.cli import show
from dibs.cli.exits import FINE, WRONG
from dibs.cli.options import json_option, store_options
from dibs.cli.work import loop_factory
from dibs.job import Delete, Filter, NewJob
from dibs.store import Store
from dibs.stores import open_store
from dibs.worker import Worker, collect_less_often

TASK = "dibs-bench"
PATIENCE = 60.0


class Figures(msgspec.Struct, kw_only=True):
    """What was measured; rates in jobs per second, latencies in milliseconds."""

    jobs: int
    enqueue: float
    """In bulk, a thousand at a time."""
    work: float
    """Claimed, run and settled by one worker process, from its start to the last settle."""
    latency_p50: float
    """From the call that enqueues a single job to the start of its handler, in an idle worker."""
    latency_p99: float
    ran_once: bool
    """Whether every job ran exactly once."""


@click.command(short_help="Measure the store from here.")
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(100, 1_000_000), help="How many.")
@click.option("--singles", default=100, show_default=True, type=click.IntRange(10, 10_000), help="For the latency.")
@store_options
@json_option
def bench(jobs: int, singles: int, url: str, as_json: bool) -> None:
    """Measure the store from here: enqueue jobs that do nothing, and work them with one worker.

    Uses a queue of its own and removes its jobs afterwards; other queues are not touched, but the store is busy
    meanwhile. Checks that each job ran once: exit code 1 if not.

    \b
      dibs bench
      dibs bench --url postgresql://localhost/shop --jobs 50000
      dibs bench --json | jq .work
    """
    collect_less_often()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        found = runner.run(_measure(url, jobs, singles))
    if as_json:
        show.emit(found)
    else:
        _print(found, url)
    sys.exit(FINE if found.ran_once else WRONG)


async def _measure(url: str, jobs: int, singles: int) -> Figures:
    bench = _Bench(url)
    try:
        return await bench.run(jobs, singles)
    finally:
        await bench.clean_up()


class _Bench:
    def __init__(self, url: str) -> None:
        self.queue = f"dibs-bench-{token_hex(4)}"
        # One object for all handles where the jobs live in this process only.
        self.app = App(url, queue=self.queue, store=open_store(url) if url.startswith("memory:") else None)
        self.runs: Counter[UUID] = Counter()
        self.started: dict[UUID, float] = {}
        self.began = asyncio.Event()
        self.app.task(self._handle, name=TASK)  # type: ignore[call-overload]

    async def _handle(self) -> None:
        job = current().id
        self.runs[job] += 1
        self.started[job] = perf_counter()
        self.began.set()

    async def run(self, jobs: int, singles: int) -> Figures:
        store = await self.app.store()
        spent = await self._enqueue(store, jobs)
        worked = await self._work()
        waits = await self._single(store, singles)
        ended = {job.id async for job in Admin(store).every(Filter(queues=(self.queue,))) if job.finished_at}
        once = len(self.runs) == len(ended) == jobs + singles + 1 and set(self.runs.values()) == {1}
        cuts = statistics.quantiles(waits, n=100)
        return Figures(
            jobs=jobs,
            enqueue=jobs / spent,
            work=jobs / worked,
            latency_p50=statistics.median(waits) * 1000,
            latency_p99=cuts[98] * 1000,
            ran_once=once,
        )

    async def _enqueue(self, store: Store, jobs: int) -> float:
        made = [self._job() for _ in range(jobs)]
        began = perf_counter()
        await Admin(store).enqueue(made)
        return perf_counter() - began

    def _job(self) -> NewJob:
        return NewJob(task=TASK, queue=self.queue)

    def _worker(self, *, until_empty: bool) -> Worker:
        return self.app.worker(until_empty=until_empty)

    async def _work(self) -> float:
        began = perf_counter()
        await self._worker(until_empty=True).run()
        return perf_counter() - began

    async def _single(self, store: Store, count: int) -> list[float]:
        """One job at a time, into a worker that has nothing else to do."""
        worker = self._worker(until_empty=False)
        running = asyncio.create_task(worker.run())
        waits: list[float] = []
        try:
            for _ in range(count + 1):
                self.began.clear()
                job = self._job()
                asked = perf_counter()
                await store.enqueue([job])
                async with asyncio.timeout(PATIENCE):
                    await self.began.wait()
                waits.append(self.started[job.id] - asked)
        finally:
            worker.stop()
            await running
        # The first also waits for the worker to start: it is counted as run, not as measured.
        return waits[1:]

    async def clean_up(self) -> None:
        store = await self.app.store()
        await Admin(store).change(Filter(queues=(self.queue,)), Delete(force=True))
        await self.app.close()


def _print(found: Figures, url: str) -> None:
    screen = show.console()
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    rows = (
        ("enqueue, in bulk", f"{found.enqueue:,.0f}", "jobs/s"),
        ("work, one worker", f"{found.work:,.0f}", "jobs/s"),
        ("single job, p50", f"{found.latency_p50:.1f}", "ms from enqueue to its handler"),
        ("single job, p99", f"{found.latency_p99:.1f}", "ms"),
        ("each ran once", "yes" if found.ran_once else "NO", f"{found.jobs:,} jobs"),
    )
    for row in rows:
        table.add_row(*row)
    show.put(screen, f"store  {show.safe_url(url)}\n")
    show.put(screen, table)
