"""Storing jobs: by the shortest call that says all there is to say, and those of many callers together."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.ids import is_fresh
from dibs.job import Enqueued, OnConflict
from dibs.limits import Admitted, alike
from dibs.store import CHUNK
from dibs.stores.postgres.places import Places
from dibs.stores.postgres.wakeups import Waker
from dibs.stores.together import Together

Fetch = Callable[..., Awaitable[list[Any]]]

_ARRAYS = "select * from dibs.enqueue_arrays($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_ALL_ARRAYS = "select * from dibs.enqueue_arrays($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
_ALIKE = "select dibs.enqueue_alike($1, $2, $3, $4, $5, $6, $7, $8)"
_PLAIN = "select dibs.enqueue_plain($1, $2, $3, $4, $5, $6, $7, $8, $8)"

AT_ONCE = 4
"""Calls with a single job that are under way at a time: jobs that come meanwhile go together in the next."""
_SHORT = 10_000
"""Characters of arguments and meta. A thousand longer jobs would be much for one statement."""


class Enqueueing:
    """The enqueue calls of one store."""

    def __init__(self, fetch: Fetch, places: Places, waker: Waker) -> None:
        self._fetch = fetch
        self._places = places
        self._waker = waker
        self._together = Together(self._store, lines=AT_ONCE, most=CHUNK)

    async def enqueue(self, jobs: Sequence[Admitted]) -> list[Enqueued]:
        """Store the jobs of one call."""
        if len(jobs) == 1 and _is_sociable(jobs[0]):
            return await self._together(jobs)
        return await self._store(jobs)

    async def _store(self, jobs: Sequence[Admitted]) -> list[Enqueued]:
        queues = {job.queue for job in jobs}
        at_once = self._waker.at_once(queues)
        answers = await self._store_plainly(jobs, at_once) or await self._store_arrays(jobs, at_once)
        if not at_once:
            self._waker.soon(queues)
        return answers

    async def _store_plainly(self, jobs: Sequence[Admitted], wake: bool) -> list[Enqueued]:
        """Store jobs in less time; no answers, and nothing has changed, if there is more to them."""
        first = jobs[0]
        if first.run_at is not None or not alike(jobs):
            return []
        if len(jobs) == 1:
            about = first.id, first.queue, first.task, first.args, first.priority, first.max_attempts, first.meta
            [[stored]] = await self._fetch(_PLAIN, *about, wake)
        else:
            ids, args = [job.id for job in jobs], [job.args for job in jobs]
            shared = first.priority, first.max_attempts, first.meta
            [[stored]] = await self._fetch(_ALIKE, ids, first.queue, first.task, args, *shared, wake)
        return [Enqueued(job.id, True) for job in jobs] if stored else []

    async def _store_arrays(self, jobs: Sequence[Admitted], wake: bool) -> list[Enqueued]:
        extras = _extras(jobs)
        with self._places.unsettled(any(map(_may_overtake, jobs))):
            answers = await self._fetch(
                _ALL_ARRAYS if extras else _ARRAYS,
                [job.id for job in jobs],
                [job.queue for job in jobs],
                [job.task for job in jobs],
                [job.args for job in jobs],
                [job.priority for job in jobs],
                [job.run_at for job in jobs],
                [job.max_attempts for job in jobs],
                [job.key for job in jobs],
                [job.meta for job in jobs],
                wake,
                *extras,
            )
        return [Enqueued(id_, created, changed) for id_, created, changed in answers]


def _is_sociable(job: Admitted) -> bool:
    """Whether it may be stored with those of others.

    With a key, or an id that was sent before, it might have to wait for somebody's transaction, and others with it.
    """
    return job.key is None and len(job.args) + len(job.meta) < _SHORT and job.is_plain and is_fresh(job.id)


def _may_overtake(job: Admitted) -> bool:
    """Whether it may come to stand before jobs that were there, itself or the one that it changes."""
    return job.run_at is not None or job.on_conflict is not OnConflict.EXISTING


def _extras(jobs: Sequence[Admitted]) -> tuple[list[Any], ...]:
    """The last arguments of ``dibs.enqueue_arrays``; none if no job says anything that most leave out."""
    if all(job.is_plain for job in jobs):
        return ()
    return (
        [job.expires_at for job in jobs],
        [job.limit_key for job in jobs],
        [job.unique_for for job in jobs],
        [job.on_conflict.value for job in jobs],
        [job.max_delay for job in jobs],
    )
