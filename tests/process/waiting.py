"""Waiting for what other processes do: for a condition, never for a time."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

LONGEST = 30.0


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline, f"waited {LONGEST:g} s in vain {what}"
        time.sleep(0.01)


async def until(condition: Callable[[], object], what: str | Callable[[], str] = "") -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {LONGEST:g} s in vain {what() if callable(what) else what}")
        await asyncio.sleep(0.01)


def running(pid: int) -> bool:
    """Whether the process runs code: a zombie that init has not collected yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def frozen(pid: int) -> bool:
    """Whether each of its threads has stopped: SIGSTOP reaches them one by one."""
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return set(states) == {"T"}


def complete(note: Path) -> bool:
    """Whether the note has been written to its end."""
    return note.exists() and note.read_text().endswith("\n")


def numbers(note: Path) -> list[int]:
    return [int(word) for word in note.read_text().split()]


def children() -> set[int]:
    """The children of this process, zombies too."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in _started_by(task)}


def _started_by(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # that thread has ended meanwhile; what it started belongs to another now
