"""``dibs work --metrics-port``: one port, whether one process works or several."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.waiting import frozen

APP = """
import asyncio
import dibs

app = dibs.App("sqlite:///jobs.db")

@app.task
async def send(number: int) -> None:
    await asyncio.sleep(0.001)

async def fill() -> None:
    async with app:
        await send.enqueue_many((number,) for number in range(200))

if __name__ == "__main__":
    asyncio.run(fill())
"""


class Work:
    """``dibs work`` in a folder, with metrics at a free port."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "shop.py").write_text(APP)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS")}
        subprocess.run([sys.executable, "shop.py"], cwd=folder, env=kept, check=True)
        self._said = folder / "stderr"
        command = [sys.executable, "-m", "dibs", "work", "shop:app", "--metrics-port", "0", *words]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=folder, env={**kept, "TMPDIR": str(folder)}, stderr=said)
        self.port = until(lambda: re.search(r"metrics at http://127.0.0.1:(\d+)/", self._said.read_text()))[1]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            return problem.code, problem.read().decode()

    def series(self, name: str) -> dict[str, float]:
        """The series of a metric, by the process that they are of."""
        found: dict[str, float] = {}
        for labels, value in re.findall(rf"^{name}(?:{{(.*?)}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE):
            process = re.search(r'process="(\d+)"', labels)
            key = process[1] if process else ""
            found[key] = found.get(key, 0.0) + float(value)
        return found

    def pids(self) -> dict[str, int]:
        return {
            number: int(pid)
            for number, pid in re.findall(r"process (\d) started \(pid (\d+)\)", self._said.read_text())
        }


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return met


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Callable[..., Work]]:
    running: list[Work] = []

    def start(*words: str) -> Work:
        running.append(Work(tmp_path, *words))
        return running[-1]

    yield start
    for each in running:
        each.process.terminate()
        try:
            each.process.wait(20)
        finally:
            each.process.kill()


def test_one_process_serves_its_metrics_until_it_ends(work: Callable[..., Work]) -> None:
    one = work()
    until(lambda: one.series("dibs_jobs_started_total") == {"": 200})
    assert one.get("/healthz") == (200, "ok\n")
    assert one.get("/readyz") == (200, "ok\n")
    one.process.terminate()
    assert one.process.wait(20) == 0


def test_several_processes_serve_one_port_each_with_series_of_its_own(
    work: Callable[..., Work], tmp_path: Path
) -> None:
    many = work("--processes", "2")
    until(lambda: many.get("/readyz")[0] == 200)
    until(lambda: sum(many.series("dibs_jobs_started_total").values()) == 200)
    assert many.series("dibs_worker_slots") == {"1": 100, "2": 100}
    assert set(many.series("process_start_time_seconds")) == {"1", "2"}
    folders = [each for each in tmp_path.glob("dibs-*") if each.is_dir()]
    assert [oct(each.stat().st_mode & 0o777) for each in folders] == ["0o700"]
    many.process.terminate()
    assert many.process.wait(20) == 0
    assert not any(each.exists() for each in folders)


def test_a_process_that_was_killed_is_missed_by_readyz_and_not_by_healthz(work: Callable[..., Work]) -> None:
    many = work("--processes", "2")
    until(lambda: many.get("/readyz")[0] == 200)
    os.kill(many.pids()["1"], signal.SIGKILL)
    assert until(lambda: [many.get("/readyz")] if many.get("/readyz")[0] == 503 else None)
    assert many.get("/healthz")[0] == 200
    assert set(many.series("dibs_worker_slots")) <= {"1", "2"}
    until(lambda: many.get("/readyz")[0] == 200)  # the supervisor has started another


def test_a_process_that_does_not_answer_is_not_alive(work: Callable[..., Work]) -> None:
    many = work("--processes", "2")
    until(lambda: many.get("/readyz")[0] == 200)
    stopped = many.pids()["2"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        until(lambda: frozen(stopped))  # until then it may still take the request
        status, said = many.get("/healthz")
        assert (status, said) == (503, "process 2: no answer within 2 s\n")
        assert set(many.series("dibs_worker_slots")) == {"1"}
    finally:
        os.kill(stopped, signal.SIGCONT)
    until(lambda: many.get("/healthz")[0] == 200)


@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
def test_a_port_that_is_taken_is_a_wrong_configuration(
    work: Callable[..., Work], tmp_path: Path, more: list[str]
) -> None:
    one = work()
    command = [sys.executable, "-m", "dibs", "work", "shop:app", "--metrics-port", str(one.port), *more]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78
    assert f"no metrics can be served at 127.0.0.1:{one.port}" in done.stderr
