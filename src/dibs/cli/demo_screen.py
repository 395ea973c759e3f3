"""The demo as people see it: a live picture in a terminal, plain lines elsewhere, and the summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dibs.cli import demo_shop
from dibs.cli.demo_news import Event, News
from dibs.job import FINISHED, Job, State

STATES = {State.QUEUED: "cyan", State.RUNNING: "yellow", State.SUCCEEDED: "green", State.FAILED: "red"}
EVENTS_SHOWN = 7
PLAIN_EVERY = 2.0
"""Seconds between two lines that say how far it is, where there is no terminal."""


class Look(msgspec.Struct, frozen=True):
    """The store at one instant."""

    states: Mapping[State, int]
    running: Sequence[Job]
    report: Job | None

    @property
    def unfinished(self) -> int:
        return sum(number for state, number in self.states.items() if state not in FINISHED)

    @property
    def holds(self) -> dict[str, Counter[str]]:
        """For each worker, how many jobs of which task."""
        held: dict[str, Counter[str]] = {}
        for job in self.running:
            held.setdefault(job.worker or "", Counter())[job.task] += 1
        return held


class Screen:
    """Shows looks and news while the demo runs."""

    def __init__(self, news: News, title: str, total: int, workers: Sequence[str], *, aside: bool = False) -> None:
        self.console = Console(highlight=False, stderr=aside)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        self._news, self._title, self._total, self._workers = news, title, total, workers
        self._screen = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
        self._printed = 0
        self._said_at = 0.0

    def __enter__(self) -> Self:
        if self.live:
            self._screen.start()
        else:
            self.console.print(self._title, soft_wrap=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        if self.live:
            self._screen.stop()

    def show(self, look: Look | None) -> None:
        """The picture as it is now, or the lines that are new."""
        if self.live:
            self._screen.update(self._picture(look), refresh=True)
        else:
            self._print_lines(look)

    def _print_lines(self, look: Look | None) -> None:
        new, self._printed = self._news.events[self._printed :], len(self._news.events)
        for event in new:
            if event.great:
                self.console.print(_line(event), soft_wrap=True)
        if look is not None and self._news.seconds - self._said_at >= PLAIN_EVERY:
            self._said_at = self._news.seconds
            counted = ", ".join(f"{look.states[state]:,} {state}" for state in STATES)
            self.console.print(_line(Event(self._news.seconds, counted)), soft_wrap=True)

    # --- the picture ----------------------------------------------------------------------------------------

    def _picture(self, look: Look | None) -> RenderableType:
        head = Text(f"{self._title}  {self._news.seconds:.0f} s", style="bold", no_wrap=True, overflow="ellipsis")
        parts: list[RenderableType] = [head, Text()]
        if look is not None:
            parts += [self._bars(look), Text(), self._team(look), Text()]
        room = max(2, min(EVENTS_SHOWN, self.console.height - len(self._workers) - len(STATES) - 7))
        parts += [_line(event, one=True) for event in self._news.events[-room:]]
        return Group(*parts)

    def _bars(self, look: Look) -> Table:
        bars = _grid()
        width = max(8, min(46, self.console.width - 36))
        for state, colour in STATES.items():
            done = look.states[state]
            bar = ProgressBar(self._total, done, width=width, complete_style=colour, finished_style=colour)
            bars.add_row(Text(state, style=colour), bar, f"{done:,}")
        if look.report is not None:
            progress, note = look.report.report.progress or 0.0, look.report.report.note
            if look.report.state is State.SUCCEEDED:
                progress, note = 1.0, "written"
            bar = ProgressBar(1.0, progress, width=width, complete_style="magenta", finished_style="green")
            bars.add_row(Text("report", style="magenta"), bar, note or "not begun")
        return bars

    def _team(self, look: Look) -> Table:
        team, holds = _grid(max(map(len, self._workers)), 10), look.holds
        for name in self._workers:
            held = holds.get(name, Counter())
            if name == self._news.victim:
                left = f"killed; {held.total()} jobs of its wait for their leases to end" if held else "killed"
                team.add_row(Text(name, style="red"), "", Text(left, style="red"))
                continue
            tasks = ", ".join(f"{number} {task}" for task, number in sorted(held.items(), key=_report_first))
            done = self._news.done[name]
            team.add_row(name, Text(f"{done:,} done" if done else "starting", style="green"), Text(tasks, style="dim"))
        return team


def _report_first(held: tuple[str, int]) -> tuple[bool, int]:
    task, number = held
    return task != demo_shop.nightly_report.name, -number


def _grid(*widths: int) -> Table:
    """Three columns; those that are given a width keep it, the others shrink where a terminal is narrow."""
    grid = Table.grid(padding=(0, 2))
    for width in (*widths, *[None] * (3 - len(widths))):
        grid.add_column(no_wrap=True, overflow="ellipsis", min_width=width)
    return grid


def _line(event: Event, *, one: bool = False) -> Text:
    times = f"{event.times} × " if event.times > 1 else ""
    words = " ".join(event.text.split())
    text = Text.assemble((f"{event.at:5.1f} s  ", "dim"), (times, "bold"), (words, event.style))
    if one:
        text.no_wrap, text.overflow = True, "ellipsis"
    return text


# --- the end ------------------------------------------------------------------------------------------------


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What came of every job."""

    enqueued: int
    ended: int
    seconds: float
    succeeded: int
    failed: int
    retried: int
    """Attempts that had to be repeated."""
    taken_over: int
    """Jobs whose lease ended with the worker that was killed."""
    begun: int
    """Those of them that it had begun."""
    killed: str | None
    lost: int
    owned_twice: int
    runs: int
    """As the diaries of the workers tell."""
    wrong: tuple[str, ...]

    @classmethod
    def of(cls, jobs: Sequence[Job], total: int, runs: int, news: News, wrong: Sequence[str]) -> "Proof":
        by_state = Counter(job.state for job in jobs)
        return cls(
            enqueued=total,
            ended=sum(by_state[state] for state in FINISHED),
            seconds=round(news.seconds, 3),
            succeeded=by_state[State.SUCCEEDED],
            failed=by_state[State.FAILED],
            retried=news.counts["retried"],
            taken_over=sum(any(error.error == "lease expired" for error in job.errors) for job in jobs),
            begun=len(news.taken_over),
            killed=news.victim,
            lost=total - len(jobs),
            owned_twice=sum("twice" in line or "two owners" in line or "was finished" in line for line in wrong),
            runs=runs,
            wrong=tuple(wrong),
        )


