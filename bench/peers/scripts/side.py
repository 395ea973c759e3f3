"""What every script shares: what it was told, the handler that jobs run, and the record of each run.

A run appends one record (number of the job, start, time of the enqueue call) to a file, with one write to a file
opened with O_APPEND: exact across threads, forks and processes, at about a microsecond.
"""

import asyncio
import os
import struct
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

URL = os.environ.get("BENCH_URL", "")
PLAIN = os.environ.get("BENCH_KIND") == "plain"
WORK = float(os.environ.get("BENCH_WORK", "0"))
"""Seconds that each job takes; 0 is a job that does nothing but be recorded."""
_SETTINGS = dict(pair.split("=", 1) for pair in os.environ.get("BENCH_SETTINGS", "").split(",") if pair)
_FILE = os.open(os.environ.get("BENCH_RECORDS") or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_pack = struct.Struct("<Qdd").pack


class Job(NamedTuple):
    """What to enqueue: ``t`` is when the call was made, 0 if nobody asks; smaller levels are to run first."""

    i: int
    t: float
    level: int

    @property
    def arguments(self) -> dict[str, Any]:
        return {"i": self.i, "t": self.t} if self.t else {"i": self.i}


def by_level(jobs: Iterable[Job]) -> Iterable[tuple[int, list[Job]]]:
    """For systems whose bulk call has one priority for all."""
    for level, group in groupby(sorted(jobs, key=_level), key=_level):
        yield level, list(group)


def _level(job: Job) -> int:
    return job.level


def setting(name: str, default: Any) -> Any:
    """A setting of the system, of the type of its default."""
    return type(default)(_SETTINGS.get(name, default))


def record(i: int, t: float = 0.0) -> None:
    os.write(_FILE, _pack(i, time.time(), t))


def handle(i: int, t: float = 0.0) -> None:
    os.write(_FILE, _pack(i, time.time(), t))
    if WORK:
        time.sleep(WORK)


async def handle_async(i: int, t: float = 0.0) -> None:
    os.write(_FILE, _pack(i, time.time(), t))
    if WORK:
        await asyncio.sleep(WORK)


handler: Any = handle if PLAIN else handle_async
"""The handler of the kind that is measured."""
