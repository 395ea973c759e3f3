"""The results as pages: what everybody reached, where a peer is better, and every figure by workload and store."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.peers.results import BUSY, Cell, Results, cells
from bench.peers.table import APART, EVERY, STORES
from bench.peers.workloads import WORKLOADS, Figure, Workload

NONE = "–"
TITLES = {"postgres": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite"}
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

OVERVIEW: dict[str, tuple[str, str, str]] = {
    "jobs/s, 1 process": ("throughput", "rate", "1 process"),
    "2 processes": ("throughput", "rate", "2 processes"),
    "latency, median ms": ("latency", "p50", ""),
    "99 %": ("latency", "p99", ""),
    "enqueued/s, one by one": ("enqueue", "rate", "one by one"),
    "many in a call": ("enqueue", "rate", "bulk"),
    "100 clients": ("enqueue", "rate", "100 clients"),
    "10 ms jobs/s": ("10ms", "rate", ""),
    "server µs/job": ("throughput", "life_cpu", "1 process"),
    "log bytes/job": ("throughput", "life_bytes", "1 process"),
    "memory MB": ("throughput", "memory", "1 process"),
}
"""Columns of the overview: workload, figure, and how the variant ends. Of several the best counts."""


class Sheet(msgspec.Struct, frozen=True):
    """A table before it is drawn; the first ``words`` columns are text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int


def best_of(found: Sequence[Cell], figure: str, *, less: bool) -> list[Cell]:
    """The best cell of each system, the best system first."""
    ordered = sorted((cell for cell in found if figure in cell.figures), key=lambda cell: cell.figures[figure])
    best: dict[str, Cell] = {}
    for cell in ordered if less else reversed(ordered):
        best.setdefault(cell.system, cell)
    return list(best.values())


def _column(results: Results, store: str, column: str) -> list[Cell]:
    workload, figure, ending = OVERVIEW[column]
    found = [each for each in cells(results.of(workload)) if each.store == store and each.variant.endswith(ending)]
    return best_of(found, figure, less=_figure(column).better == "less")


def _figure(column: str) -> Figure:
    workload, figure, _ = OVERVIEW[column]
    return WORKLOADS[workload].figures[figure]


def overviews(results: Results) -> Iterator[Sheet]:
    """A table for each store: everybody's best in every column, bold where it is the best of all."""
    for store in STORES:
        columns = {name: found for name in OVERVIEW if (found := _column(results, store, name))}
        found_names = {cell.system for found in columns.values() for cell in found}
        names = [name for name in _systems(store) if name in found_names]
        if names:
            rows = [_overview_row(name, columns) for name in names]
            yield Sheet(TITLES[store], ("system", *columns), rows, 1)


def _systems(store: str) -> Iterator[str]:
    """In the order of the table, the limit last."""
    for name, peer in EVERY.items():
        if peer.store == store:
            yield name
            yield from (f"{name}, {apart.name}" for apart in (peer.batch, peer.unsynced) if apart)


def _of(name: str, found: Sequence[Cell]) -> Cell | None:
    return next((cell for cell in found if cell.system == name), None)


def _overview_row(name: str, columns: dict[str, list[Cell]]) -> tuple[str, ...]:
    shown_cells = []
    for column, found in columns.items():
        cell, figure = _of(name, found), OVERVIEW[column][1]
        best = next((each for each in found if not EVERY[each.peer].is_limit), None)
        text = shown(cell.figures[figure] if cell else None, min(1, _figure(column).digits))
        shown_cells.append(f"**{text}**" if cell is not None and cell is best else text)
    return (f"*{name}*" if name.startswith("limit") else name, *shown_cells)


def ahead(results: Results) -> Iterator[str]:
    """Where a peer is better than dibs, one line each."""
    for store in STORES:
        for column in OVERVIEW:
            found = [cell for cell in _column(results, store, column) if not EVERY[cell.peer].is_limit]
            ours = next((cell for cell in found if cell.peer == f"dibs-{store}" and cell.setting not in APART), None)
            if ours is None:
                continue
            figure = OVERVIEW[column][1]
            better = [
                f"{cell.peer} ({cell.setting}) {shown(cell.figures[figure], min(1, _figure(column).digits))}"
                for cell in found[: found.index(ours)]
                if cell.peer != ours.peer
            ]
            if better:
                value = shown(ours.figures[figure], min(1, _figure(column).digits))
                yield f"- {TITLES[store]}, {column}: {', '.join(better)}; dibs {value}."


def sheets(results: Results) -> Iterator[Sheet]:
    """Every figure, by workload and store."""
    for name, workload in WORKLOADS.items():
        for store in STORES:
            found = [cell for cell in cells(results.of(name)) if cell.store == store]
            if found:
                yield _sheet(workload, store, found)


