"""The oracle: reads the logs of those who ran jobs against what the store says, and trusts neither.

Everybody who runs a job appends one record to a log of its own: which job, which epoch, who, when it
began and when it ended, and, where it knows, what became of its settle. The store never sees a log.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, combinations
from pathlib import Path
from uuid import UUID

import msgspec

from dibs.job import FINISHED, Job, State
from dibs.outcome import Verdict


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, as its owner saw it. Times are monotonic seconds, the same clock for all processes.

    ``start`` is taken after the claim was answered, ``end`` before its settle is sent: if that settle
    was accepted, the claim was valid all the time between.
    """

    job: UUID
    epoch: int
    worker: str
    start: float
    end: float
    outcome: str = "succeeded"
    verdict: Verdict | None = None
    """None if the owner did not learn what became of its settle."""


class Log:
    """A log file: one record a write, so that a killed process leaves whole records only."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def add(self, run: Run) -> None:
        os.write(self._file, self._encode(run) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Run]:
    """All records of all logs (``*.log``) in a folder."""
    decode = msgspec.json.Decoder(Run).decode
    return [decode(line) for path in sorted(folder.glob("*.log")) for line in whole_lines(path)]


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a log. A process that is killed while it writes may leave part of one, up to the end of a page."""
    return path.read_bytes().rpartition(b"\n")[0].splitlines()


def faults(runs: Iterable[Run], jobs: Iterable[Job], enqueued: Iterable[UUID], *, drained: bool = True) -> list[str]:
    """All that is wrong, in sentences; an empty list if nothing is.

    ``jobs`` is everything that the store has, ``enqueued`` every id whose enqueue was answered. With
    ``drained`` no job may be left unfinished.
    """
    stored = {job.id: job for job in jobs}
    by_job: dict[UUID, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job].append(run)
    found = [f"job {job} was enqueued and is lost" for job in enqueued if job not in stored]
    found += [f"job {job} was run and never stored" for job in by_job if job not in stored]
    for job in stored.values():
        found += _about(job, sorted(by_job[job.id], key=lambda run: run.epoch), drained)
    return found


def most_at_once(runs: Iterable[Run]) -> int:
    """How many of these claims were held at the same time, at the most crowded moment."""
    moments = sorted(moment for run in runs for moment in ((run.start, 1), (run.end, -1)))
    held = accumulate(change for _, change in moments)
    return max(held, default=0)


def _about(job: Job, runs: list[Run], drained: bool) -> Iterator[str]:
    for one, two in combinations(runs, 2):
        yield from _between(one, two)
    if runs and runs[-1].epoch > job.epoch:
        yield f"job {job.id} was given out with epoch {runs[-1].epoch}, the store says {job.epoch}"
    if job.attempts > job.max_attempts:
        yield f"job {job.id} had {job.attempts} attempts of {job.max_attempts}"
    if drained and job.state not in FINISHED:
        yield f"job {job.id} is left {job.state}"
    if job.state is State.SUCCEEDED:
        yield from _about_the_end(job, runs)


def _between(one: Run, two: Run) -> Iterator[str]:
    """Two claims of one job, the smaller epoch first."""
    if one.epoch == two.epoch:
        yield f"job {one.job} was given out twice with epoch {one.epoch}: {one.worker}, {two.worker}"
        return
    if one.verdict is Verdict.ACCEPTED and two.start < one.end:
        yield (
            f"job {one.job} had two owners: {two.worker} (epoch {two.epoch}) began before the accepted "
            f"end of {one.worker} (epoch {one.epoch})"
        )


def _about_the_end(job: Job, runs: list[Run]) -> Iterator[str]:
    finishers = [run for run in runs if run.outcome == "succeeded" and run.verdict is Verdict.ACCEPTED]
    if len(finishers) > 1:
        yield f"job {job.id} was finished {len(finishers)} times"
    owner = (job.epoch, job.worker)
    unsure = [run for run in runs if run.verdict is None]
    if owner not in [(run.epoch, run.worker) for run in [*finishers, *unsure]]:
        yield f"job {job.id} succeeded for {job.worker} (epoch {job.epoch}), who did not finish it"
    for run in finishers:
        if (run.epoch, run.worker) != owner:
            yield f"{run.worker} was told that it finished job {job.id}, the store says {job.worker}"
