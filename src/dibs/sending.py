"""Enqueueing as a stream: any number of calls, two chunks of them in memory."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Any, Generic, TypeVar

from dibs.arguments import Signature
from dibs.ending import end
from dibs.errors import Refused
from dibs.handle import Handle, OpenStore
from dibs.job import Enqueued, NewJob
from dibs.store import Store

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
        sends = self._as_they_come(store) if isinstance(self._calls, AsyncIterable) else self._overlapping(store)
        async with aclosing(sends):
            async for sent in sends:
                done += len(sent)
                if self._progress is not None:
                    self._progress(done)
                yield sent

    async def _as_they_come(self, store: Store) -> AsyncGenerator[list[Enqueued], None]:
        """Each chunk when it is full: nobody knows how long the next one takes to come."""
        assert isinstance(self._calls, AsyncIterable)
        jobs: list[NewJob] = []
        async for call in self._calls:
            jobs.append(self._to_job(call))
            if len(jobs) == self._chunk:
                yield await self._send(store, jobs)
                jobs = []
        if jobs:
            yield await self._send(store, jobs)

    async def _overlapping(self, store: Store) -> AsyncGenerator[list[Enqueued], None]:
        """A chunk is made while a server is busy with the one before; an embedded store would want that processor."""
        assert isinstance(self._calls, Iterable)
        calls, embedded = iter(self._calls), getattr(store, "embedded", False)
        jobs, problem = self._next(calls)
        while jobs:
            sending = asyncio.ensure_future(self._send(store, jobs))
            try:
                # After one turn of the loop it is on its way.
                await (asyncio.wait([sending]) if embedded else asyncio.sleep(0))
                jobs, problem = self._next(calls)
                yield await sending
            finally:
                await end([sending])
        if problem is not None:
            raise problem

    def _next(self, calls: Iterator[Call]) -> tuple[list[NewJob], Exception | None]:
        """The next chunk. If one of its calls is refused there is none, but those before it are still to be stored."""
        try:
            return [self._to_job(call) for call in islice(calls, self._chunk)], None
        except Exception as problem:
            return [], problem

    async def _send(self, store: Store, jobs: list[NewJob]) -> list[Enqueued]:
        try:
            return await store.enqueue(jobs)
        except Refused as problem:
            raise self._signature.blame(problem, *(job.args for job in jobs)) from None

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn("enqueue_many was never awaited: nothing was enqueued", RuntimeWarning, stacklevel=2)