def _sheet(workload: Workload, store: str, found: Sequence[Cell]) -> Sheet:
    figures = {name: figure for name, figure in workload.figures.items() if any(name in cell.figures for cell in found)}
    columns = ("system", "setting", "variant", "jobs", *(figure.label for figure in figures.values()), "of the limit")
    variants = list(dict.fromkeys(cell.variant for cell in found))
    ordered = sorted(found, key=lambda cell: variants.index(cell.variant))
    rows = [
        (
            cell.peer,
            cell.setting,
            cell.variant,
            f"{cell.jobs:,}",
            *_values(cell, figures),
            _of_limit(cell, figures, found),
        )
        for cell in ordered
    ]
    return Sheet(f"{workload.title}, {TITLES[store]}", columns, rows, 3)


def _values(cell: Cell, figures: dict[str, Figure]) -> list[str]:
    if cell.problem:
        return [f"no figure: {cell.problem}", *[NONE] * (len(figures) - 1)]
    mark = " *" if cell.others > BUSY else ""
    values = [shown(cell.figures.get(name), figure.digits) for name, figure in figures.items()]
    return [values[0] + mark, *values[1:]] if values else []


def _of_limit(cell: Cell, figures: dict[str, Figure], found: Sequence[Cell]) -> str:
    """The first figure beside that of the bare loop in the same variant, or in the one nearest to it."""
    if not figures or EVERY[cell.peer].is_limit:
        return NONE
    name, count = next(iter(figures)), cell.variant.rpartition(", ")[2]
    limit = next((each for each in found if EVERY[each.peer].is_limit and each.variant.endswith(count)), None)
    if limit is None or name not in limit.figures or name not in cell.figures:
        return NONE
    share = cell.figures[name] / limit.figures[name]
    return f"{share:.0%}" if figures[name].better == "more" else f"× {share:.1f}"


def shown(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def markdown(sheet: Sheet) -> str:
    rule = ["---" if number < sheet.words else "---:" for number in range(len(sheet.columns))]
    lines = (sheet.columns, rule, *sheet.rows)
    return f"**{sheet.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def origin(results: Results) -> str:
    """Where the figures come from: code, machine, versions, and the runs that they were put together from."""
    place = results.environment
    versions = ", ".join(f"{name} {version}" for name, version in sorted(place.versions.items()))
    lines = [
        f"dibs {place.dibs} ({place.commit}), {place.python}; {results.machine}.",
        f"Versions: {versions}.",
        f"All runs are of the same code (trees of src and bench/peers: {results.code}), on this machine:",
        "\n".join(
            f"- {each.date}, `bench/compare.py {each.arguments}`, rounds: {each.rounds}"
            f"{', quick: small numbers' if each.quick else ''}, load average before: {each.load:.1f}"
            for each in results.sessions
        ),
    ]
    return "\n\n".join(lines)


def not_run(results: Results) -> str:
    lines = [f"- {name}: {reason}" for name, reason in sorted(results.missing.items())]
    lines += [
        f"- {cell.peer} ({cell.setting}), {name}, {cell.variant}: {cell.problem}"
        for name in WORKLOADS
        for cell in cells(results.of(name))
        if cell.problem
    ]
    return "\n".join(lines) or "Nothing: every system that was asked ran."


def kept() -> Sheet:
    rows = [(name, peer.keeps) for name, peer in EVERY.items()]
    return Sheet("What each keeps of a finished job, and does without", ("system", "keeps"), rows, 2)


def body(results: Results, pictures: Sequence[str] = ()) -> str:
    """All but the words around it."""
    better = "\n".join(ahead(results)) or "Nowhere in these figures."
    parts = [
        "### Everybody at their best",
        "The best of each system's settings in every column; bold: the best of all systems. – : not measured, or it "
        "cannot. The limit is a bare loop over the driver, no system.",
        *map(markdown, overviews(results)),
        *pictures,
        markdown(kept()),
        "### Where a peer is better",
        better,
        "### What did not run, and what gave no figure",
        not_run(results),
        "### Every figure",
        f"Medians of the rounds. \\*: others used more than {BUSY} cores meanwhile.",
        *map(markdown, sheets(results)),
        "### Where the figures come from",
        origin(results),
    ]
    return "\n\n".join(parts)


def write_page(results: Results, path: Path) -> None:
    path.write_text(f"# dibs and its peers\n\n{body(results)}\n", "utf-8")


def write_docs(results: Results, page: Path, drawn: Sequence[Path]) -> None:
    """The figures, between the marks in a page of the documentation."""
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page.name} has no place for figures: write {BEGIN} and {END} into it")
    pictures = [_picture(path, page) for path in drawn if path.name.endswith("-light.svg")]
    page.write_text(f"{before}{BEGIN}\n\n{body(results, pictures)}\n\n{END}{after}", "utf-8")


def _picture(light: Path, page: Path) -> str:
    """Drawn for the reader's theme, where the page's reader can choose."""
    folder = Path("..") / light.parent.relative_to(page.parents[1])
    name = light.name.removesuffix("-light.svg")
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">'
        f'<img alt="{name}" src="{folder}/{name}-light.svg"></picture>'
    )
