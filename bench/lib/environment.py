"""Where the figures come from: versions and cores. No names of machines, no paths."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

import dibs

_ROOT = Path(__file__).parents[2]
MEASURED = ("src", "bench", ":!bench/results")
"""What figures depend on."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader has to know to compare figures."""

    date: str
    commit: str
    """With a + behind it if files were changed since."""
    dibs: str
    python: str
    system: str
    cores: int
    versions: dict[str, str]


def environment(versions: Mapping[str, str], folders: Sequence[str] = MEASURED) -> Environment:
    """This machine, now; the commit is the last that changed anything in the folders."""
    return Environment(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=_commit(folders),
        dibs=dibs.__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        versions=dict(versions),
    )


def cpu_of(server: int) -> float:
    """Seconds of processor time that a server has used until now, with the processes that it started."""
    process = psutil.Process(server)
    total = sum(process.cpu_times()[:4])  # those of children that have ended are among its own
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended: a process that measures holds its connections
            total += sum(child.cpu_times()[:2])
    return float(total)


def _commit(folders: Sequence[str]) -> str:
    commit = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *folders)
    if not commit:
        return "unknown"
    return f"{commit}+" if _git("status", "--porcelain", "--", *folders) else commit


def content(folder: str) -> str:
    """What a folder holds, as a number of git: the same after a rebase. With a + if files were changed since."""
    tree = _git("rev-parse", "--short=12", f"HEAD:{folder}") or "unknown"
    return f"{tree}+" if _git("status", "--porcelain", "--", folder) else tree


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
