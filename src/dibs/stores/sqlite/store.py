"""The SQLite store: what ``dibs.store.Store`` promises, on one file that any number of processes share."""

import asyncio
import os
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import Clock, span_micros, system_clock
from dibs.errors import StoreUnavailable
from dibs.job import (
    Change,
    Changed,
    Claim,
    Counted,
    Enqueued,
    Filter,
    Flow,
    FlowPage,
    FlowState,
    Job,
    Kept,
    NewFlow,
    NewJob,
    Order,
    Page,
    QueueCounts,
    Report,
    Retention,
    Settlement,
    State,
    WorkerInfo,
)
from dibs.keepable import keepable
from dibs.limits import Limits
from dibs.outcome import Pulse, Verdict
from dibs.scope import Limit, LimitUse, Scope
from dibs.store import CHUNK
from dibs.stores.bulk import BulkVerbs
from dibs.stores.sqlite import (
    changing,
    claiming,
    counting,
    enqueueing,
    flows,
    forks,
    keeping,
    looking,
    rooms,
    schema,
    settling,
    watching,
)
from dibs.stores.sqlite.connect import Connection, translated
from dibs.stores.sqlite.hands import CLOSED, Reader, T, Verb
from dibs.stores.sqlite.neighbours import refuse_strangers
from dibs.stores.sqlite.options import BUSY_TIMEOUT, Options, parse
from dibs.stores.sqlite.rows import as_claims
from dibs.stores.sqlite.shortcut import BRIEF
from dibs.stores.sqlite.walking import Wanted
from dibs.stores.sqlite.watching import Waiter, Watcher
from dibs.stores.sqlite.writer import Writer


class _Open(NamedTuple):
    """The threads of a handle that was set up."""

    writer: Writer
    reader: Reader
    counter: Reader
    watcher: Watcher


