"""Whole programs with handlers in processes of their own: scripts, and workers that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.pools import ROOT
from tests.process.waiting import complete, numbers, running, wait_until

# --- whole programs -----------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from dibs.worker.processes import ProcessPool
from tests.process import handlers
from tests.process.pools import attempt

with open("started", "a") as started:
    started.write(__name__ + chr(10))

class Mine(Exception):
    pass

@handlers.process()
def mine(number: int) -> int:
    print("in", os.getpid(), flush=True)
    if number < 0:
        raise Mine(number)
    return number + 1

async def main() -> None:
    from dibs.worker.processes import caused_by
    pool = ProcessPool(2)
    try:
        print(await pool.run(mine, attempt(mine, number=41), None))
        await pool.run(handlers.prints, attempt(handlers.prints, text="said"), None)
        try:
            await pool.run(mine, attempt(mine, number=-1), None)
        except Exception as error:
            print(error, caused_by(error, (Mine,)))
    finally:
        await pool.close()

START
"""
GUARDED = 'if __name__ == "__main__":\n    asyncio.run(main())'


def program(folder: Path, *arguments: str, start: str = GUARDED) -> "subprocess.CompletedProcess[str]":
    (folder / "own").mkdir()
    (folder / "own" / "__init__.py").touch()
    (folder / "own" / "script.py").write_text(PROGRAM.replace("START", start))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [["own/script.py"], ["-m", "own.script"]], ids=["path", "module"])
def test_functions_of_the_script_itself_run_and_what_it_guards_starts_once(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = program(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == "42", "what a child prints goes where its worker prints"
    assert "said" in lines and done.stderr == "SAID\n"
    assert lines[-1] == "Mine: -1 True"
    assert (tmp_path / "started").read_text().split() == ["__main__", "__dibs_main__"]


def test_a_script_without_a_guard_is_told_so_and_starts_no_second_worker(tmp_path: Path) -> None:
    done = program(tmp_path, "own/script.py", start="asyncio.run(main())")
    assert done.returncode != 0
    assert 'put the start under if __name__ == "__main__":' in done.stderr
    assert (tmp_path / "started").read_text().split() == ["__main__", "__dibs_main__"]


def test_such_a_script_does_not_get_to_make_a_worker_in_a_child(tmp_path: Path) -> None:
    start = """
from dibs.task import Tasks
from dibs.worker import Worker
Worker(Tasks(), lambda: None)
print("a worker in", __name__)
asyncio.run(main())
"""
    done = program(tmp_path, "own/script.py", start=start)
    assert 'put the start under if __name__ == "__main__":' in done.stderr
    assert done.stdout.splitlines() == ["a worker in __main__"]


def test_it_works_on_uvloop(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    done = program(
        tmp_path, "own/script.py", start='if __name__ == "__main__":\n    import uvloop\n    uvloop.run(main())'
    )
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout.splitlines()


WORKER = """
import asyncio, os, signal, sys
from dibs.worker.processes import ProcessPool
from tests.process import handlers
from tests.process.pools import attempt

async def main() -> None:
    pool = ProcessPool(2)
    if sys.argv[3] == "guard-killed":
        await pool.run(handlers.pid, attempt(handlers.pid), None)
        os.kill(pool._guard._process.pid, signal.SIGKILL)
        pool._guard._process.wait()
        await asyncio.gather(run(pool, sys.argv[2] + ".0"), run(pool, sys.argv[2]))
    if sys.argv[3] == "forked":
        await pool.run(handlers.pid, attempt(handlers.pid), None)
        if os.fork() == 0:
            signal.pause()  # it keeps every file of its parent open
    await run(pool, sys.argv[2])

async def run(pool, note):
    task = getattr(handlers, sys.argv[1])
    await pool.run(task, attempt(task, note=note), None)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("task", "circumstance"),
    [
        ("waits_with_company", "plain"),
        ("waits_async", "plain"),
        ("ignores_signals", "plain"),
        ("holds_the_gil", "plain"),
        ("holds_the_gil", "forked"),
        ("holds_the_gil", "guard-killed"),
    ],
)
def test_when_the_worker_is_killed_its_children_end_with_all_they_started(
    tmp_path: Path, task: str, circumstance: str
) -> None:
    note = tmp_path / "note"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, task, str(note), circumstance],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        start_new_session=True,
    )
    try:
        wait_until(lambda: complete(note) or worker.poll() is not None)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        wait_until(lambda: not any(running(pid) for pid in numbers(note)), "for the children to end")
    finally:
        os.killpg(worker.pid, signal.SIGKILL) if circumstance == "forked" else worker.kill()
        worker.wait()


def test_the_program_of_the_guide_works(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/processes.md").read_text()
    (tmp_path / "guide.py").write_text(guide.split("```py\n")[1].split("```")[0])
    done = subprocess.run(
        [sys.executable, "-W", "error", "guide.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 128
