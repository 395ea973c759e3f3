"""What happened in the demo, in sentences: read from the workers' diaries and told by the demo itself."""

from collections import Counter
from pathlib import Path
from time import monotonic
from uuid import UUID

import msgspec

from dibs.cli.demo_diary import Line, Reader


class Event(msgspec.Struct, frozen=True):
    """One thing that happened."""

    at: float
    """Seconds since the demo began."""
    text: str
    style: str = ""
    great: bool = False
    """Worth a line also where lines are few."""
    times: int = 1
    """How often it happened in a row."""


class News:
    """Collects events, and counts what each worker has done."""

    def __init__(self, folder: Path) -> None:
        self.began_at = monotonic()
        self.events: list[Event] = []
        self.lines: list[Line] = []
        self.done: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.victim: str | None = None
        self.taken_over: set[UUID] = set()
        self._reader = Reader(folder)
        self._holder: dict[UUID, str] = {}
        self._told: set[str] = set()

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return monotonic() - self.began_at

    def tell(self, text: str, style: str = "", *, great: bool = True) -> None:
        """Something that the demo did itself."""
        self.events.append(Event(self.seconds, text, style, great))

    def read(self) -> None:
        """Take in what the workers wrote down since the last time."""
        new = self._reader.new()
        self.lines += new
        for line in new:
            self._note(line)

    def _note(self, line: Line) -> None:
        if line.what == "began":
            before = self._holder.get(line.job)
            self._holder[line.job] = line.worker
            if before is not None and before == self.victim:
                self._take_over(line)
            return
        if line.what == "ended":
            return
        self._holder.pop(line.job, None)
        self.counts[line.what] += 1
        if line.what == "succeeded":
            self.done[line.worker] += 1
            if line.task == "nightly_report":
                self._event(line, f"nightly_report is written, by {line.worker}", "green", great=True)
        elif line.what == "retried":
            self._event(line, f"{line.task} will run again: {line.text}", "yellow")
        elif line.what == "failed":
            self._event(line, f"{line.task} failed after {line.attempt} attempts: {line.text}", "red")

    def _take_over(self, line: Line) -> None:
        self.taken_over.add(line.job)
        great = line.task == "nightly_report"
        self._event(line, f"{line.worker} took over {line.task} from {self.victim}", "magenta", great=great)

    def _event(self, line: Line, text: str, style: str, *, great: bool = False) -> None:
        first = (line.what, line.task)
        great = great or (line.what in ("retried", "failed") and str(first) not in self._told)
        self._told.add(str(first))
        at, last = line.at - self.began_at, self.events[-1] if self.events else None
        if last is not None and last.text == text:
            self.events[-1] = msgspec.structs.replace(last, at=at, times=last.times + 1)
        else:
            self.events.append(Event(at, text, style, great))
