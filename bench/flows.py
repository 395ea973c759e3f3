"""Measure what a chain of ten steps costs, against ten plain jobs.

    python bench/flows.py
    python bench/flows.py --store sqlite,postgres --chains 500 --rounds 5
    python bench/flows.py --check

In turns, on an empty store each time: chains, each started by a call of its own, and as many times ten plain jobs, ten
in a call; then all are claimed and settled, by one and by 200 at a time. The ratio is the median of those within the
rounds. Every job must have run once, no step before the one that it needs, and every flow must have succeeded. Exit
status: 0; 1 if ``--check`` found a chain that takes more than twice as long as ten jobs; 2 if one of those was not so:
then there are no figures.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
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
from bench.lib.ways import LEASE, QUEUE, RESULT, TASK, DibsWay, arguments  # noqa: E402
from dibs import NewJob, Store  # noqa: E402
from dibs.job import FlowState, NewFlow, NewStep  # noqa: E402
from dibs.outcome import Succeeded, Verdict  # noqa: E402

LENGTH = 10
SIZES = (1, 200)
MOST = 2.0
KINDS = ("plain", "chain")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What ten jobs took, in microseconds: to create them, and to claim and settle them."""

    created: float
    run: float
    cpu: float
    """Processor time of this process and of the server, of both."""

    @property
    def whole(self) -> float:
        return self.created + self.run


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Medians; and how many times as much as ten plain jobs: medians of the ratios within the rounds."""

    store: str
    size: int
    kind: str
    spent: list[Spent]
    micros: float
    of_plain: float
    of_plain_created: float
    of_plain_run: float
    of_plain_cpu: float


@click.command(help="Measure what a chain of ten steps costs, against ten plain jobs.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--chains", type=click.IntRange(min=1), default=500, show_default=True, help="With claims of 200.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/flows.json")
@click.option("--check", is_flag=True, help="Exit with 1 if a chain takes more than twice as long.")
def main(*, stores: str, chains: int, rounds: int, json_path: Path, check: bool) -> None:
    found, versions = on_each(named(stores, STORES), lambda ground: measure(ground, chains, rounds))
    show(found)
    keep(json_path, versions, flows=found)
    if check and any(cost.of_plain > MOST for cost in found):
        sys.exit(1)


async def measure(ground: Arena, chains: int, rounds: int) -> list[Cost]:
    """One store; fewer chains where each job takes a call of its own."""
    found: list[Cost] = []
    for size in SIZES:
        found += await _costs(ground, size, chains if size > 1 else max(1, chains // 10), rounds)
    return found


async def _costs(ground: Arena, size: int, chains: int, rounds: int) -> list[Cost]:
    spent = {kind: list[Spent]() for kind in KINDS}
    for turn in range(rounds):
        for kind in KINDS if turn % 2 else reversed(KINDS):
            spent[kind].append(await _once(ground, kind, size, chains))
    say(f"{ground.name}, by {size}: " + ", ".join(f"{kind} {spent[kind][-1].whole:,.0f} µs" for kind in KINDS))
    return [_cost(ground.name, size, kind, spent[kind], spent["plain"]) for kind in KINDS]


def _cost(store: str, size: int, kind: str, mine: list[Spent], plain: list[Spent]) -> Cost:
    pairs = list(zip(mine, plain, strict=True))
    return Cost(
        store=store,
        size=size,
        kind=kind,
        spent=mine,
        micros=median(each.whole for each in mine),
        of_plain=median(one.whole / other.whole for one, other in pairs),
        of_plain_created=median(one.created / other.created for one, other in pairs),
        of_plain_run=median(one.run / other.run for one, other in pairs),
        of_plain_cpu=median(one.cpu / other.cpu for one, other in pairs),
    )


async def _once(ground: Arena, kind: str, size: int, chains: int) -> Spent:
    way = await ground.open("dibs", 1)
    assert isinstance(way, DibsWay)
    try:
        store = way.store
        await _work(store, size)  # connected, prepared
        cpu, began = ground.cpu(), time.perf_counter()
        for number in range(chains):
            await _create(store, kind, number)
        created = time.perf_counter() - began
        began = time.perf_counter()
        order = await _work(store, size)
        run, cpu = time.perf_counter() - began, ground.cpu() - cpu
        await _verify(store, kind, order, chains)
    finally:
        await way.close()
    micros = 1e6 / chains
    return Spent(created=created * micros, run=run * micros, cpu=cpu * micros)


async def _create(store: Store, kind: str, number: int) -> None:
    jobs = [NewJob(task=TASK, queue=QUEUE, args=arguments(number)) for _ in range(LENGTH)]
    if kind == "plain":
        await store.enqueue(jobs)
        return
    steps = (
        NewStep(name=f"s{place}", job=job, needs=(f"s{place - 1}",) if place else ()) for place, job in enumerate(jobs)
    )
    await store.start(NewFlow(name="chain", steps=tuple(steps)))


async def _work(store: Store, size: int) -> list[tuple[UUID | None, str | None]]:
    """Everything that can be claimed, until there is nothing; answers which flow's which step came when."""
    order: list[tuple[UUID | None, str | None]] = []
    while claims := await store.claim(QUEUE, "w", size, LEASE):
        verdicts = await store.settle([claim.settled(Succeeded(RESULT)) for claim in claims])
        if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
            raise DiscrepancyError(f"settles were answered {verdicts}")
        order += [(claim.flow, claim.step) for claim in claims]
    return order


async def _verify(store: Store, kind: str, order: list[tuple[UUID | None, str | None]], chains: int) -> None:
    if len(order) != chains * LENGTH:
        raise DiscrepancyError(f"{len(order)} jobs ran, expected {chains * LENGTH}")
    if kind == "plain":
        return
    seen: dict[UUID | None, list[str | None]] = {}
    for flow, step in order:
        seen.setdefault(flow, []).append(step)
    expected = [f"s{place}" for place in range(LENGTH)]
    if len(seen) != chains or any(steps != expected for steps in seen.values()):
        raise DiscrepancyError("steps ran out of their order")
    unfinished = await store.flows([state for state in FlowState if state is not FlowState.SUCCEEDED])
    if unfinished.flows:
        raise DiscrepancyError(f"{len(unfinished.flows)} flows have not succeeded")


def show(costs: Sequence[Cost]) -> None:
    table = Table(title="Ten jobs, µs")
    for column in ("store", "at a time", "", "µs", "x plain", "to create", "to run", "CPU"):
        table.add_column(column, justify="left" if column in ("store", "") else "right")
    for cost in costs:
        ratios = (cost.of_plain, cost.of_plain_created, cost.of_plain_run, cost.of_plain_cpu)
        table.add_row(cost.store, str(cost.size), cost.kind, f"{cost.micros:,.0f}", *(f"{each:.2f}" for each in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
