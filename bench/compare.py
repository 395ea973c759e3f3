"""Measure dibs and its peers: the same work, the same machine, in one run.

    python bench/compare.py --list
    python bench/compare.py --quick
    python bench/compare.py --workload throughput,latency --only dibs-postgres,pgqueuer,graphile-worker

Brings its servers and installs every peer into an environment of its own under ``.bench``. What it finds goes to
``bench/results/latest.json``, as a page to ``latest.md`` and as drawings beside it. Runs of the same code on the same
machine add up. How it is measured stands in docs/benchmarks.md.

Exit status: 0; 1 if a system lost a job, ran one twice or failed: it is named, and has no figure.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.environment import environment  # noqa: E402
from bench.peers import results as kept  # noqa: E402
from bench.peers.pages import write_docs, write_page  # noqa: E402
from bench.peers.plots import draw  # noqa: E402
from bench.peers.results import Results, Session  # noqa: E402
from bench.peers.table import EVERY, PEERS  # noqa: E402
from bench.peers.tournament import Plan, Told, Tournament, chosen  # noqa: E402
from bench.peers.workloads import WORKLOADS  # noqa: E402

LATEST = _ROOT / "bench/results/latest.json"


def among(known: Iterable[str]) -> Callable[[click.Context, click.Parameter, str | None], tuple[str, ...] | None]:
    """Names out of a list, with commas between them."""
    every = tuple(known)

    def names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = tuple(value.split(","))
        if unknown := [name for name in given if name not in every]:
            raise click.BadParameter(f"{unknown[0]!r} is not among {', '.join(every)}")
        return given

    return names


@click.command(help="Measure dibs and its peers.")
@click.option("--only", callback=among(EVERY), help="Systems, with commas between them; the limit comes along.")
@click.option("--workload", "workloads", callback=among(WORKLOADS), help="Workloads, with commas between them.")
@click.option("--quick", is_flag=True, help="Small numbers, one setting of each, under five minutes.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often each is measured; 3, or 1 with --quick.")
@click.option("--jobs", type=click.IntRange(min=1), help="The most jobs that a run may have.")
@click.option(
    "--again", type=click.IntRange(min=0), default=2, show_default=True, help="Repeat what others disturbed, so often."
)
@click.option("--json", "path", type=click.Path(path_type=Path), default=LATEST, help="Where the results are kept.")
@click.option("--fresh", is_flag=True, help="Forget what earlier runs have found.")
@click.option("--docs", is_flag=True, help="Measure nothing: put the results into docs/benchmarks.md.")
@click.option("--list", "listing", is_flag=True, help="Measure nothing: list systems and workloads.")
def main(
    *,
    only: tuple[str, ...] | None,
    workloads: tuple[str, ...] | None,
    quick: bool,
    rounds: int | None,
    jobs: int | None,
    again: int,
    path: Path,
    fresh: bool,
    docs: bool,
    listing: bool,
) -> None:
    if listing:
        return show_list()
    if docs:
        return write_documentation(path)
    names = workloads or [name for name, each in WORKLOADS.items() if each.in_quick or not quick]
    plan = Plan(
        peers=chosen(only) if only else PEERS,
        workloads=tuple(WORKLOADS[name] for name in names),
        rounds=rounds or (1 if quick else 3),
        quick=quick,
        most=jobs,
        again=again,
    )
    if fresh:
        path.unlink(missing_ok=True)
    results = kept.load(path, environment({}, ("src",)))
    results.sessions.append(_session(plan))
    try:
        problems = run(plan, results, path)
    finally:
        kept.save(results, path)
        publish(results, path)
    for name, reason in results.missing.items():
        click.echo(f"not run: {name}: {reason}", err=True)
    sys.exit(1 if problems else 0)


def publish(results: Results, path: Path) -> list[Path]:
    """The page and the drawings beside the JSON."""
    write_page(results, path.with_suffix(".md"))
    return draw(results, path.parent / "plots")


def write_documentation(path: Path) -> None:
    results = msgspec.json.decode(path.read_bytes(), type=Results)
    write_docs(results, _ROOT / "docs/benchmarks.md", publish(results, path))


def _session(plan: Plan) -> Session:
    return Session(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        arguments=shlex.join(sys.argv[1:]),
        rounds=plan.rounds,
        quick=plan.quick,
        load=os.getloadavg()[0],
    )


def run(plan: Plan, results: Results, path: Path) -> int:
    """With a bar for whoever waits; how many entries had a problem. What is found is kept as it comes."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=600) as bar:
        task = bar.add_task("getting ready", total=None)
        pending: list[float] = []

        def tell(what: Told | str) -> None:
            if isinstance(what, str):
                return bar.console.print(what, highlight=False, soft_wrap=True)
            if pending:
                bar.advance(task, pending.pop())
                kept.save(results, path)
            pending.append(what.expected)
            bar.update(task, description=what.text)
            if not console.is_terminal:
                console.print(what.text, highlight=False, soft_wrap=True)

        tournament = Tournament(plan, results, tell)
        with tournament.ready():
            total = sum(tournament.expected(workload, entry) for workload, _, _, entry in tournament.bouts())
            bar.update(task, total=total)
            problems = tournament.run()
            bar.update(task, completed=total, description="done")
    return problems


def show_list() -> None:
    console = Console()
    for peer in PEERS:
        settings = dict.fromkeys(each.name for each in (peer.default, peer.tuned, peer.prompt, peer.batch) if each)
        console.print(f"{peer.name:18}{peer.store:10}{'; '.join(settings)}", highlight=False, soft_wrap=True)
    for name, workload in WORKLOADS.items():
        console.print(f"{name:18}{workload.title}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
