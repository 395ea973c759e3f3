"""The page about one flow: its times, and its steps as a tree with their states, times, needs and errors."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dibs.cli import show
from dibs.cli.flow_tree import Line, draw
from dibs.job import FINISHED, Flow, FlowState, Job, State

COLOURS = {
    FlowState.RUNNING: "yellow",
    FlowState.SUCCEEDED: "green",
    FlowState.FAILED: "red",
    FlowState.CANCELLED: "bright_black",
}
SHOWN = 200
"""The most steps that are drawn: more of them nobody reads."""
STATE, TOOK, STARTED, ID = 9, 7, 11, 36
WITH_STARTS, WITH_IDS = 60, 110
"""From so many columns on there is room for when a step began, and for the id of its job."""
NEEDS_NAMED = 4


def print_flow(flow: Flow, jobs: Sequence[Job], now: datetime) -> None:
    """Print everything, to standard output."""
    screen = show.console()
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(flow, now):
        facts.add_row(name, value)
    show.put(screen, facts)
    show.put(screen, Text(""))
    _print_steps(screen, jobs, now)
    if len(jobs) > SHOWN:
        rest = f"and {len(jobs) - SHOWN:,} more: dibs jobs list --flow {flow.id} -n {len(jobs)}"
        show.put(screen, Text(rest, style="bright_black"))


def label(flow: Flow) -> Text:
    """The state of a flow in its colour; one that has failed may still have steps that run."""
    ending = flow.state is not FlowState.RUNNING and flow.finished_at is None
    return Text(f"{flow.state}{', ending' if ending else ''}", style=COLOURS[flow.state])


def ended(flow: Flow) -> str:
    """How many of its steps have ended: 7/10."""
    return f"{sum(flow.steps[state] for state in FINISHED):,}/{sum(flow.steps.values()):,}"


def _facts(flow: Flow, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "flow", str(flow.id)
    yield "name", show.one_line(flow.name)
    yield "state", label(flow)
    counted = ", ".join(f"{flow.steps[state]:,} {state}" for state in State if flow.steps[state])
    yield "steps", f"{ended(flow)} ended: {counted}"
    yield "on failure", flow.on_failure.value
    yield "created", f"{show.utc(flow.created_at)}  ({show.ago(flow.created_at, now)})"
    if flow.finished_at is not None:
        yield "finished", f"{show.utc(flow.finished_at)}  ({show.ago(flow.finished_at, now)})"
        yield "took", show.span(flow.finished_at - flow.created_at)
    if flow.meta:
        yield "meta", show.as_json(flow.meta)


def _print_steps(screen: Console, jobs: Sequence[Job], now: datetime) -> None:
    lines = list(islice(draw(jobs), SHOWN))
    columns = [STATE, TOOK]
    if screen.width >= WITH_STARTS:
        columns.append(STARTED)
    if screen.width >= WITH_IDS:
        columns.append(ID)
    longest = max(Text(_name(line)).cell_len for line in lines)
    width = min(longest, max(12, screen.width - sum(columns) - 2 * len(columns)))
    titles = ("STEP", "STATE", "TOOK", "STARTED", "JOB")
    show.put(screen, _row(titles, [width, *columns], "bold"))
    for line in lines:
        cells = (_name(line), show.label(line.job, now).plain, _took(line.job, now), _began(line.job, now))
        row = _row((*cells, str(line.job.id)), [width, *columns])
        row.stylize(show.COLOURS[line.job.state], width + 2, width + 2 + STATE)
        show.put(screen, row)
        for about, style in _about(line):
            more = Text.assemble((line.tail, ""), (about, style))
            more.truncate(screen.width, overflow="ellipsis")
            show.put(screen, more)


def _row(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    row = Text(style=style, no_wrap=True)
    for at, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        part = Text(f"{cell:>{width}}" if at == 2 else cell)  # how long it took is a number
        part.truncate(width, overflow="ellipsis", pad=True)
        row.append_text(part)
        row.append("  ")
    row.rstrip()
    return row


def _name(line: Line) -> str:
    return line.head + show.one_line(line.job.step or "?")


def _took(job: Job, now: datetime) -> str:
    if job.started_at is None:
        return ""
    if job.state is State.RUNNING or job.finished_at is not None:
        return show.span((job.finished_at or now) - job.started_at)
    return ""


def _began(job: Job, now: datetime) -> str:
    if job.started_at is not None:
        return show.ago(job.started_at, now)
    return f"due {show.ago(job.run_at, now)}" if job.state is State.QUEUED and job.run_at > now else ""


def _about(line: Line) -> Iterator[tuple[str, str]]:
    """Further lines about a step: what else it needs, what became of its attempts, who runs it."""
    job = line.job
    if line.more:
        named = ", ".join(line.more[:NEEDS_NAMED])
        others = f" and {len(line.more) - NEEDS_NAMED:,} others" if len(line.more) > NEEDS_NAMED else ""
        yield show.one_line(f"needs {named}{others} too"), "bright_black"
    if job.state is State.RUNNING and job.worker is not None:
        yield show.one_line(f"on {job.worker}"), "bright_black"
    if job.errors and job.state in (State.FAILED, State.QUEUED, State.RUNNING):
        error = job.errors[-1]
        text = f"attempt {error.attempt} of {job.max_attempts}: {error.error}"
        yield show.one_line(text), "red" if job.state is State.FAILED else "yellow"
