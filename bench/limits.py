"""Measure what limits cost that are never reached: on a queue, on a task, on each of a hundred limit keys.

    python bench/limits.py
    python bench/limits.py --store sqlite,postgres --jobs 20000 --rounds 5 --how bare
    python bench/limits.py --check

The same jobs, in turns within one run: with no limit and under each; claimed and settled by 200, the same while the
claimer holds 6,000 others, and through a worker with default settings. The ratio is the median of those within the
rounds, of throughput and of processor time. Exit status: 0; 1 if ``--check`` found a ratio below 0.70; 2 if jobs were
lost or ran twice: then there are no figures.
"""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import STORES  # noqa: E402
from bench.lib.limited import HOW, Share, shares  # noqa: E402
from bench.lib.program import keep, named, on_each  # noqa: E402

LEAST = 0.70


@click.command(help="Measure what limits cost that are never reached, on each store.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--jobs", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--tenants", type=click.IntRange(min=1), default=100, show_default=True, help="How many limit keys.")
@click.option("--how", type=click.Choice([*HOW, "all"]), default="all", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/limits.json")
@click.option("--check", is_flag=True, help="Exit with 1 if less than 0.70 of the throughput is left.")
def main(*, stores: str, jobs: int, rounds: int, tenants: int, how: str, json_path: Path, check: bool) -> None:
    ways = HOW if how == "all" else (how,)
    found, versions = on_each(named(stores, STORES), lambda ground: shares(ground, jobs, rounds, tenants, ways))
    show(found)
    keep(json_path, versions, limits=found)
    missed = [share for share in found if share.of_rate < LEAST]
    if check and missed:
        for share in missed:
            click.echo(f"{share.store}, {share.how}, {share.limit}: {share.of_rate:.2f}, wanted {LEAST:.2f}", err=True)
        sys.exit(1)


def show(found: list[Share]) -> None:
    table = Table(title="Limits that are never reached, against none")
    for column in ("store", "how", "limit", "jobs/s", "of none", "CPU µs a job", "of none (CPU)"):
        table.add_column(column, justify="left" if column in ("store", "how", "limit") else "right")
    for each in found:
        table.add_row(
            each.store,
            each.how,
            each.limit,
            f"{each.rate:,.0f}",
            f"{each.of_rate:.2f}",
            f"{each.cpu:.1f}",
            f"{each.of_cpu:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
