"""A worker in a process of its own, for tests: ``python -m tests.process.worker_main``.

Reads its orders as one line of JSON, says "ready" when it works, and ends when its input does: it cannot outlive the
one who started it. Handlers write what they do to files of their own, which the worker never reads.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from dibs.attempt import Attempt, current
from dibs.outcome import Outcome
from dibs.retry import Constant
from dibs.stores import open_store
from dibs.task import AsyncTask, TaskOptions, Tasks
from dibs.testing.oracle import Log, Run, whole_lines
from dibs.worker import Worker, run_with_signals


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is told."""

    name: str
    url: str
    folder: str
    lease: float = 1.0
    grace: float = 10.0
    concurrency: int = 100
    prefetch: int | None = None
    accepts: bool = False
    """Whether to write down every success that the store has accepted."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One side effect of a handler."""

    job: str
    epoch: int
    worker: str
    at: float


class Diary:
    """Every start, every side effect, and every end; one record a write."""

    def __init__(self, orders: Orders) -> None:
        self._steps = os.open(
            Path(orders.folder, f"{orders.name}.steps"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._ends = Log(Path(orders.folder, f"{orders.name}.log"))
        self._accepted = os.open(
            Path(orders.folder, f"{orders.name}.accepted"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._encode = msgspec.json.Encoder().encode

    def step(self) -> None:
        self._write(self._steps, current())

    def accepted(self, attempt: Attempt, _: Outcome) -> None:
        self._write(self._accepted, attempt)

    def _write(self, file: int, attempt: Attempt) -> None:
        step = Step(job=str(attempt.id), epoch=attempt.epoch, worker=attempt.worker, at=monotonic())
        os.write(file, self._encode(step) + b"\n")

    def end(self, start: float) -> None:
        attempt = current()
        self._ends.add(Run(job=attempt.id, epoch=attempt.epoch, worker=attempt.worker, start=start, end=monotonic()))


def steps(folder: Path, name: str = "*", kind: str = "steps") -> list[Step]:
    """What handlers did, as they wrote it down; or, of kind ``accepted``, the successes that were seen accepted."""
    decode = msgspec.json.Decoder(Step).decode
    return [decode(line) for path in sorted(folder.glob(f"{name}.{kind}")) for line in whole_lines(path)]


def tasks(diary: Diary) -> Tasks:
    async def hold(seconds: float) -> None:
        """Waits on the loop."""
        start = monotonic()
        diary.step()
        await asyncio.sleep(seconds)
        diary.end(start)

    async def tick(seconds: float) -> None:
        """A side effect every 20 ms."""
        start = monotonic()
        while monotonic() < start + seconds:
            diary.step()
            await asyncio.sleep(0.02)
        diary.end(start)

    def work(seconds: float) -> None:
        """The same as hold, in a thread."""
        start = monotonic()
        diary.step()
        time.sleep(seconds)
        diary.end(start)

    async def burn(seconds: float) -> None:
        """Blocks the loop in pure Python."""
        start = monotonic()
        diary.step()
        while monotonic() < start + seconds:
            sum(range(1_000))
        diary.end(start)

    async def pass_on(seconds: float) -> int:
        """A step of a flow: one more than all that it needs together."""
        start = monotonic()
        diary.step()
        await asyncio.sleep(seconds)
        diary.end(start)
        needed: list[int] = list(current().inputs.values())
        return 1 + sum(needed)

    made = Tasks()
    for function in (hold, tick, work, burn, pass_on):
        made.add(AsyncTask(function, options=TaskOptions(retry=Constant(0))))
    return made


class Noted(Worker):
    """Writes down each time that it is told to stop, in the very signal handler."""

    def __init__(self, stops: Path, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._file = os.open(stops, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def stop(self, *, now: bool = False) -> None:
        super().stop(now=now)
        os.write(self._file, b"stop\n")


def stops(folder: Path, name: str) -> int:
    """How often a worker has been told to stop."""
    return len(Path(folder, f"{name}.stops").read_text().splitlines())


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(3)


def main() -> None:
    orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    diary = Diary(orders)
    made = tasks(diary)
    if orders.accepts:
        made.hooks["succeeded"] = [diary.accepted]
    made.hooks["startup"] = [lambda: print("ready", flush=True)]
    worker = Noted(
        Path(orders.folder, f"{orders.name}.stops"),
        made,
        lambda: open_store(orders.url),
        name=orders.name,
        lease=timedelta(seconds=orders.lease),
        grace=timedelta(seconds=orders.grace),
        concurrency=orders.concurrency,
        prefetch=orders.prefetch,
    )
    stats = asyncio.run(run_with_signals(worker))
    print(msgspec.json.encode(stats).decode(), flush=True)
    os._exit(0)  # the listener still reads: an ordinary exit would wait for its lock on stdin


if __name__ == "__main__":
    main()
