"""Measure an idle worker: how soon it starts a job that another process enqueues, and what it costs while it waits.

    python bench/idle.py
    python bench/idle.py --store postgres --jobs 500

The worker is ``dibs work`` with default settings. Each job is enqueued when the one before has ended and a random while
has passed; the time runs from before the enqueue call to the first line of the handler. Every job must have run once.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from random import uniform
from statistics import median, quantiles
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import arena  # noqa: E402
from bench.lib.idle_app import app, start  # noqa: E402
from bench.lib.program import keep, named  # noqa: E402
from bench.lib.progress import say  # noqa: E402

STORES = ("sqlite", "postgres", "redis")


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """One store. Times in milliseconds, ``cpu`` as a share of one core."""

    store: str
    jobs: int
    median: float
    p99: float
    longest: float
    cpu: float


@click.command(help="Measure an idle worker on each store that processes share.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--jobs", type=click.IntRange(min=10), default=300, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=10.0, show_default=True, help="How long it idles.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/idle.json")
def main(stores: str, jobs: int, seconds: float, json_path: Path) -> None:
    names = named(stores, STORES)
    found = [asyncio.run(measure(name, jobs, seconds)) for name in names]
    show(found)
    keep(json_path, {}, idle=found)


async def measure(name: str, jobs: int, seconds: float) -> Idle:
    """One store, with a worker in a process of its own."""
    ground = arena(name)
    try:
        await ground.start()
        way = await ground.open("dibs", 1)  # an empty store
        await way.close()
        assert ground.url is not None
        app.url = ground.url
        worker = await _start_worker(ground.url)
        try:
            async with app:
                await (await start.enqueue()).result(30)  # it is up
                cpu = await _cpu_while_idle(worker.pid, seconds)
                waits = [await _one() for _ in range(jobs)]
                ended = await (await app.store()).counts()
        finally:
            worker.terminate()
            await worker.wait()
    finally:
        await ground.stop()
    if [sum(each.states.values()) for each in ended] != [jobs + 1]:
        click.echo(f"no figures: {jobs + 1} jobs were enqueued, the store counts {ended}", err=True)
        sys.exit(2)
    found = Idle(
        store=name,
        jobs=jobs,
        median=median(waits),
        p99=quantiles(waits, n=100)[98],
        longest=max(waits),
        cpu=cpu,
    )
    say(f"{name}: {found.median:.1f} ms, {found.p99:.1f} ms at 99 %, idle {found.cpu:.2%} of a core")
    return found


async def _start_worker(url: str) -> Any:
    paths = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
    command = (sys.executable, "-m", "dibs", "work", "bench.lib.idle_app:app", "--log-level", "warning")
    return await asyncio.create_subprocess_exec(*command, env={**os.environ, "DIBS_URL": url, "PYTHONPATH": paths})


async def _cpu_while_idle(pid: int, seconds: float) -> float:
    await asyncio.sleep(2)  # what follows the last job is not idling
    before = _cpu(pid)
    await asyncio.sleep(seconds)
    return (_cpu(pid) - before) / seconds


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _one() -> float:
    """Milliseconds from the enqueue call to the handler's start."""
    await asyncio.sleep(uniform(0.02, 0.12))
    before = time.monotonic()
    job = await (await start.enqueue()).ended(30)
    if job.attempts != 1:
        click.echo(f"no figures: job {job.id} ran {job.attempts} times", err=True)
        sys.exit(2)
    return float((job.result - before) * 1000)


def show(found: list[Idle]) -> None:
    table = Table(title="Idle worker: from the enqueue in another process to the handler's start, milliseconds")
    for column in ("store", "jobs", "median", "99 %", "longest", "CPU while idle"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for each in found:
        row = (each.store, str(each.jobs), f"{each.median:.1f}", f"{each.p99:.1f}", f"{each.longest:.1f}")
        table.add_row(*row, f"{each.cpu:.2%}")
    Console().print(table)


if __name__ == "__main__":
    main()
