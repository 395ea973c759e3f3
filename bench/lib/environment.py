"""Where the figures come from: versions and cores. No names of machines, no paths."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import dibs

_ROOT = Path(__file__).parents[2]
_MEASURED = ("src", "bench", ":!bench/results")
"""What figures depend on. The commit is the last that changed any of it."""


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


def environment(versions: Mapping[str, str]) -> Environment:
    """This machine, now."""
    return Environment(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=_commit(),
        dibs=dibs.__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        versions=dict(versions),
    )


def _commit() -> str:
    commit = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *_MEASURED)
    if not commit:
        return "unknown"
    return f"{commit}+" if _git("status", "--porcelain", "--", *_MEASURED) else commit


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
