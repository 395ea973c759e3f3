"""``dibs demo``: a small shop's jobs, real workers, one of them killed on the way, and the proof at the end."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from uuid import UUID

import click

from dibs.cli import demo_shop, show
from dibs.cli.demo_diary import FOLDER_VARIABLE, LINE_VARIABLE, runs
from dibs.cli.demo_news import News
from dibs.cli.demo_screen import Look, Proof, Screen, how_to_go_on, summary
from dibs.cli.demo_shop import QUEUE
from dibs.cli.exits import Trouble
from dibs.cli.options import json_option
from dibs.errors import ConfigurationError
from dibs.job import Filter, Job, State
from dibs.store import Store
from dibs.stores import open_store, scheme_of
from dibs.testing.oracle import faults

LEASE = 3
CONCURRENCY = 10
PATIENCE = 55.0
FAR_ENOUGH = 0.4
"""How much of the report is written when the worker that writes it is killed."""


@click.command()
@click.option("--url", envvar="DIBS_URL", metavar="URL", help="Where to run it.  [default: a temporary SQLite file]")
@click.option("--jobs", default=4_000, show_default=True, type=click.IntRange(100, 100_000))
@click.option("--workers", default=4, show_default=True, type=click.IntRange(2, 16))
@json_option
def demo(url: str | None, jobs: int, workers: int, as_json: bool) -> None:
    """Watch workers share jobs, and one of them die.

    Nothing to set up: it runs on a temporary SQLite file. Or on a server of yours, which must have the dibs schema
    (dibs migrate up) and no jobs in a queue called demo:

    \b
      dibs demo
      dibs demo --url postgresql://localhost/shop
      dibs demo --url redis://localhost/9 --jobs 10000 --workers 8

    With --json the proof is one JSON document on standard output; what happens meanwhile goes to standard error.

    Exit code 1: the proof failed, or the queue has jobs already.
    """
    with tempfile.TemporaryDirectory(prefix="dibs-demo-") as folder:
        place = url or f"sqlite:///{folder}/jobs.db"
        if scheme_of(place) == "memory":
            raise ConfigurationError("memory:// lives in one process, and the demo has several: leave out --url")
        sys.exit(asyncio.run(_Demo(place, Path(folder), jobs, workers, as_json).run()))


class _Demo:
    def __init__(self, url: str, folder: Path, jobs: int, workers: int, as_json: bool) -> None:
        self.url, self.folder, self.total, self.as_json = url, folder, jobs, as_json
        self.names = [f"worker-{n}" for n in range(1, workers + 1)]
        self.news = News(folder)
        title = f"dibs demo: {jobs:,} jobs, {workers} workers, {scheme_of(url)}"
        self.screen = Screen(self.news, title, jobs, self.names, aside=as_json)
        self.report: UUID | None = None

    async def run(self) -> int:
        """Everything; 1 if the proof failed."""
        _end_by_sigterm()
        store = open_store(self.url)
        await store.setup()
        try:
            if (await store.find(Filter(queues=(QUEUE,)), limit=1)).jobs:
                raise Trouble(f"the queue {QUEUE!r} at that URL has jobs already: delete them, or use an empty store")
            with self.screen:
                began = monotonic()
                sent = [job.id for job in await store.enqueue(list(demo_shop.orders(self.total)))]
                self.report = sent[0]
                self.news.tell(f"enqueued {self.total:,} jobs in {monotonic() - began:.2f} s")
                with self._workers() as workers:
                    await self._watch(store, workers)
                self.news.read()
            return await self._prove(store, sent)
        finally:
            await store.close()

    # --- the workers ----------------------------------------------------------------------------------------

    @contextmanager
    def _workers(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        """Real ones, each a process; they end with the demo, also if it is killed: its end of a pipe is then closed."""
        line, ours = os.pipe()
        # The URL goes by the environment: it may hold a password, and command lines are there for all to see.
        environment = {
            **os.environ,
            "DIBS_URL": self.url,
            FOLDER_VARIABLE: str(self.folder),
            LINE_VARIABLE: str(line),
        }
        workers: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in self.names:
                with (self.folder / f"{name}.txt").open("wb") as log:
                    workers[name] = subprocess.Popen(  # noqa: S603
                        _command(name), env=environment, stdout=log, stderr=log, pass_fds=[line], process_group=0
                    )
            self.news.tell(f"started {len(workers)} workers, each with: dibs work … --lease {LEASE}s")
            yield workers
            _end(workers)
        finally:
            for worker in workers.values():
                worker.kill()
                worker.wait()
            os.close(line)
            os.close(ours)

    async def _watch(self, store: Store, workers: dict[str, subprocess.Popen[bytes]]) -> None:
        """Look, show and kill, until every job has ended."""
        while self.news.seconds < PATIENCE:
            look = await self._look(store)
            self.news.read()
            self._kill_whoever_writes_the_report(look, workers)
            self.screen.show(look)
            if not look.unfinished:
                return
            self._check(workers)
            await asyncio.sleep(0.1)
        self.news.tell("not all jobs have ended, and a demo has to", "red")

    async def _look(self, store: Store) -> Look:
        assert self.report is not None
        [queue] = [each for each in await store.counts() if each.queue == QUEUE]
        running = await store.find(Filter(queues=(QUEUE,), states=(State.RUNNING,)), limit=1_000)
        return Look(queue.states, running.jobs, await store.get(self.report))

    def _kill_whoever_writes_the_report(self, look: Look, workers: dict[str, subprocess.Popen[bytes]]) -> None:
        report = look.report
        if self.news.victim is not None or report is None or (report.report.progress or 0) < FAR_ENOUGH:
            return
        if report.state is not State.RUNNING or report.worker not in workers:
            return
        victim = report.worker
        workers[victim].send_signal(signal.SIGKILL)
        self.news.victim = victim
        held = look.holds[victim].total()
        self.news.tell(f"killed {victim} (SIGKILL), which held {held} jobs, the report too", "bold red")
        self.news.tell(f"nobody gives them back: their leases end in {LEASE} s", "red")

    def _check(self, workers: dict[str, subprocess.Popen[bytes]]) -> None:
        for name, worker in workers.items():
            if name != self.news.victim and worker.poll() is not None:
                said = (self.folder / f"{name}.txt").read_text().strip().splitlines()
                raise Trouble(f"{name} ended by itself: {said[-1] if said else f'exit code {worker.returncode}'}")

    # --- the proof ------------------------------------------------------------------------------------------

    async def _prove(self, store: Store, sent: list[UUID]) -> int:
        jobs = [job async for job in _every(store)]
        done = list(runs(self.news.lines))
        wrong = faults(done, jobs, sent) + [line for job in jobs for line in _ended_wrongly(job)]
        if self.news.victim is None:
            wrong.append("no worker was killed: the report was never seen running")
        proof = Proof.of(jobs, self.total, len(done), self.news, wrong)
        console = self.screen.console
        console.print(summary(proof))
        if self.as_json:
            show.emit(proof)
        elif not wrong:
            console.print(how_to_go_on())
        return 1 if wrong else 0


def _command(name: str) -> list[str]:
    return [
        *(sys.executable, "-m", "dibs", "work", f"{demo_shop.__name__}:app", "--name", name),
        *("--lease", f"{LEASE}s", "--concurrency", str(CONCURRENCY), "--log-level", "warning"),
    ]


def _end(workers: dict[str, subprocess.Popen[bytes]]) -> None:
    """As one stops workers: SIGTERM, and a while to finish."""
    for worker in workers.values():
        worker.terminate()
    deadline = monotonic() + 10
    for worker in workers.values():
        try:
            worker.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            return


def _end_by_sigterm() -> None:
    """Let SIGTERM end the demo as Ctrl-C does, so that it takes its workers with it."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))


def _ended_wrongly(job: Job) -> Iterator[str]:
    wanted = State.FAILED if demo_shop.poisoned(job) else State.SUCCEEDED
    if job.state is not wanted:
        why = f" ({job.errors[-1].error})" if job.errors else ""
        yield f"job {job.id} ({job.task}) is {job.state}{why}, not {wanted}"


async def _every(store: Store) -> AsyncIterator[Job]:
    page = await store.find(Filter(queues=(QUEUE,)), limit=1_000)
    while True:
        for job in page.jobs:
            yield job
        if page.after is None:
            return
        page = await store.find(Filter(queues=(QUEUE,)), after=page.after, limit=1_000)
