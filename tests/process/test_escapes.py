"""What ends a program elsewhere does not end a worker, whoever raises it (FAULTS 16)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

APP = """
import asyncio
import dibs

app = dibs.App("sqlite:///jobs.db")
kept = set()

@app.task(max_attempts=1)
async def leaves(kind: str, awaited: bool) -> str:
    async def leave() -> None:
        raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[kind](3)

    going = asyncio.create_task(leave())
    if awaited:
        await going
    kept.add(going)
    while not going.done():
        await asyncio.sleep(0)
    return "stayed"
"""
NO_UVLOOP = "raise ImportError('not here')"


def dibs(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIBS")}
    environment["DIBS_APP"] = "shop:app"
    command = [sys.executable, "-m", "dibs", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_a_task_that_a_handler_started_does_not_end_the_worker(tmp_path: Path, kind: str, loop: str) -> None:
    if loop == "asyncio":
        (tmp_path / "uvloop.py").write_text(NO_UVLOOP)
    else:
        pytest.importorskip("uvloop")
    (tmp_path / "shop.py").write_text(APP)
    ids = {awaited: [_enqueued(tmp_path, kind, awaited) for _ in range(2)] for awaited in (False, True)}
    worked = dibs(tmp_path, "work", "--drain", "--json", "--concurrency", "1")
    assert worked.returncode == 0, worked.stderr
    stats = json.loads(worked.stdout)
    assert (stats["succeeded"], stats["failed"]) == (2, 2), "each is an attempt, no more and no less"
    assert worked.stderr.count(f"{kind}(3) in a task that a handler started; going on") == 4
    for id_ in ids[False]:
        assert _shown(tmp_path, id_)["result"] == "stayed"
    for id_ in ids[True]:
        assert kind in _shown(tmp_path, id_)["errors"][0]["error"]


def _enqueued(folder: Path, kind: str, awaited: bool) -> str:
    said = dibs(folder, "enqueue", "leaves", "-a", f"kind={kind}", "-a", f"awaited={json.dumps(awaited)}")
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def _shown(folder: Path, id_: str) -> Any:
    return json.loads(dibs(folder, "jobs", "show", id_, "--json").stdout)["job"]
