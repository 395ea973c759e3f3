"""Charts over time: lines, and stacks of bars."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

import msgspec
from markupsafe import Markup

from dibs.http.dashboard.svg import path, picture, tag, text, title

WIDTH, HEIGHT = 440.0, 170.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 8.0, 12.0, 22.0
_STEPS = (1, 2, 2.5, 5, 10)

Format = Callable[[float], str]


class Series(msgspec.Struct, frozen=True):
    """One line, or one colour of the bars. None: nobody measured."""

    name: str
    values: tuple[float | None, ...]
    kind: str = ""
    """What the style sheet colours it by: a state, or "s1" to "s6"."""


def number(value: float) -> str:
    """1,200 as "1.2k"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """0.0042 as "4.2 ms"."""
    if value >= 3600:
        return f"{value / 3600:.3g} h"
    if value >= 60:
        return f"{value / 60:.3g} min"
    if value >= 1 or value == 0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


class Frame:
    """The axes of a chart: where a slot and a value lie."""

    def __init__(self, starts: Sequence[datetime], highest: float, form: Format) -> None:
        self.starts = starts
        self.form = form
        self.ticks = nice_ticks(highest)
        self.top = self.ticks[-1]
        self.slot = (WIDTH - LEFT - RIGHT) / max(1, len(starts))

    def x(self, slot: float) -> float:
        return LEFT + slot * self.slot

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.top)

    def drawn(self) -> list[Markup]:
        rows = []
        for tick in self.ticks:
            y = self.y(tick)
            rows.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            rows.append(text(LEFT - 6, y + 4, self.form(tick), "axis", text_anchor="end"))
        return rows + self._times()

    def _times(self) -> list[Markup]:
        every = max(1, ceil(len(self.starts) / 5))
        marks = range(0, len(self.starts), every)
        return [text(self.x(n), HEIGHT - 6, f"{self.starts[n].astimezone(UTC):%H:%M}", "axis") for n in marks]


def nice_ticks(highest: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least ``highest``."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / count
    unit = 10 ** floor(log10(rough))
    step = next(unit * each for each in _STEPS if unit * each >= rough - 1e-12)
    return [step * n for n in range(ceil(highest / step - 1e-9) + 1)]


def line_chart(what: str, starts: Sequence[datetime], series: Sequence[Series], form: Format = number) -> Markup:
    """Lines over time, with gaps where nobody measured."""
    values = [value for each in series for value in each.values if value is not None]
    if not values:
        return _empty(what)
    frame = Frame(starts, max(values), form)
    drawn = [Markup("").join(_line(frame, each)) for each in series]
    return picture((WIDTH, HEIGHT), [*frame.drawn(), *drawn], _in_words(what, starts, series, form), "chart")


def _line(frame: Frame, series: Series) -> list[Markup]:
    parts: list[Markup] = []
    run: list[tuple[float, float]] = []
    for slot, value in enumerate((*series.values, None)):
        if value is not None:
            run.append((frame.x(slot + 0.5), frame.y(value)))
        elif run:
            parts.append(tag("path", d=path(run), class_=f"line {series.kind}"))
            run = []
    for slot, value in enumerate(series.values):
        if value is not None:
            told = title(f"{series.name}: {frame.form(value)}, {frame.starts[slot].astimezone(UTC):%H:%M}")
            spot = {"cx": frame.x(slot + 0.5), "cy": frame.y(value)}
            parts.append(tag("circle", [told], **spot, r=2.5, class_=f"dot {series.kind}"))
    return parts


def bar_chart(what: str, starts: Sequence[datetime], series: Sequence[Series], form: Format = number) -> Markup:
    """Stacked bars over time."""
    totals = [sum(value or 0 for value in column) for column in zip(*(each.values for each in series), strict=True)]
    if not any(totals):
        return _empty(what)
    frame = Frame(starts, max(totals), form)
    bars = [bar for slot in range(len(starts)) for bar in _stack(frame, series, slot)]
    return picture((WIDTH, HEIGHT), [*frame.drawn(), *bars], _in_words(what, starts, series, form), "chart")


def _stack(frame: Frame, series: Sequence[Series], slot: int) -> list[Markup]:
    bars, below = [], 0.0
    for each in series:
        value = each.values[slot] or 0
        if value:
            top, bottom = frame.y(below + value), frame.y(below)
            told = title(f"{each.name}: {frame.form(value)}, {frame.starts[slot].astimezone(UTC):%H:%M}")
            place = {"x": frame.x(slot) + frame.slot * 0.1, "width": frame.slot * 0.8}
            bars.append(tag("rect", [told], **place, y=top, height=max(bottom - top, 0.5), class_=f"bar {each.kind}"))
            below += value
    return bars


def _empty(what: str) -> Markup:
    words = text(WIDTH / 2, HEIGHT / 2, "nothing was measured yet", "axis", text_anchor="middle")
    return picture((WIDTH, HEIGHT), [words], f"{what}: nothing was measured yet", "chart empty")


def _in_words(what: str, starts: Sequence[datetime], series: Sequence[Series], form: Format) -> str:
    """What the chart shows, for those who do not see it: the last value of each, and its highest."""
    told = []
    for each in series:
        known = [value for value in each.values if value is not None]
        if known:
            told.append(f"{each.name} {form(known[-1])} now, {form(max(known))} at most")
    span = starts[-1] - starts[0] if len(starts) > 1 else timedelta(0)
    return f"{what} over {seconds(span.total_seconds())}: {'; '.join(told)}"
