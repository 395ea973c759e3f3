"""Measure what a duplicate costs in a store of a million keyed jobs, against a new job.

    python bench/keys.py
    python bench/keys.py --store sqlite --jobs 1000000 --calls 300

Calls of one job and of 200, in turns: with new keys, with keys of jobs that are queued, and with keys of jobs that have
succeeded within their window. The ratio is the median of those within the rounds. Every answer is compared with the job
that is there, and at the end the store must have just the jobs that were new. Exit status: 0; 1 if ``--check`` found a
duplicate that takes more than 1.1 times as long as a new job; 2 if an answer or a count was wrong: then there are no
figures.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from statistics import median
from uuid import UUID

import click
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import STORES, Arena  # noqa: E402
from bench.lib.program import keep, named, on_each  # noqa: E402
from bench.lib.progress import say  # noqa: E402
from bench.lib.race import DiscrepancyError  # noqa: E402
from bench.lib.ways import CHUNK, LEASE, QUEUE, TASK, arguments  # noqa: E402
from dibs import NewJob, State, Store  # noqa: E402
from dibs.outcome import Succeeded  # noqa: E402

KINDS = ("new", "queued", "in its window")
SIZES = (1, 200)
WINDOW = timedelta(days=1)
FINISHED = 10_000
MOST = 1.1


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds a job, medians; and how many times as long as a new one."""

    store: str
    jobs: int
    size: int
    kind: str
    micros: float
    of_new: float


@click.command(help="Measure what a duplicate costs among a million keyed jobs.")
@click.option("--store", "stores", default="sqlite,postgres,redis", show_default=True, help="Names, with commas.")
@click.option("--jobs", type=click.IntRange(min=2 * FINISHED), default=1_000_000, show_default=True)
@click.option("--calls", type=click.IntRange(min=1), default=300, show_default=True, help="Of each kind and size.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/keys.json")
@click.option("--check", is_flag=True, help=f"Exit with 1 if a duplicate takes more than {MOST} times as long.")
def main(*, stores: str, jobs: int, calls: int, json_path: Path, check: bool) -> None:
    costs, versions = on_each(named(stores, STORES), lambda ground: measure(ground, jobs, calls))
    show(costs)
    keep(json_path, versions, keys=costs)
    if check and any(cost.of_new > MOST for cost in costs):
        sys.exit(1)


async def measure(ground: Arena, jobs: int, calls: int) -> list[Cost]:
    store = await ground.open_place("keys")
    try:
        return await Keys(ground, store, jobs).measure(calls)
    finally:
        await store.close()


class Keys:
    """One store that is filled with keyed jobs."""

    def __init__(self, ground: Arena, store: Store, jobs: int) -> None:
        self._ground = ground
        self._store = store
        self._jobs = jobs
        self._dice = Random(3)
        self._ids: list[UUID] = []
        self._new = 0
        self._fresh = jobs

    async def measure(self, calls: int) -> list[Cost]:
        await self._fill()
        times = {(size, kind): list[float]() for size in SIZES for kind in KINDS}
        for _ in range(calls):
            for size in SIZES:
                for kind in self._dice.sample(KINDS, len(KINDS)):
                    jobs, there = self._order(kind, size)
                    began = time.perf_counter()
                    answers = await self._store.enqueue(jobs)
                    times[size, kind].append(time.perf_counter() - began)
                    expected = [(job.id, True) for job in jobs] if there is None else [(id_, False) for id_ in there]
                    self._agree(f"answers to {kind} jobs", [(each.id, each.created) for each in answers], expected)
        counts = next(each.states for each in await self._store.counts() if each.queue == QUEUE)
        self._agree("queued", counts[State.QUEUED], self._jobs - FINISHED + self._new)
        self._agree("succeeded", counts[State.SUCCEEDED], FINISHED)
        return [self._cost(size, kind, times) for size, kind in times]

    async def _fill(self) -> None:
        """The first jobs are finished, in their window; all others are queued."""
        for start in range(0, self._jobs, CHUNK):
            numbers = range(start, min(start + CHUNK, self._jobs))
            answers = await self._store.enqueue([self._job(number) for number in numbers])
            self._ids += [answer.id for answer in answers]
        done = 0
        while done < FINISHED:
            claims = await self._store.claim(QUEUE, "w", min(1_000, FINISHED - done), LEASE)
            await self._store.settle([claim.settled(Succeeded()) for claim in claims])
            done += len(claims)
        await self._ground.calm_place("keys")
        say(f"{self._ground.name}: {self._jobs:,} keyed jobs")

    def _job(self, number: int) -> NewJob:
        window = WINDOW if number < FINISHED else None
        return NewJob(task=TASK, queue=QUEUE, args=arguments(number), key=_key(number), unique_for=window)

    def _order(self, kind: str, size: int) -> tuple[list[NewJob], list[UUID] | None]:
        """What to enqueue; and the ids of the jobs that are there."""
        if kind == "new":
            numbers: Sequence[int] = range(self._fresh, self._fresh + size)
            self._fresh += size
            self._new += size
            return [self._job(number) for number in numbers], None
        known = range(FINISHED) if kind == "in its window" else range(FINISHED, self._jobs)
        numbers = self._dice.sample(known, size)
        return [self._job(number) for number in numbers], [self._ids[number] for number in numbers]

    def _cost(self, size: int, kind: str, times: Mapping[tuple[int, str], list[float]]) -> Cost:
        mine, new = times[size, kind], times[size, "new"]
        return Cost(
            store=self._ground.name,
            jobs=self._jobs,
            size=size,
            kind=kind,
            micros=median(mine) / size * 1e6,
            of_new=median(one / other for one, other in zip(mine, new, strict=True)),
        )

    def _agree(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise DiscrepancyError(f"{self._ground.name}: {what}: {found}, expected {expected}")


def _key(number: int) -> str:
    """Scattered, each once: new keys fall into an index wherever old ones are, as those of a shop's customers do."""
    return f"key-{number * 2_654_435_761 % 2**32:08x}"


def show(costs: Sequence[Cost]) -> None:
    table = Table(title="Enqueueing among keyed jobs, µs a job")
    for column in ("store", "jobs", "at a time", "key", "µs", "x new"):
        table.add_column(column, justify="left" if column in ("store", "key") else "right")
    for cost in costs:
        table.add_row(
            cost.store,
            f"{cost.jobs:,}",
            str(cost.size),
            cost.kind,
            f"{cost.micros:,.1f}",
            f"{cost.of_new:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
