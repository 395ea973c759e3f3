"""Measure the stores of dibs against the limits of their drivers and against other ways to do it.

    python bench/stores.py --quick
    python bench/stores.py --workload throughput --store postgres --batches 1,200 --claimers 1
    python bench/stores.py --check

Exit status: 0; 1 if ``--check`` found a threshold missed; 2 if jobs were lost or claimed twice: then there are no
figures. How it is measured stands in docs/benchmarks-stores.md.
"""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib import plan as plans  # noqa: E402
from bench.lib.arenas import STORES, Arena, arena  # noqa: E402
from bench.lib.checks import checks  # noqa: E402
from bench.lib.depth import depth  # noqa: E402
from bench.lib.environment import environment  # noqa: E402
from bench.lib.plan import Plan  # noqa: E402
from bench.lib.postgres import PostgresArena  # noqa: E402
from bench.lib.progress import say  # noqa: E402
from bench.lib.race import DiscrepancyError  # noqa: E402
from bench.lib.report import Report, show, write_json, write_markdown  # noqa: E402
from bench.lib.snapshot import snapshot  # noqa: E402
from bench.lib.throughput import throughput  # noqa: E402

WORKLOADS = ("throughput", "snapshot", "depth")


def numbers(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Whole numbers above 0, with commas between them."""
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter("expected whole numbers above 0, with commas between them")
    return tuple(map(int, parts))


def known_stores(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Names of stores, with commas between them."""
    names = tuple(value.split(","))
    if unknown := [name for name in names if name not in STORES]:
        raise click.BadParameter(f"no store is called {unknown[0]!r}: there are {', '.join(STORES)}")
    return names


@click.command(help="Measure the stores against the limits of their drivers and against rivals.")
@click.option("--workload", type=click.Choice([*WORKLOADS, "all"]), default="all", show_default=True)
@click.option("--store", "stores", callback=known_stores, default=",".join(STORES), show_default=True)
@click.option("--quick", is_flag=True, help="Small numbers, under two minutes.")
@click.option("--jobs", type=click.IntRange(min=1), help="Jobs of a throughput run in bulk.")
@click.option("--batches", callback=numbers, metavar="N,N,…", help="How many jobs to claim and settle at a time.")
@click.option("--claimers", callback=numbers, metavar="N,N,…", help="How many claim at the same time.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often each way is measured.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/stores.json")
@click.option("--docs", type=click.Path(path_type=Path, exists=True), help="Put the tables into this page.")
@click.option("--check", is_flag=True, help="Exit with 1 if a threshold is missed.")
def main(
    *,
    workload: str,
    stores: tuple[str, ...],
    quick: bool,
    jobs: int | None,
    batches: tuple[int, ...] | None,
    claimers: tuple[int, ...] | None,
    rounds: int | None,
    json_path: Path,
    docs: Path | None,
    check: bool,
) -> None:
    plan = plans.quick(stores) if quick else Plan(stores=stores)
    given = {"jobs": jobs, "batches": batches, "claimers": claimers, "rounds": rounds}
    plan = msgspec.structs.replace(plan, **{name: value for name, value in given.items() if value is not None})
    try:
        report = asyncio.run(measure(plan, WORKLOADS if workload == "all" else (workload,)))
    except DiscrepancyError as problem:
        click.echo(f"no figures, because jobs went wrong: {problem}", err=True)
        sys.exit(2)
    show(report)
    write_json(report, json_path)
    if docs is not None:
        write_markdown(report, docs)
    missed = [each for each in report.checks if not each.met]
    if check and missed:
        click.echo(f"{len(missed)} of {len(report.checks)} thresholds missed:", err=True)
        for each in missed:
            click.echo(f"  {each.what}: {each.measured:.2f}, wanted {each.wanted}", err=True)
        sys.exit(1)


async def measure(plan: Plan, workloads: tuple[str, ...]) -> Report:
    """Everything that the plan says, store by store."""
    report = Report(environment=environment({}), plan=plan)
    versions: dict[str, str] = {}
    for name in plan.stores:
        try:
            ground = arena(name)
        except RuntimeError as problem:
            raise click.ClickException(str(problem)) from None
        try:
            await ground.start()
            versions |= ground.versions()
            await _measure(ground, plan, workloads, report)
        finally:
            await ground.stop()
    report.environment = msgspec.structs.replace(report.environment, versions=versions)
    report.checks = checks(report.throughput, report.snapshot, report.depth)
    return report


async def _measure(ground: Arena, plan: Plan, workloads: tuple[str, ...], report: Report) -> None:
    say(f"{ground.name}: begins")
    if "throughput" in workloads:
        report.throughput += await throughput(ground, plan)
    if "snapshot" in workloads and isinstance(ground, PostgresArena):
        report.snapshot += await snapshot(ground, plan)
    # The memory store promises nothing about depth.
    if "depth" in workloads and ground.name != "memory":
        latencies, fillings = await depth(ground, plan)
        report.depth += latencies
        report.filling += fillings


if __name__ == "__main__":
    main()
