"""The results as a page: one table for each workload and store."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.peers.results import Cell, Results, cells
from bench.peers.table import STORES
from bench.peers.workloads import WORKLOADS, Figure, Workload

NONE = "–"
TITLES = {"postgres": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite"}
BUSY = 0.25
"""Cores used by others from which on a line is marked."""


class Sheet(msgspec.Struct, frozen=True):
    """A table before it is drawn; the first ``words`` columns are text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int


def sheets(results: Results) -> Iterator[Sheet]:
    """The tables that have anything in them."""
    for name, workload in WORKLOADS.items():
        for store in STORES:
            found = [cell for cell in cells(results.of(name)) if cell.store == store]
            if found:
                yield _sheet(workload, store, found)


def _sheet(workload: Workload, store: str, found: Sequence[Cell]) -> Sheet:
    figures = {name: figure for name, figure in workload.figures.items() if any(name in cell.figures for cell in found)}
    columns = ("system", "setting", "variant", "jobs", *(figure.label for figure in figures.values()))
    rows = [
        (cell.peer, cell.setting, cell.variant, f"{cell.jobs:,}", *_values(cell, figures)) for cell in _ranked(found)
    ]
    return Sheet(f"{workload.title}, {TITLES[store]}", columns, rows, 3)


def _ranked(found: Sequence[Cell]) -> list[Cell]:
    """By variant, in the order in which these came."""
    variants = list(dict.fromkeys(cell.variant for cell in found))
    return sorted(found, key=lambda cell: variants.index(cell.variant))


def _values(cell: Cell, figures: dict[str, Figure]) -> list[str]:
    if cell.problem:
        return [f"no figure: {cell.problem}", *[NONE] * (len(figures) - 1)]
    mark = " *" if cell.others > BUSY else ""
    values = [shown(cell.figures.get(name), figure.digits) for name, figure in figures.items()]
    return [values[0] + mark, *values[1:]]


def shown(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def markdown(sheet: Sheet) -> str:
    rule = ["---" if number < sheet.words else "---:" for number in range(len(sheet.columns))]
    lines = (sheet.columns, rule, *sheet.rows)
    return f"**{sheet.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page(results: Results, path: Path) -> None:
    path.write_text("\n\n".join(["# dibs and its peers", *map(markdown, sheets(results))]) + "\n", "utf-8")
