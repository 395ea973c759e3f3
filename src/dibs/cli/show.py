"""How things look: times, states, tables, JSON. Nothing that a job holds reaches a terminal unchecked."""

import re
import sys
from datetime import UTC, datetime, timedelta
from os import environ
from typing import Any

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from dibs import redaction
from dibs.job import Job, State

COLOURS = {
    State.WAITING: "magenta",
    State.QUEUED: "cyan",
    State.RUNNING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "bright_black",
}
WIDE = 500
"""What is printed into a file or a pipe is not cut to anybody's window."""
DECENT, SHORTEST = 12, 6
"""What is cut keeps so many characters while another column can be left out instead, and at least so many."""

# Escape sequences in an error or an argument could repaint the screen of whoever looks at it.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def console(*, err: bool = False) -> Console:
    """Where tables go. Colours only on a terminal, and not where NO_COLOR is set."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() or environ.get("COLUMNS", "").isdigit() else WIDE
    return Console(stderr=err, highlight=False, markup=False, emoji=False, width=width)


def emit(value: Any) -> None:
    """One JSON document on standard output; times in UTC, to the microsecond."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def printable(text: str) -> str:
    """The text with its control characters made visible; line breaks and tabs stay."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """The text as a single line."""
    return " ".join(printable(text).split())


def as_json(value: Any) -> str:
    """A value as a line of JSON that is safe to print."""
    return printable(msgspec.json.encode(value).decode())


def safe_url(url: str) -> str:
    """The URL without any secret in it, in one line."""
    return one_line(redaction.safe_url(url))


def span(length: timedelta) -> str:
    """A length of time in its largest unit: 12 ms, 3.2 s, 4 min."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400 * 2, "d"), (3_600 * 2, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def ago(moment: datetime | None, now: datetime) -> str:
    """When that was or will be, seen from now."""
    if moment is None:
        return "–"
    if abs(moment - now) < timedelta(milliseconds=500):
        return "now"
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def utc(moment: datetime) -> str:
    """The exact moment."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def label(job: Job, now: datetime) -> Text:
    """The state of a job in its colour, with what else people call it."""
    word: str = job.state
    if job.state is State.QUEUED:
        word = "scheduled" if job.run_at > now and not job.attempts else "retrying" if job.attempts else word
    if job.state is State.RUNNING and job.locked_until is not None and job.locked_until <= now:
        word = "expired"
    return Text(word, style=COLOURS[job.state])


class Column(msgspec.Struct, frozen=True):
    """``NAME`` is never cut, ``NAME…`` is when room is short, ``NAME?`` is left out then; ``>NAME`` has numbers."""

    name: str
    cut: bool
    optional: bool
    right: bool

    @classmethod
    def read(cls, text: str) -> "Column":
        name = text.strip("…?>")
        return cls(name, "…" in text, text.endswith("?"), text.startswith(">"))


class Grid:
    """A table without lines that fits itself into the window. See ``Column`` for how columns are named."""

    def __init__(self, *columns: str) -> None:
        self.columns = [Column.read(text) for text in columns]
        self.rows: list[tuple[Text, ...]] = []

    def row(self, *cells: str | Text) -> None:
        """Add a row; text is taken as it is, so nobody's name is read as markup."""
        self.rows.append(tuple(cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in cells))

    def fit(self, width: int) -> Table:
        """The table in that many columns."""
        widths = self._widths(width)
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for at, most in widths.items():
            column = self.columns[at]
            justify: JustifyMethod = "right" if column.right else "left"
            made.add_column(
                column.name, justify=justify, no_wrap=True, overflow="ellipsis", min_width=most, max_width=most
            )
        for row in self.rows:
            made.add_row(*(row[at] for at in widths))
        return made

    def _widths(self, width: int) -> dict[int, int]:
        """How wide each column is that is shown: optional ones go first, from the right, then long ones are cut."""
        widths = {
            at: max([cell_len(column.name), *(cell_len(str(row[at])) for row in self.rows)])
            for at, column in enumerate(self.columns)
        }
        for at in reversed(list(widths)):
            least = sum(min(most, DECENT) if self.columns[at].cut else most for at, most in widths.items())
            if least + 2 * (len(widths) - 1) > width and self.columns[at].optional:
                del widths[at]
        excess = sum(widths.values()) + 2 * (len(widths) - 1) - width
        while excess > 0:
            room = [(most, at) for at, most in widths.items() if self.columns[at].cut and most > SHORTEST]
            if not room:
                break
            widths[max(room)[1]] -= 1
            excess -= 1
        return widths


def put(screen: Console, what: RenderableType) -> None:
    """Print; into a file or a pipe without the spaces that only fill a window."""
    if screen.is_terminal:
        screen.print(what)
        return
    with screen.capture() as taken:
        screen.print(what)
    click.echo("\n".join(line.rstrip() for line in taken.get().removesuffix("\n").split("\n")), err=screen.stderr)


def plural(count: int, thing: str = "job") -> str:
    """``1 job``, ``2 jobs``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
