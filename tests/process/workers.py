"""Workers in processes of their own, and a store that they share with the test."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from dibs.job import Filter, Job, NewJob
from dibs.store import Store
from dibs.testing import oracle
from dibs.worker import Stats
from tests.process.worker_main import Orders


class Process:
    """One worker process."""

    def __init__(self, url: str, folder: Path, name: str, **orders: Any) -> None:
        self.name = name
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.worker_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdin is not None
        told = Orders(name=name, url=url, folder=str(folder), **orders)
        self._process.stdin.write(msgspec.json.encode(told).decode() + "\n")
        self._process.stdin.flush()

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self.said()

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def stats(self, timeout: float = 60) -> Stats:
        """What it says when it has ended by itself."""
        assert self._process.stdout is not None
        self._process.wait(timeout)
        assert self._process.returncode == 0, (self._process.returncode, self.said())
        return msgspec.json.decode(self._process.stdout.read(), type=Stats)

    def end(self, timeout: float = 60) -> int:
        return self._process.wait(timeout)

    def said(self) -> str:
        return self._errors.read_text()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextmanager
def worker(url: str, folder: Path, name: str, **orders: Any) -> Iterator[Process]:
    """A worker that works; killed at the end if it has not ended."""
    process = Process(url, folder, name, **orders)
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.close()


async def enqueue(store: Store, task: str, count: int, seconds: float, **fields: Any) -> list[UUID]:
    jobs = [NewJob(task=task, args={"seconds": seconds}, **fields) for _ in range(count)]
    return [sent.id for sent in await store.enqueue(jobs)]


async def all_jobs(store: Store) -> list[Job]:
    jobs: list[Job] = []
    after: UUID | None = None
    while True:
        page = await store.find(Filter(), after, 1_000)
        jobs += page.jobs
        if (after := page.after) is None:
            return jobs


async def faults(store: Store, folder: Path, ids: Sequence[UUID], *, drained: bool = True) -> list[str]:
    """What the oracle finds wrong."""
    return oracle.faults(oracle.read(folder), await all_jobs(store), ids, drained=drained)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
