"""The oracle has to see what is wrong. One that finds nothing in these logs is the bug."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dibs.ids import new_id
from dibs.job import Job, State
from dibs.outcome import Verdict
from dibs.testing.clock import START
from dibs.testing.oracle import Log, Run, faults, read

JOB = new_id()


def stored(job: UUID = JOB, **fields: Any) -> Job:
    """A job that ann finished with her first claim."""
    given: dict[str, Any] = {
        "id": job,
        "queue": "race",
        "task": "send",
        "args": {},
        "state": State.SUCCEEDED,
        "priority": 0,
        "run_at": START,
        "created_at": START,
        "attempts": 1,
        "max_attempts": 5,
        "epoch": 1,
        "worker": "ann",
        "finished_at": START + timedelta(seconds=1),
    }
    return Job(**{**given, **fields})


def ran(**fields: Any) -> Run:
    """What ann wrote down about it."""
    given: dict[str, Any] = {
        "job": JOB,
        "epoch": 1,
        "worker": "ann",
        "start": 1.0,
        "end": 2.0,
        "verdict": Verdict.ACCEPTED,
    }
    return Run(**{**given, **fields})


def test_nothing_is_wrong_with_a_job_that_was_run_once() -> None:
    assert faults([ran()], [stored()], [JOB]) == []


def test_nothing_is_wrong_with_a_late_owner_that_was_told_so() -> None:
    late = ran(worker="late", end=9.0, verdict=Verdict.LOST)
    heir = ran(epoch=2, worker="ann", start=5.0, end=6.0)
    assert faults([late, heir], [stored(epoch=2, attempts=2)], [JOB]) == []


def test_nothing_is_wrong_with_an_owner_that_was_killed_before_it_was_answered() -> None:
    killed = ran(verdict=None)
    heir = ran(epoch=2, worker="bob", start=5.0, end=6.0)
    assert faults([killed, heir], [stored(epoch=2, worker="bob")], [JOB]) == []
    assert faults([killed], [stored()], [JOB]) == []


WRONG: dict[str, tuple[list[Run], list[Job], str]] = {
    "a double issue": (
        [ran(), ran(worker="bob", start=3.0, end=4.0, verdict=Verdict.LOST)],
        [stored()],
        "twice with epoch 1",
    ),
    "a double issue to one worker": ([ran(), ran()], [stored()], "twice with epoch 1"),
    "two owners at once": (
        [ran(outcome="retry", end=4.0), ran(epoch=2, worker="bob", start=3.0, end=5.0)],
        [stored(epoch=2, worker="bob")],
        "two owners",
    ),
    "two owners at once, none of them last": (
        [
            ran(outcome="retry", end=4.0),
            ran(epoch=2, outcome="retry", start=4.5, end=4.6),
            ran(epoch=3, start=3.9, end=5.0),
        ],
        [stored(epoch=3)],
        "two owners",
    ),
    "a lost job": ([], [], "is lost"),
    "a lost job that was run": ([ran()], [], "is lost"),
    "a job left queued": ([], [stored(state=State.QUEUED)], "left queued"),
    "a job left running": ([], [stored(state=State.RUNNING)], "left running"),
    "a job finished twice": (
        [ran(), ran(epoch=2, start=3.0, end=4.0)],
        [stored(epoch=2)],
        "finished 2 times",
    ),
    "a job finished by nobody": ([], [stored()], "did not finish it"),
    "a job finished by a late owner": (
        [ran(verdict=Verdict.LOST)],
        [stored()],
        "did not finish it",
    ),
    "a job finished by another than the store says": (
        [ran(worker="bob")],
        [stored(worker="ann")],
        "was told that it finished",
    ),
    "an epoch that fell": ([ran(epoch=7)], [stored(epoch=1)], "epoch 7"),
    "too many attempts": ([ran()], [stored(attempts=6)], "6 attempts of 5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_oracle_sees(name: str) -> None:
    runs, jobs, words = WRONG[name]
    assert any(words in fault for fault in faults(runs, jobs, [JOB]))


def test_a_run_of_a_job_that_was_never_stored_is_seen() -> None:
    assert any("never stored" in fault for fault in faults([ran()], [], []))


def test_what_is_left_may_be_left_if_nobody_drained_the_store() -> None:
    assert faults([], [stored(state=State.QUEUED)], [JOB], drained=False) == []


def test_a_log_reads_as_it_was_written(tmp_path: Path) -> None:
    runs = [ran(epoch=n, verdict=None if n else Verdict.LOST) for n in range(3)]
    for n, run in enumerate(runs):
        log = Log(tmp_path / f"{n % 2}.log")
        log.add(run)
        log.close()
    assert sorted(read(tmp_path), key=lambda run: run.epoch) == runs


def test_a_line_that_a_kill_has_cut_short_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "ann.log"
    for _ in range(2):
        log = Log(path)
        log.add(ran())
        log.close()
    path.write_bytes(path.read_bytes()[:-20])
    assert read(tmp_path) == [ran()]
