"""Drawings of the results: bars, one picture for each question, for light and for dark pages, as PNG and SVG."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.peers.pages import TITLES, best_of
from bench.peers.results import Cell, Results, cells
from bench.peers.table import STORES
from bench.peers.workloads import WORKLOADS

THEMES = {
    "light": {"text": "#1f2328", "grid": "#d0d7de", "ours": "#0969da", "theirs": "#8c959f", "limit": "#d4a72c"},
    "dark": {"text": "#e6edf3", "grid": "#30363d", "ours": "#4493f8", "theirs": "#6e7681", "limit": "#bb8009"},
}
FORMATS = ("png", "svg")


class Drawing(msgspec.Struct, frozen=True):
    """A picture before it is drawn: one panel for each store."""

    name: str
    title: str
    unit: str
    panels: dict[str, Sequence[tuple[str, float]]]
    cut: float | None = None
    """Bars that are so many times as long as the shortest are cut off there, and an arrow says so."""


def drawings(results: Results) -> Iterator[Drawing]:
    """Those that there are figures for."""
    every = (
        _drawing(results, "throughput", "rate", "Throughput, one worker process, best setting of each", "jobs/s"),
        _drawing(results, "latency", "p50", "Latency of an idle worker, best setting of each: median", "ms", cut=8),
        _drawing(results, "enqueue", "rate", "Enqueue, one by one", "jobs/s", variant="one by one"),
        _drawing(results, "enqueue", "rate", "Enqueue, many in a call", "jobs/s", variant="bulk", name="enqueue-bulk"),
        _drawing(results, "throughput", "life_bytes", "Log of the server, enqueue to end", "bytes/job", name="log"),
        _drawing(
            results, "throughput", "life_cpu", "Processor time of the server, enqueue to end", "µs/job", name="server"
        ),
        _drawing(results, "10ms", "rate", "Jobs of 10 ms, a hundred at a time (10,000 would be perfect)", "jobs/s"),
        _drawing(results, "snapshot", "ratio", "An old snapshot is held: last quarter of the first", "ratio"),
    )
    return (drawing for drawing in every if drawing.panels)


def _drawing(
    results: Results,
    workload: str,
    figure: str,
    title: str,
    unit: str,
    *,
    variant: str | None = None,
    name: str | None = None,
    cut: float | None = None,
) -> Drawing:
    less = WORKLOADS[workload].figures[figure].better == "less"
    panels: dict[str, Sequence[tuple[str, float]]] = {}
    for store in STORES:
        found = [cell for cell in cells(results.of(workload)) if cell.store == store and figure in cell.figures]
        found = [cell for cell in found if _fits(cell, workload, variant)]
        bars = [(cell.system, cell.figures[figure]) for cell in best_of(found, figure, less=less)]
        if bars:
            panels[store] = bars
    return Drawing(name or workload, title, unit, panels, cut)


def _fits(cell: Cell, workload: str, variant: str | None) -> bool:
    if variant is not None:
        return cell.variant == variant
    return cell.variant.endswith("1 process") if workload == "throughput" else True


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw all of them; the files that were written."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "dibs"  # the same figures give the same file
    folder.mkdir(parents=True, exist_ok=True)
    return [path for drawing in drawings(results) for theme in THEMES for path in _draw(drawing, theme, folder)]


def _draw(drawing: Drawing, theme: str, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    colours = THEMES[theme]
    heights = [len(bars) for bars in drawing.panels.values()]
    figure, axes = pyplot.subplots(
        len(heights),
        1,
        figsize=(9, 0.9 + sum(heights) * 0.3 + 0.5 * len(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for (store, bars), axis in zip(drawing.panels.items(), axes[:, 0], strict=True):
        _panel(axis, TITLES[store], bars, colours, drawing)
    figure.suptitle(f"{drawing.title}, {drawing.unit}", color=colours["text"], x=0.02, ha="left", fontsize=12)
    figure.tight_layout()
    paths = [folder / f"{drawing.name}-{theme}.{kind}" for kind in FORMATS]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, transparent=True, dpi=120, metadata=metadata)
    pyplot.close(figure)
    return paths


def _panel(axis: Any, title: str, bars: Sequence[tuple[str, float]], colours: dict[str, str], drawing: Drawing) -> None:
    names = [name for name, _ in bars][::-1]
    values = [value for _, value in bars][::-1]
    longest = min(values) * drawing.cut if drawing.cut else max(values)
    drawn = axis.barh(
        names, [min(value, longest) for value in values], color=[colours[_whose(name)] for name in names], height=0.7
    )
    labels = [f"→ {_number(value)}" if value > longest else _number(value) for value in values]
    axis.bar_label(drawn, labels, padding=4, color=colours["text"], fontsize=9)
    axis.set_title(title, loc="left", color=colours["text"], fontsize=10)
    axis.margins(x=0.12)
    axis.tick_params(colors=colours["text"], labelsize=9, length=0)
    axis.xaxis.set_visible(False)
    for side in axis.spines.values():
        side.set_visible(False)


def _whose(name: str) -> str:
    return "ours" if name.startswith("dibs") else "limit" if name.startswith("limit") else "theirs"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 2 else f"{value:,.2f}"
