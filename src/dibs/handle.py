"""A job that was sent, as the sender sees it: how it is, how it ended, and its result."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from dibs.errors import JobCancelled, JobFailed, JobUnknown
from dibs.job import FINISHED, Filter, Job, State
from dibs.signals import Delay
from dibs.store import Store

R = TypeVar("R")
T = TypeVar("T")

OpenStore = Callable[[], Awaitable[Store]]
"""Gives the store handle of the running event loop."""

_FIRST_LOOK = 0.002
_LAST_LOOK = 0.25
_SLOWER = 1.5


async def look_until(
    look: Callable[[], Awaitable[T]],
    ended: Callable[[T], bool],
    timeout: Delay | None,
    still: Callable[[T], str],
) -> T:
    """Look again and again, ever more seldom, until what is seen has ended; ``still`` tells how it is, if it has not.

    A TimeoutError after ``timeout``, a timedelta or seconds; None waits for ever. It looks at least once.
    """
    loop = asyncio.get_running_loop()
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    deadline = None if seconds is None else loop.time() + seconds
    pause = _FIRST_LOOK
    while not ended(seen := await look()):
        left = pause if deadline is None else deadline - loop.time()
        if left <= 0:
            raise TimeoutError(f"{still(seen)} after {seconds:g} s; it goes on")
        await asyncio.sleep(min(pause, left))
        pause = min(pause * _SLOWER, _LAST_LOOK)
    return seen


def has_expired(job: Job) -> bool:
    """Whether it ended because it had not started in time, and not because anybody cancelled it."""
    if job.state is not State.CANCELLED or job.cancel_asked or job.expires_at is None or job.finished_at is None:
        return False
    return job.expires_at <= job.finished_at


class Handle(Generic[R]):
    """Names one job; asks the store when asked. Two handles of the same job are equal."""

    __slots__ = ("_store", "_unpack", "changed", "created", "id")

    def __init__(
        self, id: UUID, created: bool, store: OpenStore, unpack: Callable[[Any], R], *, changed: bool = False
    ) -> None:
        self.id = id
        self.created = created
        """False if the job was there already: the same id was sent before, or its key is busy."""
        self.changed = changed
        """True if the job that was there is now what was asked for: see ``on_conflict``."""
        self._store = store
        self._unpack = unpack

    async def job(self) -> Job | None:
        """The job as it is now; None if there is none (any more)."""
        return await (await self._store()).get(self.id)

    async def result(self, timeout: Delay | None = None) -> R:
        """Wait until the job has ended and give its result, as the type that the task's annotation says.

        Raises ``JobFailed`` or ``JobCancelled``, each with the job; ``JobUnknown`` if there is no such job; and
        ``TimeoutError`` after ``timeout`` (a timedelta or seconds; None waits for ever), while the job goes on.
        """
        job = await self.ended(timeout)
        if job.state is State.SUCCEEDED:
            return self._unpack(job.result)
        if has_expired(job):
            raise JobCancelled(f"job {job.id} ({job.task}) expired: it had not started by {job.expires_at}", job)
        if job.state is State.CANCELLED:
            raise JobCancelled(f"job {job.id} ({job.task}) was cancelled", job)
        reason = job.errors[-1].error if job.errors else "no reason was given"
        raise JobFailed(f"job {job.id} ({job.task}) failed: {reason}", job)

    async def ended(self, timeout: Delay | None = None) -> Job:
        """Wait until the job has ended, in whatever way, and give it."""
        store = await self._store()

        async def look() -> Job:
            job = await store.get(self.id)
            if job is None:
                raise JobUnknown(f"there is no job {self.id}: it never was, or it was deleted or pruned")
            return job

        return await look_until(
            look,
            lambda job: job.state in FINISHED,
            timeout,
            lambda job: f"job {self.id} ({job.task}) is still {job.state}",
        )

    async def cancel(self, *, force: bool = False) -> bool:
        """Cancel the job: at once if it has not started; a running one is asked, or with ``force`` cut off.

        False if it had ended already.
        """
        changed = await (await self._store()).cancel(Filter(ids=(self.id,)), force=force)
        return changed.count > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Handle({str(self.id)!r})"
