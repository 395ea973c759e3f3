"""``dibs work --reload``: start the worker again when a source file changes. For development."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

EVERY = 0.5
SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv"}


def files(folder: Path) -> dict[str, int]:
    """Every Python file below, with the time it was last written."""
    found: dict[str, int] = {}
    for place, below, names in os.walk(folder):
        below[:] = [name for name in below if name not in SKIPPED and not name.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:  # an editor is replacing it
                    continue
    return found


def reloading(command: Sequence[str], folder: Path) -> int:
    """Run the command, again after each change, until somebody stops it; the code to exit with."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    child: subprocess.Popen[bytes] | None = None
    told = False
    try:
        while True:
            before, child = files(folder), subprocess.Popen(command)  # noqa: S603 - our own
            changed = _wait_for_change(folder, before)
            click.echo(f"dibs: {os.path.relpath(changed)} changed, starting again", err=True)
            _end(child)
    except KeyboardInterrupt:
        told = True  # the terminal told the child too: told twice, it would drop what it has begun
        return 0
    finally:
        if child is not None:
            _end(child, told)


def _wait_for_change(folder: Path, before: dict[str, int]) -> str:
    while True:
        time.sleep(EVERY)
        now = files(folder)
        if now != before:
            return min(path for path, _ in set(now.items()) ^ set(before.items()))


def _end(child: "subprocess.Popen[bytes]", told: bool = False) -> None:
    """Let it finish what it began; a worker that takes too long is killed, its jobs run again after their leases."""
    if child.poll() is None:
        if not told:
            child.terminate()
        try:
            child.wait(10)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            child.wait()
