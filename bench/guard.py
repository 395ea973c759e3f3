"""Compare this tree with another commit: fails if it is slower, later or dearer for the server by more than 15 %.

    python bench/guard.py --base main
    python bench/guard.py --base HEAD~3 --store postgres --rounds 7

The other commit is checked out into a temporary folder with an environment of its own. Both take turns, each first in
every other round, and what counts is the median of the ratios within the rounds: what disturbs one disturbs both.

Exit status: 0; 1 if something was lost, with a table that says what; 2 if jobs went wrong or the commit cannot be had.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import click
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.progress import say  # noqa: E402
from bench.lib.race import DiscrepancyError  # noqa: E402
from bench.peers.bouts import FailedError  # noqa: E402
from bench.peers.grounds import GROUNDS, Ground  # noqa: E402
from bench.peers.provision import Home, own_home, python_home  # noqa: E402
from bench.peers.table import EVERY, STORES  # noqa: E402
from bench.peers.workloads import WORKLOADS, Entry, Stage  # noqa: E402

LOSS = 0.15
"""So much may be lost to chance."""


_LEAST = 1e-9
"""A short run may cost a server less than its clock can tell."""


class Watched(msgspec.Struct, frozen=True):
    """A figure that must not get worse: of which workload, in which variant, and with how many jobs."""

    workload: str
    variant: str
    figures: tuple[str, ...]
    jobs: int


WATCHED = (
    Watched("throughput", "async, 1 process", ("rate", "server_cpu", "log_bytes"), 50_000),
    Watched("throughput", "plain, 1 process", ("rate",), 50_000),
    Watched("latency", "idle", ("p50",), 150),
    Watched("enqueue", "one by one", ("rate",), 2_000),
    Watched("enqueue", "bulk", ("rate",), 50_000),
)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One figure on one store, of both trees. ``change`` is above 0 where this tree is better."""

    store: str
    what: str
    base: float
    tree: float
    change: float

    @property
    def lost(self) -> bool:
        return self.change < -LOSS


@click.command(help="Fail if this tree is slower than another commit.")
@click.option("--base", required=True, help="The commit to compare with.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="The most jobs that a run may have.")
def main(base: str, stores: str, rounds: int, jobs: int | None) -> None:
    names = stores.split(",")
    if unknown := [name for name in names if name not in STORES]:
        raise click.BadParameter(f"no store is called {unknown[0]!r}: there are {', '.join(STORES)}")
    try:
        with base_home(base) as other:
            homes = {"base": other, "tree": own_home()}
            found = [each for name in names for each in compare_on(name, homes, rounds, jobs)]
    except (DiscrepancyError, FailedError) as problem:
        click.echo(f"no figures: {problem}", err=True)
        sys.exit(2)
    show(found, base)
    lost = [each for each in found if each.lost]
    if lost:
        click.echo(f"more than {LOSS:.0%} lost in {len(lost)} of {len(found)} figures", err=True)
    sys.exit(1 if lost else 0)


@contextmanager
def base_home(commit: str) -> Iterator[Home]:
    """The other commit in a worktree of its own, installed into an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="dibs-guard-") as folder:
        tree, venv = Path(folder) / "tree", Path(folder) / "venv"
        _run("git", "-C", str(_ROOT), "worktree", "add", "--detach", str(tree), commit)
        try:
            say(f"installing {commit}")
            _run(sys.executable, "-m", "venv", str(venv))
            python = venv / "bin" / "python"
            install = (str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
            _run(*install, "-e", f"{tree}[postgres,redis]", *_uvloop())
            yield python_home(python, tree / "src")
        finally:
            _run("git", "-C", str(_ROOT), "worktree", "remove", "--force", str(tree))


def _uvloop() -> tuple[str, ...]:
    """Both trees have it, or neither."""
    try:
        return (f"uvloop=={version('uvloop')}",)
    except PackageNotFoundError:
        return ()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        click.echo(f"{command[0]} failed: {said[-1] if said else 'without a word'}", err=True)
        sys.exit(2)


def compare_on(store: str, homes: dict[str, Home], rounds: int, most: int | None) -> list[Compared]:
    """Every watched figure on one store."""
    ground = GROUNDS[store]()
    ground.start()
    try:
        return [each for watched in WATCHED for each in _compare(ground, watched, homes, rounds, most)]
    finally:
        ground.stop()


def _compare(ground: Ground, watched: Watched, homes: dict[str, Home], rounds: int, most: int | None) -> list[Compared]:
    peer = EVERY[f"dibs-{ground.store}"]
    entry, workload = Entry(peer, peer.default, watched.variant), WORKLOADS[watched.workload]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in homes}
    for turn in range(rounds):
        order = list(homes) if turn % 2 == 0 else list(homes)[::-1]
        for name in order:
            stage = Stage(ground, homes[name], most=min(watched.jobs, most or watched.jobs))
            found[name].append(workload.measure(stage, entry)[1])
    say(f"{ground.store}: {watched.workload}, {watched.variant}: {rounds} rounds")
    return [
        _compared(ground.store, watched, figure, found["base"], found["tree"])
        for figure in watched.figures
        if all(figure in each for each in (*found["base"], *found["tree"]))
    ]


def _compared(
    store: str, watched: Watched, figure: str, base: Sequence[dict[str, float]], tree: Sequence[dict[str, float]]
) -> Compared:
    column = WORKLOADS[watched.workload].figures[figure]
    pairs = zip(tree, base, strict=True)
    ratio = median(max(mine[figure], _LEAST) / max(theirs[figure], _LEAST) for mine, theirs in pairs)
    return Compared(
        store=store,
        what=f"{watched.workload}, {watched.variant}: {column.label}",
        base=median(each[figure] for each in base),
        tree=median(each[figure] for each in tree),
        change=ratio - 1 if column.better == "more" else 1 / ratio - 1,
    )


def show(found: Sequence[Compared], base: str) -> None:
    console = Console()
    table = Table(title=f"This tree and {base}: medians, and the median of the ratios within the rounds")
    for column in ("store", "what", base, "tree", "change", ""):
        table.add_column(column, justify="left" if column in ("store", "what", "") else "right")
    for each in found:
        row = (each.store, each.what, f"{each.base:,.1f}", f"{each.tree:,.1f}", f"{each.change:+.1%}")
        table.add_row(*row, "LOST" if each.lost else "", style="bold red" if each.lost else None)
    (console if console.is_terminal else Console(width=140)).print(table)


if __name__ == "__main__":
    main()
