"""What ``dibs top`` draws: a snapshot and its rates, fitted into the window."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from dibs.admin import Queue, Snapshot, Worker
from dibs.cli import show
from dibs.cli.queues import marks
from dibs.cli.workers import liveness, served, slots
from dibs.job import FINISHED, Job, State

FIXED = 12
"""Lines that headings, totals, gaps and a word of trouble take, and one to spare."""


class Rates(msgspec.Struct, frozen=True):
    """Jobs per second of one queue, between two looks."""

    enqueued: float
    finished: float


def rates(before: Snapshot, now: Snapshot) -> dict[str, Rates]:
    """The difference of two looks. Pruning makes counts fall: that is no negative rate."""
    seconds = (now.at - before.at).total_seconds()
    if seconds <= 0:
        return {}
    earlier = {queue.name: queue for queue in before.queues}
    found: dict[str, Rates] = {}
    for queue in now.queues:
        was = earlier.get(queue.name)
        came = _all(queue) - (_all(was) if was else 0)
        ended = _ended(queue) - (_ended(was) if was else 0)
        found[queue.name] = Rates(max(came, 0) / seconds, max(ended, 0) / seconds)
    return found


def _all(queue: Queue) -> int:
    return sum(queue.states.values())


def _ended(queue: Queue) -> int:
    return sum(queue.states[state] for state in FINISHED)


def picture(
    now: Snapshot,
    speed: dict[str, Rates],
    url: str,
    width: int,
    *,
    height: int | None = None,
    trouble: str = "",
) -> RenderableType:
    """The whole screen; with a height, no more lines than that."""
    rows = _rows(now, height)
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("dibs top", style="bold").append(f"  {url}  {now.at.astimezone(UTC):%H:%M:%S} UTC")
    parts: list[RenderableType] = [head, _totals(now, speed)]
    if trouble:
        parts.append(Text(show.one_line(trouble), style="bold red"))
    parts += [Text(), _queues(now, speed, width, rows["queues"])]
    parts += [Text(), _workers(now, width, rows["workers"])]
    parts += [Text(), _jobs("running longest", now.running[: rows["running"]], now.at, width)]
    parts += [Text(), _jobs("failed last", now.failures[: rows["failures"]], now.at, width)]
    return Group(*parts)


def _rows(now: Snapshot, height: int | None) -> dict[str, int]:
    """How many rows each part gets in a window of that height: one more each in turn, until it is full."""
    wanted = {
        "queues": len(now.queues),
        "workers": len(now.workers),
        "running": len(now.running),
        "failures": len(now.failures),
    }
    if height is None:
        return wanted
    rows = dict.fromkeys(wanted, 0)
    for _ in range(max(height - FIXED, len(wanted))):
        short = [part for part in wanted if rows[part] < wanted[part]]
        if not short:
            break
        rows[min(short, key=rows.__getitem__)] += 1
    return rows


def _totals(now: Snapshot, speed: dict[str, Rates]) -> Text:
    count = {state: sum(queue.states[state] for queue in now.queues) for state in State}
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{sum(queue.due for queue in now.queues):,} due", style=show.COLOURS[State.QUEUED])
    line.append("  ").append(f"{count[State.RUNNING]:,} running", style=show.COLOURS[State.RUNNING])
    if speed:
        came = sum(rate.enqueued for rate in speed.values())
        ended = sum(rate.finished for rate in speed.values())
        line.append(f"  in {per_second(came)}  out {per_second(ended)}")
    for state in (State.FAILED, State.SUCCEEDED):
        line.append("  ").append(f"{count[state]:,} {state}", style=show.COLOURS[state])
    return line


def per_second(rate: float) -> str:
    """A rate in few characters."""
    return f"{rate:,.1f}/s" if 0 < rate < 10 else f"{rate:,.0f}/s"


def _queues(now: Snapshot, speed: dict[str, Rates], width: int, rows: int) -> RenderableType:
    if not now.queues:
        return Text("no queues", style="bright_black")
    table = show.Grid("QUEUE…", ">DUE", ">RUN", ">FAIL?", ">IN?", ">OUT", ">WORKERS?", "OLDEST", "")
    busiest = sorted(now.queues, key=lambda queue: (-queue.due, -queue.states[State.RUNNING], queue.name))
    for queue in busiest[:rows]:
        rate = speed.get(queue.name)
        failed = queue.states[State.FAILED]
        table.row(
            queue.name,
            f"{queue.due:,}",
            f"{queue.states[State.RUNNING]:,}",
            Text(f"{failed:,}", style="red" if failed else ""),
            "–" if rate is None else per_second(rate.enqueued),
            "–" if rate is None else per_second(rate.finished),
            Text(str(len(queue.workers)), style="red" if queue.due and not queue.workers else ""),
            "–" if queue.oldest_due is None else show.span(now.at - queue.oldest_due),
            marks(queue),
        )
    return table.fit(width)


def _workers(now: Snapshot, width: int, rows: int) -> RenderableType:
    if not now.workers:
        return Text("no workers", style="bright_black")
    table = show.Grid("WORKER…", "STATE", ">HOLDS", ">SLOTS?", "SEEN", "QUEUES…?")
    for worker in sorted(now.workers, key=_importance)[:rows]:
        seen = show.ago(worker.seen_at, now.at)
        table.row(worker.name, liveness(worker), str(worker.running), slots(worker), seen, served(worker))
    return table.fit(width)


def _importance(worker: Worker) -> tuple[bool, int, str]:
    return (not worker.live, -worker.running, worker.name)


def _jobs(title: str, jobs: Sequence[Job], at: datetime, width: int) -> RenderableType:
    if not jobs:
        return Text(f"{title}: none", style="bright_black")
    table = show.Grid(title.upper(), "TASK…", "QUEUE…?", "ABOUT…")
    for job in jobs:
        since = job.finished_at or job.started_at or job.created_at
        table.row(f"{show.span(at - since)}{' ago' if job.finished_at else ''}", job.task, job.queue, _about(job))
    return table.fit(width)


def _about(job: Job) -> str:
    if job.state is State.FAILED:
        return show.one_line(job.errors[-1].error.partition("\n")[0]) if job.errors else "–"
    progress = "" if job.report.progress is None else f"{job.report.progress:.0%} "
    return f"{progress}{show.one_line(job.report.note)}" or f"on {show.one_line(job.worker or '?')}"
