"""The page about one job: times, attempts, arguments, what its handler said, and what keeps it."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dibs.cli import show
from dibs.job import Flow, Job, Report
from dibs.schedule import tick_of
from dibs.why import Explanation


def print_job(job: Job, flow: Flow | None, reason: Explanation, now: datetime) -> None:
    """Print everything, to standard output."""
    screen = show.console()
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(job, flow, now):
        facts.add_row(name, value)
    show.put(screen, facts)
    _text(screen, "arguments", _pretty(job.args))
    if job.inputs:
        _text(screen, "inputs", _pretty(job.inputs))
    if job.meta:
        _text(screen, "meta", _pretty(job.meta))
    if job.result is not None:
        _text(screen, "result", _pretty(job.result))
    _report(screen, job.report, now)
    _errors(screen, job)
    _text(screen, "why", show.one_line(reason.sentence))


def _facts(job: Job, flow: Flow | None, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "job", str(job.id)
    yield "state", show.label(job, now)
    yield "task", show.one_line(job.task)
    yield "queue", show.one_line(job.queue)
    yield "priority", str(job.priority)
    yield "attempts", f"{job.attempts} of {job.max_attempts} (epoch {job.epoch})"
    if job.key is not None:
        yield "key", show.one_line(job.key)
    if job.limit_key is not None:
        yield "limit key", show.one_line(job.limit_key)
    if job.flow is not None:
        yield "flow", str(job.flow) if flow is None else f"{job.flow} ({show.one_line(flow.name)}, {flow.state})"
        yield "step", show.one_line(job.step or "?")
    if job.needs:
        yield "needs", show.one_line(", ".join(job.needs))
    if (tick := tick_of(job)) is not None:
        yield "schedule", show.one_line(f"{tick.schedule}, {'run by hand' if tick.by_hand else f'tick {tick.at}'}")
    times = (
        ("created", job.created_at),
        ("due", job.run_at),
        ("started", job.started_at),
        ("lease until", job.locked_until),
        ("finished", job.finished_at),
        ("expires", job.expires_at),
        ("key busy until", job.unique_until),
    )
    for name, moment in times:
        if moment is not None:
            yield name, f"{show.utc(moment)}  ({show.ago(moment, now)})"
    if job.started_at is not None and job.finished_at is not None:
        yield "took", show.span(job.finished_at - job.started_at)
    if job.worker is not None:
        yield "worker", show.one_line(job.worker)
    if job.cancel_asked:
        yield "cancel", Text("asked", style="yellow")


def _report(screen: Console, report: Report, now: datetime) -> None:
    if report.progress is not None:
        done = f"{report.progress:.0%}"
        _text(screen, "progress", f"{done}  {show.one_line(report.note)}".rstrip())
    if report.log:
        lines = (f"{show.utc(line.at)}  #{line.attempt}  {show.one_line(line.text)}" for line in report.log)
        _text(screen, "log", "\n".join(lines))


def _errors(screen: Console, job: Job) -> None:
    for error in job.errors:
        took = show.span(error.ended_at - error.started_at)
        _head(screen, f"attempt {error.attempt}")
        about = f"{show.utc(error.started_at)}, {took}, on {show.one_line(error.worker)} (epoch {error.epoch})"
        show.put(screen, Padding(Text(about, style="bright_black"), (0, 0, 0, 2), expand=False))
        show.put(screen, Padding(Text(show.printable(error.error), style="red"), (0, 0, 0, 2), expand=False))
        if error.traceback:
            show.put(screen, Padding(Text(show.printable(error.traceback.rstrip())), (0, 0, 0, 2), expand=False))


def _head(screen: Console, title: str) -> None:
    show.put(screen, Text(f"\n{title}", style="bold"))


def _text(screen: Console, title: str, text: str) -> None:
    _head(screen, title)
    show.put(screen, Padding(Text(text), (0, 0, 0, 2), expand=False))


def _pretty(value: object) -> str:
    """Short values in a line, long ones spread out."""
    encoded = msgspec.json.encode(value)
    return show.printable(encoded.decode() if len(encoded) <= 70 else msgspec.json.format(encoded).decode())
