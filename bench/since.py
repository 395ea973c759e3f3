"""Compare claims and settles of this tree with those of another commit: has what was added slowed plain jobs down?

    python bench/since.py --base d193a14
    python bench/since.py --base main --store postgres,redis --turns 200

Both trees run beside each other on the same server, each with jobs of its own, and take turns of some milliseconds, so
that what disturbs one disturbs the other. A figure is the median of the ratios within the turns, with the quartiles
beside it. Each proves that its jobs were claimed once and settled before its time counts; else the exit status is 2.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

import click
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.guard import base_home  # noqa: E402
from bench.lib.arenas import STORES  # noqa: E402
from bench.lib.program import keep, named  # noqa: E402
from bench.lib.progress import say  # noqa: E402
from bench.lib.sqlite import disk  # noqa: E402
from bench.peers.provision import Home, own_home  # noqa: E402
from tests.servers import PostgresServer, RedisServer, find_postgres, find_redis  # noqa: E402

BATCHES = (1, 200)
JOBS = {"memory": (200, 400), "sqlite": (100, 1_000), "postgres": (50, 1_000), "redis": (100, 1_000)}
"""How many of a turn, one by one and by two hundred: a few milliseconds to some tens."""


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """One store, one size of calls."""

    store: str
    batch: int
    base: float
    """Microseconds a job, the median of the turns."""
    tree: float
    ratio: float
    """The rate of this tree, of the other's: the median of the ratios within the turns."""
    lower: float
    upper: float


@click.command(help="Compare claims and settles of this tree with those of another commit.")
@click.option("--base", required=True, help="The commit to compare with.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--turns", type=click.IntRange(min=2), default=100, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/since.json")
def main(base: str, stores: str, turns: int, json_path: Path) -> None:
    names, found = named(stores, STORES), list[Since]()
    with base_home(base) as other:
        homes = (other, own_home())
        for name in names:
            with _places(name) as urls:
                for batch, jobs in zip(BATCHES, JOBS[name], strict=True):
                    found.append(_compare(name, batch, jobs, turns, tuple(zip(homes, urls, strict=True))))
    show(found, base)
    keep(json_path, {}, base=base, turns=turns, since=found)


@contextmanager
def _places(store: str) -> Iterator[tuple[str, str]]:
    """Two empty stores of a kind, for the one tree and for the other."""
    with ExitStack() as stack:
        match store:
            case "memory":
                yield "memory://", "memory://"
            case "sqlite":
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=disk()))
                yield f"sqlite:///{folder}/base.db", f"sqlite:///{folder}/tree.db"
            case "postgres":
                postgres = stack.enter_context(PostgresServer(find_postgres()[-1], durable=True))
                base, tree = (postgres.create_database(name) for name in ("base", "tree"))
                yield f"{base}?migrate=auto", f"{tree}?migrate=auto"
            case _:
                redis = stack.enter_context(RedisServer(find_redis()[-1], appendonly="yes", appendfsync="everysec"))
                yield redis.url(1), redis.url(2)


def _compare(store: str, batch: int, jobs: int, turns: int, sides: tuple[tuple[Home, str], ...]) -> Since:
    with ExitStack() as stack:
        (_, base), (_, tree) = [
            (home, stack.enter_context(Side(home, url, batch, jobs * (turns + 1)))) for home, url in sides
        ]
        times: dict[Side, list[float]] = {base: [], tree: []}
        for turn in range(turns + 1):
            for side in (base, tree) if turn % 2 else (tree, base):
                times[side].append(side.take(jobs))
    mine, theirs = times[tree][1:], times[base][1:]  # the first of each only warms up
    ratios = [other / own for own, other in zip(mine, theirs, strict=True)]
    lower, _, upper = quantiles(ratios, n=4)
    say(f"{store}, by {batch}: {median(ratios):.2f}")
    each = 1e6 / jobs
    spread = {"ratio": median(ratios), "lower": lower, "upper": upper}
    return Since(store=store, batch=batch, base=median(theirs) * each, tree=median(mine) * each, **spread)


class Side:
    """A process of one of the trees."""

    def __init__(self, home: Home, url: str, batch: int, jobs: int) -> None:
        command = (home.command[0], "-m", "bench.lib.turns", url, str(batch), str(jobs))
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=home.variables, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> "Side":
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, which ends it, and waits
            pass

    def take(self, jobs: int) -> float:
        """A turn: seconds for so many jobs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{jobs}\n")
        self._process.stdin.flush()
        return float(self._hear())

    def _hear(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline().strip():
            return line
        with self._process as ended:
            click.echo(f"no figures: {' '.join(ended.args)} ended", err=True)  # type: ignore[arg-type]
        sys.exit(2)


def show(found: list[Since], base: str) -> None:
    table = Table(title=f"Claims and settles: this tree and {base}")
    for column in ("store", "at a time", f"{base}, µs a job", "tree", "rate of it", "quartiles"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for each in found:
        spread = f"{each.lower:.2f} to {each.upper:.2f}"
        table.add_row(
            each.store, f"{each.batch}", f"{each.base:,.1f}", f"{each.tree:,.1f}", f"{each.ratio:.2f}", spread
        )
    Console().print(table)


if __name__ == "__main__":
    main()
