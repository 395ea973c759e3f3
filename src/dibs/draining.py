"""Running jobs until none is due: what ``app.drain`` counts, and how it stops in time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dibs.signals import Delay, span
from dibs.worker import Stats, Worker


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts ended in which way."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0

    def plus(self, stats: Stats) -> "Drained":
        """These and those that a worker counted."""
        return Drained(**{name: getattr(self, name) + getattr(stats, name) for name in self.__struct_fields__})


class Deadline:
    """A point in time from now, at which a worker has to stop; None is never."""

    def __init__(self, timeout: Delay | None) -> None:
        self._span = None if timeout is None else span(timeout).total_seconds()
        self._at = None if self._span is None else asyncio.get_running_loop().time() + self._span

    @contextmanager
    def stopping(self, worker: Worker) -> Iterator[None]:
        """Stop the worker if it still runs then, and raise a TimeoutError."""
        if self._at is None:
            yield
            return
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            worker.stop(now=True)

        timer = asyncio.get_running_loop().call_at(self._at, stop)
        try:
            yield
        finally:
            timer.cancel()
        if stopped:
            raise TimeoutError(f"jobs are still running or due after {self._span:g} s; they were given back")