def summary(proof: Proof) -> RenderableType:
    """What was proved, or what was found wrong."""
    facts = Table.grid(padding=(0, 2))
    for width in (16, len(f"{proof.enqueued:,}"), None):
        facts.add_column(min_width=width)
    rows = [
        ("jobs enqueued", proof.enqueued, ""),
        ("ran to their end", proof.ended, f"in {proof.seconds:.0f} s"),
        ("  succeeded", proof.succeeded, f"{proof.retried:,} attempts had to be repeated"),
        ("  failed", proof.failed, "the poison, after 3 attempts each, kept to look at"),
        ("taken over", proof.taken_over, f"from {proof.killed} when its leases ended; {proof.begun} had begun"),
        ("lost", proof.lost, ""),
        ("owned twice", proof.owned_twice, f"checked in the diaries of the workers: {proof.runs:,} runs"),
    ]
    for name, number, note in rows:
        facts.add_row(name, Text(f"{number:,}", justify="right"), Text(note, style="dim"))
    verdict = Text("Every job ran to its end, none was lost, none had two owners.", style="bold green")
    if proof.wrong:
        verdict = Text("Something is wrong:\n" + "\n".join(proof.wrong[:10]), style="bold red")
    return Group(Text(), facts, Text(), verdict)


def how_to_go_on() -> RenderableType:
    """Your own, in three lines."""
    rows = [
        ("write", "shop.py: app = dibs.App(), and @app.task above a function"),
        ("run", "dibs work shop:app"),
        ("enqueue", "dibs enqueue my_task --app shop:app, or await my_task.enqueue()"),
    ]
    grid = Table.grid(padding=(0, 2))
    for word, how in rows:
        grid.add_row(Text(word, style="bold"), how)
    return Group(Text(), Text("Your own, in three lines; docs/guides/getting-started.md has the rest:"), grid)
