"""The thresholds that the stores are held to, and whether a run met them."""

from collections.abc import Iterator, Sequence

import msgspec

from bench.lib.depth import Latency
from bench.lib.snapshot import Slope
from bench.lib.throughput import Cell

BULK = 200
BULK_OF_LIMIT = {"postgres": 0.70, "sqlite": 0.60, "redis": 0.60}
SINGLE_OF_LIMIT = 0.70
OF_TEXTBOOK = 1.6
LAST_OF_FIRST = 0.80
OF_EMPTY = 2.0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One threshold. ``measured`` is a ratio."""

    what: str
    least: float | None = None
    most: float | None = None
    measured: float

    @property
    def met(self) -> bool:
        return (self.least is None or self.measured >= self.least) and (self.most is None or self.measured <= self.most)

    @property
    def wanted(self) -> str:
        return f"≥ {self.least:.2f}" if self.least is not None else f"≤ {self.most:.2f}"


def checks(cells: Sequence[Cell], slopes: Sequence[Slope], latencies: Sequence[Latency]) -> list[Check]:
    """Those that can be told from what was measured."""
    return [*_throughput(cells), *_snapshot(slopes), *_depth(latencies)]


def _throughput(cells: Sequence[Cell]) -> Iterator[Check]:
    for cell in cells:
        if cell.way != "dibs" or cell.of_limit is None:
            continue
        if cell.batch == BULK and cell.claimers == 1:
            least = BULK_OF_LIMIT[cell.store]
            yield Check(what=f"{cell.store}: in bulk, of its limit", least=least, measured=cell.of_limit)
            if cell.of_textbook is not None:
                what = f"{cell.store}: in bulk, of the textbook layout"
                yield Check(what=what, least=OF_TEXTBOOK, measured=cell.of_textbook)
        elif cell.batch == 1:
            crowd = "1 claimer" if cell.claimers == 1 else f"{cell.claimers} claimers"
            what = f"{cell.store}: one by one with {crowd}, of its limit"
            yield Check(what=what, least=SINGLE_OF_LIMIT, measured=cell.of_limit)


def _snapshot(slopes: Sequence[Slope]) -> Iterator[Check]:
    for slope in slopes:
        if slope.way == "dibs":
            what = f"postgres: last eighth of {slope.jobs:,} jobs with an old snapshot, of the first"
            yield Check(what=what, least=LAST_OF_FIRST, measured=slope.last_of_first)


def _depth(latencies: Sequence[Latency]) -> Iterator[Check]:
    for latency in latencies:
        if latency.situation != "empty" and latency.store != "memory":
            what = f"{latency.store}: a claim of {latency.limit}, {latency.situation}, of the same in an empty store"
            yield Check(what=what, most=OF_EMPTY, measured=latency.of_empty)
