"""What the demo's workers write down beside the store, and what can be read from it.

One line when a handler begins, one when it ends, one when the store has taken its outcome. The store never sees it.
"""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from uuid import UUID

import msgspec

from dibs.attempt import Attempt
from dibs.outcome import Outcome, Verdict
from dibs.testing.oracle import Run

FOLDER_VARIABLE = "DIBS_DEMO_FOLDER"
LINE_VARIABLE = "DIBS_DEMO_FD"
"""A pipe that nobody writes to: it is closed when the demo is gone."""
SETTLED = ("succeeded", "retried", "failed", "cancelled", "released", "snoozed", "lost")


def end_with_the_demo() -> None:
    """Let this worker be told to stop when the demo has gone, however it went."""
    given = os.environ.get(LINE_VARIABLE)
    if given is None:
        return

    def follow() -> None:
        os.read(int(given), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, name="dibs-demo-watch", daemon=True).start()


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a diary."""

    what: str
    """began, ended, or one of SETTLED."""
    at: float
    job: UUID
    task: str
    epoch: int
    attempt: int
    worker: str
    text: str = ""
    """Why it did not succeed."""


class Diary:
    """A file for each worker, a write for each line: a process that is killed leaves whole lines."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._file: int | None = None
        self._encode = msgspec.json.Encoder().encode

    @classmethod
    def of_this_process(cls) -> "Diary":
        """The one that the demo asked for; without a demo, nothing is written."""
        folder = os.environ.get(FOLDER_VARIABLE)
        return cls(None if folder is None else Path(folder))

    def began(self, attempt: Attempt) -> None:
        self._add(attempt, "began")

    def ended(self, attempt: Attempt) -> None:
        self._add(attempt, "ended")

    def settled(self, attempt: Attempt, event: str, outcome: Outcome | None) -> None:
        self._add(attempt, event, getattr(outcome, "error", ""))

    def _add(self, attempt: Attempt, what: str, text: str = "") -> None:
        if self._folder is None:
            return
        if self._file is None:
            path = self._folder / f"{attempt.worker}.diary"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        line = Line(
            what=what,
            at=monotonic(),
            job=attempt.id,
            task=attempt.task,
            epoch=attempt.epoch,
            attempt=attempt.attempt,
            worker=attempt.worker,
            text=text,
        )
        os.write(self._file, self._encode(line) + b"\n")


class Reader:
    """Reads the diaries while they are written: each line once, in the order of time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._decode = msgspec.json.Decoder(Line).decode

    def new(self) -> list[Line]:
        """What was written since the last call."""
        found: list[Line] = []
        for path in sorted(self._folder.glob("*.diary")):
            data = path.read_bytes()[self._read.get(path, 0) :]
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            found += [self._decode(line) for line in whole.splitlines()]
        return sorted(found, key=lambda line: line.at)


def runs(lines: Iterable[Line]) -> Iterator[Run]:
    """The runs that the lines tell of, as the oracle wants them.

    A handler that never ended cannot have finished its job. One that ended while nobody wrote down what the store said
    may have: its worker was killed in between.
    """
    open_runs: dict[tuple[UUID, int, str], Line] = {}
    ended: dict[tuple[UUID, int, str], Line] = {}
    for line in lines:
        key = (line.job, line.epoch, line.worker)
        if line.what == "began":
            if key in open_runs:  # the same claim run twice: the oracle shall see both
                yield _run(open_runs.pop(key), ended.pop(key, None), None)
            open_runs[key] = line
        elif line.what == "ended":
            ended[key] = line
        elif key in open_runs:  # one that never began, released or lost, is no run
            yield _run(open_runs.pop(key), ended.pop(key, None), line)
    for key, began in open_runs.items():
        yield _run(began, ended.pop(key, None), None)


def _run(began: Line, ended: Line | None, settled: Line | None) -> Run:
    verdict = Verdict.LOST if ended is None else None
    if settled is not None:
        verdict = Verdict.LOST if settled.what == "lost" else Verdict.ACCEPTED
    return Run(
        job=began.job,
        epoch=began.epoch,
        worker=began.worker,
        start=began.at,
        end=began.at if ended is None else ended.at,
        outcome="unknown" if settled is None else settled.what,
        verdict=verdict,
    )