class SQLiteStore(BulkVerbs):
    """Jobs in an SQLite file; safe to use from several threads, event loops and processes at once."""

    embedded = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = system_clock,
        limits: Limits = rules.DEFAULT,
        synchronous: str = "full",
        busy_timeout: float = BUSY_TIMEOUT,
        migrate: bool = False,
    ) -> None:
        self._options = Options(
            path=Path(path),
            synchronous=synchronous,
            busy_timeout=busy_timeout,
            migrate=migrate,
            limits=limits,
        )
        self._clock = clock
        self._limits = limits
        self._open: _Open | None = None
        self._closed = CLOSED

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = system_clock) -> "SQLiteStore":
        """The store of a URL such as ``sqlite:///jobs.db?synchronous=normal``."""
        given = parse(url)
        return cls(
            given.path,
            clock=clock,
            limits=given.limits,
            synchronous=given.synchronous,
            busy_timeout=given.busy_timeout,
            migrate=given.migrate,
        )

    @property
    def path(self) -> Path:
        """The file."""
        return self._options.path

    # --- coming and going -----------------------------------------------------------------------------------

    async def setup(self) -> None:
        if self._open is not None:
            return
        opened = await asyncio.to_thread(self._connect)
        if self._hands():  # somebody else was faster
            await asyncio.to_thread(_close, opened)
        else:
            self._open = opened
            forks.handles.add(self)

    def _connect(self) -> _Open:
        connections: list[Connection] = []
        try:
            with translated(self._options):
                refuse_strangers(self.path)
                connections.append(Connection(self._options))
                schema.ensure(connections[0])
                connections += [Connection(self._options) for _ in range(3)]
        except BaseException:
            for connection in connections:
                connection.close()
            raise
        writing, reading, counting_, watching_ = connections
        watcher = Watcher(watching_, self._clock, watching_.log)
        reader = Reader("reader", reading, self._clock)
        counter = Reader("counter", counting_, self._clock)
        return _Open(Writer(writing, self._clock, watcher.ring), reader, counter, watcher)

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            forks.handles.discard(self)
            await asyncio.to_thread(_close, opened)

    def _hands(self) -> Sequence[forks.Resting]:
        return self._open or ()

    def _forked(self) -> None:
        self._open = None
        self._closed = "this SQLite store was opened before a fork: open another one in the child process"

    def _write(self, verb: Verb[T]) -> "asyncio.Future[T]":
        if self._open is None:
            raise StoreUnavailable(self._closed)
        return self._open.writer.ask(verb)

    def _write_few(self, verb: Verb[T], jobs: int, single: Verb[T | None] | None = None) -> Awaitable[T]:
        """A write about that many jobs, perhaps without the writer's thread."""
        if self._open is None:
            raise StoreUnavailable(self._closed)
        writer = self._open.writer
        return writer.ask_briefly(verb, single) if jobs <= BRIEF else writer.ask(verb)

    def _read(self, verb: Verb[T]) -> "asyncio.Future[T]":
        if self._open is None:
            raise StoreUnavailable(self._closed)
        return self._open.reader.ask(verb)

    def _read_long(self, verb: Verb[T]) -> "asyncio.Future[T]":
        """A read that may take seconds where there are millions of jobs: others do not wait for it."""
        if self._open is None:
            raise StoreUnavailable(self._closed)
        return self._open.counter.ask(verb)

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        opened, seconds = self._open, timeout.total_seconds()
        found = await self._read(lambda db, now: watching.ready(db, queues, now))
        if found or seconds <= 0:
            return found
        if opened is None:
            raise StoreUnavailable(self._closed)
        waiter = Waiter(frozenset(queues), worker)
        opened.watcher.add(waiter)
        try:
            async with asyncio.timeout(seconds):  # wait_for can swallow a cancel on Python 3.11
                return await waiter.future
        except TimeoutError:
            return frozenset()
        finally:
            opened.watcher.remove(waiter)

    # --- the life of a job ----------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        admitted = rules.admit(jobs, self._limits)

        def several(db: Connection, now: int) -> list[Enqueued]:
            return enqueueing.enqueue(db, admitted, now)

        def single(db: Connection, now: int) -> list[Enqueued] | None:
            return enqueueing.enqueue_single(db, admitted[0], now)

        return await self._write_few(several, len(admitted), single if len(admitted) == 1 else None)

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        known = rules.claimable(queue, worker, limit, lease, tasks)
        names = None if known is None else msgspec.json.encode(known).decode()
        wanted = Wanted(queue, worker, limit, span_micros(lease), names)
        taken = await self._write_few(lambda db, now: claiming.claim(db, wanted, now), limit)
        return as_claims(taken, queue, worker)

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        about = rules.beating(worker, claims, lease, info, self._limits)
        said, span = rules.reports(reports, claims), span_micros(lease)
        return await self._write_few(
            lambda db, now: settling.heartbeat(db, worker, claims, lease=span, info=about, said=said, now=now),
            len(claims),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        items = rules.settleable(settlements, self._limits)
        return await self._write_few(lambda db, now: settling.settle(db, items, now), len(items))

    async def sweep(self, limit: int = CHUNK, *, not_within: timedelta | None = None) -> int:
        rules.sweeping(limit, not_within)
        return await self._write(lambda db, now: claiming.sweep(db, limit, now))

    # --- flows ----------------------------------------------------------------------------------------------

    async def start(self, flow: NewFlow) -> Enqueued:
        admitted = rules.flow(flow, self._limits)
        return await self._write_few(lambda db, now: flows.start(db, admitted, now), len(admitted.steps))

    async def flow(self, flow: UUID) -> Flow | None:
        return await self._read(lambda db, _: looking.flow(db, flow))

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        wanted = rules.flow_states(states)
        rules.limit(limit)
        return await self._read(lambda db, _: looking.flows(db, wanted, after, limit))

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._read(lambda db, _: looking.get(db, job))

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        rules.chosen(which, change=False)
        rules.limit(limit)
        rules.most(most)
        return await self._read(lambda db, _: looking.find(db, which, after, limit, most))

    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        if rules.most(most) is None:
            return await self._read_long(counting.counts)
        return await self._read(lambda db, now: counting.counts_up_to(db, now, most or 1))

    async def workers(self) -> list[WorkerInfo]:
        return await self._read(lambda db, _: looking.workers(db))

    # --- an operator's verbs --------------------------------------------------------------------------------

    async def _count(
        self, which: Filter, states: frozenset[State], after: UUID | None = None, most: int | None = None
    ) -> Counted:
        return await self._read(lambda db, _: looking.count(db, which, states, after, most))

    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        return await self._write(
            lambda db, now: changing.change_chunk(db, which, change, after=after, limit=limit, now=now)
        )

    async def prune(self, retention: Retention, limit: int = CHUNK) -> int:
        rules.limit(limit)
        return await self._write(lambda db, now: changing.prune(db, retention, limit, now))

    # --- queues ---------------------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        name = rules.name(queue, "queue")
        await self._write(lambda db, _: changing.pause(db, name, True))

    async def resume(self, queue: str) -> None:
        name = rules.name(queue, "queue")
        await self._write(lambda db, _: changing.pause(db, name, False))

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        name, wanted = rules.name(queue, "queue"), rules.order(order)
        ages = rules.ageing(ageing, wanted)
        micros = None if ages is None else span_micros(ages)
        await self._write(lambda db, _: changing.configure(db, name, wanted.value, micros))

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        which, wanted = rules.scope(scope), None if limit is None else rules.limited(limit)
        rules.rank(rank)
        await self._write(lambda db, _: rooms.set_limit(db, which, wanted, rank))

    async def limits(self, job: UUID | None = None) -> list[LimitUse]:
        return await self._read(lambda db, now: rooms.limits(db, job, now))

    # --- what is no job -------------------------------------------------------------------------------------

    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        texts = keepable(kind, values, rank, self._limits)
        await self._write(lambda db, _: keeping.keep(db, kind, texts, rank))

    async def kept(self, kinds: Sequence[str]) -> Kept:
        asked = rules.names(kinds, "kind") or ()
        return await self._read(lambda db, now: keeping.kept(db, asked, now))


def _close(opened: _Open) -> None:
    """The watcher last: the writer rings its bell."""
    opened.writer.close()
    opened.reader.close()
    opened.counter.close()
    opened.watcher.close()
