"""The demo, as somebody runs it who has just cloned the repository."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import POSTGRES_LABELS, DatabaseFactory


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dibs", "demo", "--jobs", "400", "--workers", "3", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_demo_kills_a_worker_and_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed worker-3 (SIGKILL)" in done.stdout
    assert "Every job ran to its end, none was lost, none had two owners." in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


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
