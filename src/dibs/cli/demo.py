"""``dibs demo``: a small shop's jobs, four workers, one of them killed on the way, and the proof at the end."""

import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dibs.cli.demo_shop import QUEUE, orders, work
from dibs.job import FINISHED, Filter, Job, State
from dibs.store import Store
from dibs.stores import open_store
from dibs.testing.oracle import Run, faults, read

STATES = {State.QUEUED: "cyan", State.RUNNING: "yellow", State.SUCCEEDED: "green", State.FAILED: "red"}
PATIENCE = 50.0


@click.command()
@click.option("--url", envvar="DIBS_URL", metavar="URL", help="Where to run it.  [default: a temporary SQLite file]")
@click.option("--jobs", default=3_000, show_default=True, type=click.IntRange(100, 100_000))
@click.option("--workers", default=4, show_default=True, type=click.IntRange(2, 16))
def demo(url: str | None, jobs: int, workers: int) -> None:
    """Watch workers share jobs, and one of them die.

    Nothing to set up: it runs on a temporary SQLite file. Or on a server of yours, which must have the dibs schema
    (dibs migrate up) and no jobs in a queue called demo:

    \b
      dibs demo --url postgresql://localhost/shop
    """
    with tempfile.TemporaryDirectory(prefix="dibs-demo-") as folder:
        place = url or f"sqlite:///{folder}/jobs.db"
        sys.exit(asyncio.run(_Demo(place, Path(folder), jobs, workers).run()))


class _Demo:
    def __init__(self, url: str, folder: Path, jobs: int, workers: int) -> None:
        self.url, self.folder, self.total = url, folder, jobs
        self.names = [f"worker-{n}" for n in range(1, workers + 1)]
        self.console = Console()
        self.news: list[str] = []
        self.victim = self.names[-1]
        self.held = 0

    async def run(self) -> int:
        store = open_store(self.url)
        await store.setup()
        try:
            await self._refuse_to_mix(store)
            began = monotonic()
            enqueued = [job.id for job in await store.enqueue(list(orders(self.total)))]
            self._tell(f"enqueued {self.total:,} jobs in {monotonic() - began:.2f} s")
            workers = self._start()
            try:
                await self._watch(store, workers)
            finally:
                for worker in workers.values():
                    worker.kill()
            jobs = [job async for job in _every(store)]
            wrong = faults(read(self.folder), jobs, enqueued)
            self._sum_up(jobs, read(self.folder), wrong, monotonic() - began)
            return 1 if wrong else 0
        finally:
            await store.close()

    async def _refuse_to_mix(self, store: Store) -> None:
        if (await store.find(Filter(queues=(QUEUE,)), limit=1)).jobs:
            raise click.ClickException(f"the queue {QUEUE!r} at that URL has jobs already: use an empty store")

    def _start(self) -> Mapping[str, BaseProcess]:
        context = multiprocessing.get_context("spawn")
        made = {name: context.Process(target=work, args=(self.url, str(self.folder), name)) for name in self.names}
        for worker in made.values():
            worker.start()
        self._tell(f"started {len(made)} workers, each a process of its own")
        return made

    async def _watch(self, store: Store, workers: Mapping[str, BaseProcess]) -> None:
        with Live(console=self.console, refresh_per_second=8, transient=not self.console.is_terminal) as screen:
            deadline = monotonic() + PATIENCE
            while monotonic() < deadline:
                states, held = await _look(store)
                if self.console.is_terminal:
                    screen.update(self._picture(states, held))
                if states[State.SUCCEEDED] > self.total // 3 and held.get(self.victim) and not self.held:
                    self._kill(workers[self.victim], held[self.victim])
                if not sum(states[state] for state in State if state not in FINISHED):
                    break
                await asyncio.sleep(0.05)

    def _kill(self, worker: BaseProcess, held: int) -> None:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGKILL)
        self.held = held
        self._tell(f"killed {self.victim} (SIGKILL) while it held about {held} jobs: their leases end in 2 s")

    def _tell(self, news: str) -> None:
        self.news.append(news)
        if not self.console.is_terminal:
            self.console.print(news)

    def _picture(self, states: dict[State, int], held: dict[str, int]) -> Group:
        bars = Table.grid(padding=(0, 2))
        for state, colour in STATES.items():
            bar = ProgressBar(self.total, states[state], width=48, complete_style=colour, finished_style=colour)
            bars.add_row(Text(state, style=colour), bar, f"{states[state]:,}")
        team = Table.grid(padding=(0, 2))
        for name in self.names:
            dead = name == self.victim and self.held
            note = (
                f"[red]dead[/], {held.get(name, 0)} jobs not yet taken over" if dead else f"holds {held.get(name, 0)}"
            )
            team.add_row(name, note)
        return Group(*(Text(f"· {line}", style="dim") for line in self.news), Text(), bars, Text(), team)

    def _sum_up(self, jobs: list[Job], runs: list[Run], wrong: list[str], took: float) -> None:
        again = sum(job.epoch > 1 for job in jobs)
        expired = sum(any(error.error == "lease expired" for error in job.errors) for job in jobs)
        failed = [job for job in jobs if job.state is State.FAILED]
        facts = Table.grid(padding=(0, 2))
        facts.add_row("jobs enqueued", f"{self.total:,}")
        facts.add_row("ran to their end", f"{sum(job.state in FINISHED for job in jobs):,}  in {took:.1f} s")
        facts.add_row("  succeeded", f"{sum(job.state is State.SUCCEEDED for job in jobs):,}")
        facts.add_row(
            "  failed",
            f"{len(failed):,}  (the poison ones, after {max((j.attempts for j in failed), default=0)} attempts each)",
        )
        facts.add_row("claimed more than once", f"{again:,}  (retries, and {expired} taken over from {self.victim})")
        facts.add_row("lost", f"{self.total - len(jobs):,}")
        facts.add_row("owned twice", f"{sum('twice' in line or 'two owners' in line for line in wrong):,}")
        self.console.print()
        self.console.print(facts)
        workers = len({run.worker for run in runs})
        verdict = "[bold green]Every job ran to its end, none was lost, none had two owners.[/]"
        if wrong:
            verdict = "[bold red]Something is wrong:[/]\n" + "\n".join(wrong[:10])
        self.console.print(f"\n{verdict}")
        self.console.print(f"Checked against the log that each of the {workers} workers kept: {len(runs):,} runs.")


async def _look(store: Store) -> tuple[dict[State, int], dict[str, int]]:
    """How many jobs are in each state, and how many each worker holds."""
    states = {queue.queue: queue.states for queue in await store.counts()}[QUEUE]
    return states, {worker.name: worker.running for worker in await store.workers()}


async def _every(store: Store) -> AsyncIterator[Job]:
    page = await store.find(Filter(queues=(QUEUE,)), limit=1_000)
    while True:
        for job in page.jobs:
            yield job
        if page.after is None:
            return
        page = await store.find(Filter(queues=(QUEUE,)), after=page.after, limit=1_000)
