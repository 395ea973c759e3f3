"""The report: tables for people on stdout or in Markdown, everything as JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.lib.checks import Check
from bench.lib.depth import Filling, Latency
from bench.lib.environment import Environment
from bench.lib.plan import Plan
from bench.lib.snapshot import Slope
from bench.lib.throughput import Cell

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class Report(msgspec.Struct, kw_only=True):
    """All that a run found out."""

    environment: Environment
    plan: Plan
    throughput: list[Cell] = msgspec.field(default_factory=list)
    snapshot: list[Slope] = msgspec.field(default_factory=list)
    depth: list[Latency] = msgspec.field(default_factory=list)
    filling: list[Filling] = msgspec.field(default_factory=list)
    checks: list[Check] = msgspec.field(default_factory=list)


class Sheet(msgspec.Struct, frozen=True):
    """A table before it is drawn; the first ``words`` columns are text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int


def sheets(report: Report) -> Iterator[Sheet]:
    """The tables that have anything in them."""
    every = (
        _throughput(report.throughput),
        _snapshot(report.snapshot),
        _depth(report.depth),
        _filling(report.filling),
        _checks(report.checks),
    )
    return (sheet for sheet in every if sheet.rows)


def _throughput(cells: Sequence[Cell]) -> Sheet:
    columns = ("store", "way", "batch", "claimers", "jobs/s", "limit", "% of limit")
    rows = [
        (cell.store, cell.way, f"{cell.batch:,}", f"{cell.claimers}", f"{cell.rate:,.0f}",
         "n/a" if cell.limit is None else f"{cell.limit:,.0f}",
         "n/a" if cell.of_limit is None else f"{cell.of_limit:.0%}")
        for cell in cells
    ]  # fmt: skip
    return Sheet("Claim + settle, jobs per second", columns, rows, 2)


def _snapshot(slopes: Sequence[Slope]) -> Sheet:
    columns = ("way", "jobs", *(f"{n}/8" for n in range(1, 9)), "last of first")
    rows = [
        (slope.way, f"{slope.jobs:,}", *(f"{rate:,.0f}" for rate in slope.eighths), f"{slope.last_of_first:.0%}")
        for slope in slopes
    ]
    return Sheet("PostgreSQL with one old snapshot, jobs per second by eighths", columns, rows, 1)


def _depth(latencies: Sequence[Latency]) -> Sheet:
    columns = ("store", "situation", "limit", "median", "95 %", "longest", "first", "x empty")
    rows = [
        (each.store, each.situation, f"{each.limit}", f"{each.median:.2f}", f"{each.p95:.2f}",
         f"{each.longest:.2f}", f"{each.first:.2f}", f"{each.of_empty:.2f}")
        for each in latencies
    ]  # fmt: skip
    return Sheet("One claim, milliseconds", columns, rows, 2)


def _filling(fillings: Sequence[Filling]) -> Sheet:
    columns = ("store", "situation", "jobs", "jobs/s")
    rows = [(each.store, each.situation, f"{each.jobs:,}", f"{each.rate:,.0f}") for each in fillings]
    return Sheet("Enqueue in calls of 10,000", columns, rows, 2)


def _checks(checks: Sequence[Check]) -> Sheet:
    rows = [("met" if each.met else "MISSED", each.what, each.wanted, f"{each.measured:.2f}") for each in checks]
    return Sheet("Thresholds (ratios)", ("", "threshold", "wanted", "measured"), rows, 2)


def show(report: Report) -> None:
    """Print it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    for sheet in sheets(report):
        table = Table(title=sheet.title, title_justify="left")
        for number, column in enumerate(sheet.columns):
            table.add_column(column, justify="left" if number < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*row, style="bold red" if row[0] == "MISSED" else None)
        console.print(table)
    console.print(_origin(report))


def _origin(report: Report) -> str:
    place = report.environment
    parts = [f"dibs {place.dibs} ({place.commit})", place.python, f"{place.system}, {place.cores} cores"]
    parts += [f"{name} {version}" for name, version in place.versions.items()]
    size = "quick run, " if report.plan.quick else ""
    return f"{size}{place.date}: {', '.join(parts)}."


def write_json(report: Report, path: Path) -> None:
    """Everything, for programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = msgspec.to_builtins(report)
    for each, check in zip(document["checks"], report.checks, strict=True):
        each["met"] = check.met
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def write_markdown(report: Report, path: Path) -> None:
    """The tables, between the marks in a page."""
    page = path.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{path.name} has no place for figures: write {BEGIN} and {END} into it")
    parts = [BEGIN, _origin(report), *(_markdown(sheet) for sheet in sheets(report)), END]
    path.write_text(before + "\n\n".join(parts) + after, "utf-8")


def _markdown(sheet: Sheet) -> str:
    rule = ["---" if number < sheet.words else "---:" for number in range(len(sheet.columns))]
    lines = (sheet.columns, rule, *sheet.rows)
    return f"**{sheet.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
