"""Measure a worker end to end: a no-op async handler, the jobs queued before it starts, default settings.

    python bench/worker.py
    python bench/worker.py --store postgres,redis --jobs 50000 --rounds 3
    python bench/worker.py --metrics

Beside each figure stands what claims and settles of 200 by one claimer reach in the same run: no handler, no worker.
Both run on the loop that ``dibs work`` takes (uvloop's where it is installed; --asyncio for the other one), and Python
looks for garbage as often as there.
With --metrics the same worker is measured in the same rounds with metrics on, scraped ten times a second.
It is proved that every job ran once before a figure is printed; otherwise the exit status is 2.
"""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import STORES, Arena  # noqa: E402
from bench.lib.program import keep, named, on_each  # noqa: E402
from bench.lib.shifts import Shift, shift  # noqa: E402
from dibs.cli.work import loop_factory  # noqa: E402
from dibs.worker import collect_less_often  # noqa: E402


@click.command(help="Measure a worker end to end, on each store.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--jobs", type=click.IntRange(min=1), default=50_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--concurrency", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--asyncio", "plain", is_flag=True, help="On asyncio's own loop, also where uvloop is installed.")
@click.option("--metrics", is_flag=True, help="Also with metrics on, in the same rounds.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/worker.json")
def main(stores: str, jobs: int, rounds: int, concurrency: int, *, plain: bool, metrics: bool, json_path: Path) -> None:
    async def look(ground: Arena) -> list[Shift]:
        return [await shift(ground, jobs, rounds, concurrency, metrics=metrics)]

    collect_less_often()
    found, versions = on_each(named(stores, STORES), look, None if plain else loop_factory())
    show(found)
    keep(json_path, versions, worker=found)


def show(found: list[Shift]) -> None:
    table = Table(title="Worker, no-op async handler, jobs per second")
    for column in ("store", "worker", "claim + settle of 200", "% of that", "jobs a claim", "with metrics"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for each in found:
        table.add_row(
            each.store,
            f"{each.rate:,.0f}",
            f"{each.bulk:,.0f}",
            f"{each.of_bulk:.0%}",
            f"{each.claims:,.0f}",
            "" if each.with_metrics is None else f"{each.with_metrics:.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
