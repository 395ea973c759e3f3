"""The demo, as somebody runs it who has just cloned the repository."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from dibs.cli.demo_diary import Line, runs
from dibs.job import Filter, Job, State
from dibs.outcome import Verdict
from dibs.stores import open_store
from dibs.testing.oracle import faults
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.process.waiting import running as lives
from tests.process.waiting import wait_until

PROOF = "Every job ran to its end, none was lost, none had two owners."
SMALL = ("--jobs", "400", "--workers", "3")


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dibs", "demo", *SMALL, *arguments]
    # Its temporary folder is in this one, so that it can be seen whether anything is left.
    return subprocess.run(
        command, cwd=folder, env=_environment(folder), capture_output=True, text=True, timeout=90, check=False
    )


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    return {**kept, "TMPDIR": str(folder)}


def test_the_demo_kills_a_worker_and_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"killed (worker-\d) \(SIGKILL\), which held \d+ jobs", done.stdout)
    assert killed, done.stdout
    assert re.search(rf"worker-\d took over nightly_report from {killed[1]}", done.stdout)
    assert "charge_card will run again: TimeoutError: the bank did not answer" in done.stdout
    assert "import_order failed after 3 attempts: ValueError: this order cannot be read" in done.stdout
    assert re.search(r"lost +0 *\n", done.stdout)
    assert re.search(r"owned twice +0 ", done.stdout)
    assert PROOF in done.stdout
    assert "dibs work shop:app" in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("width", [80, 40])
def test_the_demo_fits_the_terminal_that_it_is_watched_in(tmp_path: Path, width: int) -> None:
    screen = _in_a_terminal(tmp_path, width)
    assert "running" in screen
    assert "report" in screen
    words = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", screen).split())
    assert PROOF in words
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).splitlines():
        assert len(line) <= width, line


def _in_a_terminal(folder: Path, width: int) -> str:
    ours, theirs = pty.openpty()
    environment = {**_environment(folder), "TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "30"}
    command = [sys.executable, "-m", "dibs", "demo", *SMALL]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        seen = b"".join(_until_closed(ours))
        assert running.wait(60) == 0, seen.decode(errors="replace")
    os.close(ours)
    return seen.decode()


def _until_closed(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # what Linux says when nobody writes any more
            return
        if not data:
            return
        yield data


def test_the_demo_runs_on_a_server_that_has_the_schema(tmp_path: Path, postgres_database: DatabaseFactory) -> None:
    url = postgres_database(POSTGRES_LABELS[-1])
    refused = demo(tmp_path, "--url", url)
    assert refused.returncode == 78
    assert "dibs migrate up" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = demo(tmp_path, "--url", f"{url}?migrate=auto")
    assert done.returncode == 0, done.stdout + done.stderr
    again = demo(tmp_path, "--url", url)
    assert again.returncode == 1
    assert "has jobs already" in again.stderr


def test_the_demo_runs_on_redis_and_proves_it_to_programs(tmp_path: Path, redis_database: DatabaseFactory) -> None:
    done = demo(tmp_path, "--json", "--url", redis_database(REDIS_LABELS[-1]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert PROOF in done.stderr
    proof = json.loads(done.stdout)
    assert (proof["enqueued"], proof["ended"], proof["lost"], proof["owned_twice"]) == (400, 400, 0, 0)
    assert proof["taken_over"] >= 1
    assert proof["wrong"] == []


def test_a_store_that_only_one_process_can_see_is_refused(tmp_path: Path) -> None:
    refused = demo(tmp_path, "--url", "memory://")
    assert refused.returncode == 78
    assert "one process" in refused.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_workers_end_with_the_demo(tmp_path: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "dibs", "demo", *SMALL]
    running = subprocess.Popen(command, cwd=tmp_path, env=_environment(tmp_path), stdout=subprocess.DEVNULL)
    workers: list[psutil.Process] = []

    def all_started() -> bool:
        workers[:] = psutil.Process(running.pid).children()
        return len(workers) == 3 and bool(list(tmp_path.glob("*/*.diary")))

    wait_until(all_started, "for the workers to be at work")
    running.send_signal(ending)
    running.wait(30)
    wait_until(lambda: not any(lives(worker.pid) for worker in workers), "for the workers to end")


# --- the proof can fail -------------------------------------------------------------------------------------


async def test_a_job_that_vanishes_makes_the_demo_fail(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-m", "dibs", "demo", *SMALL, "--url", url]
    running = subprocess.Popen(command, env=_environment(tmp_path), stdout=subprocess.PIPE, text=True)
    store = open_store(url)
    await store.setup()
    last = Filter(tasks=("make_thumbnail",), states=(State.QUEUED,))
    while not (deleted := (await store.delete(last, limit=1)).count):
        assert running.poll() is None
        await asyncio.sleep(0.01)
    await store.close()
    said, _ = await asyncio.to_thread(running.communicate)
    assert deleted == 1
    assert running.returncode == 1
    assert "Something is wrong:" in said
    assert "was enqueued and is lost" in said
    assert PROOF not in said


def test_the_diaries_show_a_job_that_ran_twice_with_one_claim() -> None:
    job = _succeeded()
    twice = [*_ran(job, 1.0), *_ran(job, 2.0)]
    assert any("was given out twice" in line for line in faults(runs(twice), [job], [job.id]))
    assert faults(runs(_ran(job, 1.0)), [job], [job.id]) == []


def test_the_diaries_show_a_job_that_succeeded_though_its_handler_never_ended() -> None:
    job = _succeeded()
    only_began = _ran(job, 1.0)[:1]
    assert any("who did not finish it" in line for line in faults(runs(only_began), [job], [job.id]))
    ended_then_killed = _ran(job, 1.0)[:2]
    assert faults(runs(ended_then_killed), [job], [job.id]) == [], "the store may have had its answer before"
    assert [run.verdict for run in runs(ended_then_killed)] == [None]
    assert [run.verdict for run in runs(_ran(job, 1.0))] == [Verdict.ACCEPTED]


def _succeeded() -> Job:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Job(
        id=uuid4(),
        queue="demo",
        task="send_mail",
        args={},
        state=State.SUCCEEDED,
        priority=0,
        run_at=now,
        created_at=now,
        attempts=1,
        max_attempts=5,
        epoch=1,
        worker="worker-1",
    )


def _ran(job: Job, at: float) -> list[Line]:
    return [
        Line(what=what, at=at + later, job=job.id, task=job.task, epoch=1, attempt=1, worker="worker-1")
        for later, what in enumerate(("began", "ended", "succeeded"))
    ]
