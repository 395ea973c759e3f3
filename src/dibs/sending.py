"""Enqueueing as a stream: any number of calls, one chunk of them in memory."""

import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from dibs.arguments import Signature
from dibs.errors import Refused
from dibs.handle import Handle, OpenStore
from dibs.job import Enqueued, NewJob

R = TypeVar("R")

Call = NewJob | tuple[Any, ...] | dict[str, Any]
"""``task.job(…)``, which type checkers understand best; a tuple of positional arguments; a dict of named ones."""

Calls = Iterable[Call] | AsyncIterable[Call]


class Sending(Generic[R]):
    """What ``enqueue_many`` answers. Nothing is sent before it is awaited or iterated over, and then once.

    ``await`` gives the number of jobs created. ``async for`` gives a handle for each call, as chunks are stored.
    """

    def __init__(
        self,
        calls: Calls,
        to_job: Callable[[Any], NewJob],
        store: OpenStore,
        signature: Signature,
        *,
        chunk: int,
        progress: Callable[[int], object] | None,
    ) -> None:
        self._calls = calls
        self._to_job = to_job
        self._store = store
        self._signature = signature
        self._chunk = chunk
        self._progress = progress
        self._begun = False

    def __await__(self) -> Generator[Any, Any, int]:
        return self._count().__await__()

    async def __aiter__(self) -> AsyncIterator[Handle[R]]:
        async for chunk in self._chunks():
            for sent in chunk:
                yield Handle(sent.id, sent.created, self._store, self._signature.unpack_result, changed=sent.changed)

    async def _count(self) -> int:
        created = 0
        async for chunk in self._chunks():
            created += sum(sent.created for sent in chunk)
        return created

    async def _chunks(self) -> AsyncIterator[list[Enqueued]]:
        if self._begun:
            raise RuntimeError("these calls were sent already: call enqueue_many again to send more")
        self._begun = True
        store, done = await self._store(), 0
        async for jobs in self._jobs():
            try:
                sent = await store.enqueue(jobs)
            except Refused as problem:
                raise self._signature.blame(problem, *(job.args for job in jobs)) from None
            done += len(sent)
            if self._progress is not None:
                self._progress(done)
            yield sent

    async def _jobs(self) -> AsyncIterator[list[NewJob]]:
        jobs: list[NewJob] = []
        if isinstance(self._calls, AsyncIterable):
            async for call in self._calls:
                jobs.append(self._to_job(call))
                if len(jobs) == self._chunk:
                    yield jobs
                    jobs = []
        else:
            for call in self._calls:
                jobs.append(self._to_job(call))
                if len(jobs) == self._chunk:
                    yield jobs
                    jobs = []
        if jobs:
            yield jobs

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn("enqueue_many was never awaited: nothing was enqueued", RuntimeWarning, stacklevel=2)
