"""Attempts to run in a pool, and a pool that has to leave nothing behind."""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dibs.attempt import Attempt
from dibs.ids import new_id
from dibs.job import Claim
from dibs.task import Task
from dibs.worker.processes import ProcessPool
from tests.process.waiting import children, until

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def attempt(task: Task[..., Any], **args: Any) -> Attempt:
    claim = Claim(
        new_id(), 7, "worker-1", "mail", task.name, args, 0, NOW, NOW, 2, 5, NOW, key="k", meta={"tenant": "böse"}
    )
    return Attempt(claim)


def belongings() -> set[object]:
    """The processes, threads and files that a pool could leave behind, each by itself: some may be another's."""
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("dibs-child")}
    return {*children(), *threads, *_files()}


def _files() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # such as the one by which they were listed
            yield number, os.readlink(f"/proc/self/fd/{number}")


@asynccontextmanager
async def clean_pool() -> AsyncIterator[ProcessPool]:
    """A pool of two; when it is closed, no process, thread or file of it is left."""
    before = belongings()
    pool = ProcessPool(2, patience=1)
    yield pool
    await pool.close()
    await until(lambda: belongings() <= before, lambda: f"for these to go: {belongings() - before}")
