"""Running jobs until none is due: what ``app.drain`` counts, and how it stops in time."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

import msgspec

from dibs.errors import ConfigurationError
from dibs.job import Filter, State
from dibs.signals import Delay, span
from dibs.store import CHUNK, Store
from dibs.worker import Stats, Worker


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts ended in which way, and how many due jobs are left."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    held_back: int = 0
    """Due jobs that limits kept from starting when it ended."""

    def plus(self, stats: Stats) -> "Drained":
        """These and those that a worker counted."""
        return Drained(**{name: getattr(self, name) + getattr(stats, name, 0) for name in self.__struct_fields__})


async def held_back(store: Store, queues: Collection[str], tasks: Collection[str]) -> int:
    """How many due jobs of these queues and tasks are left, where there are limits that may hold them back."""
    try:
        if not tasks or not await store.limits():
            return 0
    except ConfigurationError:  # on PostgreSQL a worker's role may not look: then nobody can tell
        return 0
    counts = [each for each in await store.counts() if each.queue in queues and not each.paused]
    due = tuple(each.queue for each in counts if each.states[State.QUEUED] > each.scheduled)
    which, now, left = Filter(queues=due, tasks=tuple(tasks), states=(State.QUEUED,)), (await store.kept([])).now, 0
    after: UUID | None = None
    while due:
        page = await store.find(which, after, CHUNK)
        left += sum(job.run_at <= now for job in page.jobs)
        after = page.after
        if after is None:
            break
    return left


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
