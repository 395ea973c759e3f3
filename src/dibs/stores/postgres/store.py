"""The PostgreSQL store: calls the SQL functions of schema ``dibs`` and turns their rows into values."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.job import (
    Cancel,
    Change,
    Changed,
    Claim,
    Counted,
    Delete,
    Enqueued,
    Filter,
    Job,
    Kept,
    NewJob,
    Page,
    QueueCounts,
    Report,
    Reprioritise,
    Requeue,
    Reschedule,
    Retention,
    Settlement,
    State,
    WorkerInfo,
)
from dibs.keepable import keepable
from dibs.limits import Limits, Settled
from dibs.outcome import Pulse, Verdict
from dibs.store import CHUNK, Offer
from dibs.stores.bulk import BulkVerbs
from dibs.stores.postgres import rows, schema
from dibs.stores.postgres.connection import connect_listener, connect_pool, speaking_dibs, translate
from dibs.stores.postgres.enqueueing import Enqueueing
from dibs.stores.postgres.flows import FlowVerbs, steps_json
from dibs.stores.postgres.offers import Offers
from dibs.stores.postgres.options import split
from dibs.stores.postgres.places import Places
from dibs.stores.postgres.pool import Pool
from dibs.stores.postgres.queues import QueueVerbs
from dibs.stores.postgres.wakeups import CHANNELS, Heard, Listener, Waker

_CLAIM = f"select {rows.CLAIMED} from dibs.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"  # noqa: S608  # constants
# Nearly all queues have one lane, and the driver takes several times as long for a list of one as for the one.
_CLAIM_IN_LANE = _CLAIM.replace("$6, $7, $8", "array[$6]::smallint[], array[$7]::timestamptz[], array[$8]::uuid[]")
_LOCK = "select dibs.claim_lock($1, $2, $3, may_wait => $4)"
_TAKE = f"select {rows.CLAIMED} from dibs.claim_take($1, $2, $3)"  # noqa: S608
_SETTLE = "select dibs.settle($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_SUCCEED = "select dibs.succeed($1, $2, $3, $4)"
_SUCCEED_ALIKE = "select dibs.succeed_alike($1, $2, $3, $4)"
_SUCCEED_ONE = "select dibs.succeed_one($1, $2, $3, $4)"
_HEARTBEAT = "select dibs.heartbeat($1, $2, $3, $4, $5)"
_REPORTING = "select dibs.heartbeat($1, $2, $3, $4, $5, $6)"
SWEEP_AFTER = 50_000
"""Jobs that may be claimed without a sweep: whoever looks for those that run reads what was claimed since the last."""
CLAIMS_AT_ONCE = 8
"""Claims of one process under way at a time: each walks past what the others are taking, and the more, the further."""
_PUTS_BACK = frozenset({"retry", "released", "snoozed"})
_PULSES = {pulse.value: pulse for pulse in Pulse}
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


class PostgresStore(FlowVerbs, QueueVerbs, BulkVerbs):
    """Jobs in PostgreSQL 13 or newer."""

    def __init__(self, url: str) -> None:
        self._url, self._options = split(url)
        self._limits = Limits(max_bytes=self._options.max_bytes)
        self._places = Places(self._options.look_every)
        self._waker = Waker(self._wake)
        self._enqueueing = Enqueueing(self._fetch, self._places, self._waker)
        self._offers = Offers(self._fetch, self._distrust)
        self._listener = Listener(self._connect_listener, self._due, self._offers.taken_up, self._say)
        self._pool: Any = None
        self._taken = 0  # jobs claimed here since the last sweep
        self._claiming = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self._opening = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str) -> "PostgresStore":
        """A store at ``postgresql://user@host/database``; see ``Options`` for what may follow the ``?``."""
        return cls(url)

    # --- coming and going -----------------------------------------------------------------------------------

    async def setup(self) -> None:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._open_pool()
        async with speaking_dibs(self._url), self._pool.acquire() as connection:
            if self._options.migrate == "auto":
                await schema.up(connection)
            schema.check(await schema.status(connection), self._url)

    async def _open_pool(self) -> Pool:
        return await connect_pool(self._url, self._options)

    async def close(self) -> None:
        if self._pool is not None:
            await self._waker.close()
            await self._listener.close()
            await self._pool.close()
            self._pool = None
            # The next use may be on another loop.
            self._opening, self._claiming = asyncio.Lock(), asyncio.Semaphore(CLAIMS_AT_ONCE)

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        return await self._listener.wait(queues, timeout, worker)

    async def offer(self, queues: Sequence[str], offer: Offer) -> bool:
        async with speaking_dibs(self._url):
            listener = await self._listener.attend()
        return listener is not None and await self._offers.make(listener, queues, offer)

    async def retract(self, worker: str) -> bool:
        return await self._offers.retract(worker)

    def _distrust(self) -> None:
        self._listener.distrust()

    async def _connect_listener(self, heard: Heard) -> Any:
        if self._options.pooler == "transaction":
            return None
        return await connect_listener(self._url, self._options, CHANNELS, heard)

    async def _due(self, queues: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._fetch("select dibs.due($1)", list(queues))}

    async def _wake(self, queues: list[str]) -> None:
        await self._fetch("select dibs.wake($1)", queues)

    async def _say(self, channel: str) -> None:
        await self._fetch("select pg_notify($1, '')", channel)

    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        if self._pool is None:
            await self.setup()
        try:
            found: list[Any] = await self._pool.fetch(statement, *arguments)
        except Exception as problem:  # not speaking_dibs: a context manager is much for the hottest line of all
            translated = translate(problem, self._url)
            if translated is None:
                raise
            raise translated from problem
        return found

    # --- the life of a job ----------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        admitted = rules.admit(jobs, self._limits)
        return await self._enqueueing.enqueue(admitted) if admitted else []

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        known = rules.claimable(queue, worker, limit, lease, tasks)
        if self._taken >= SWEEP_AFTER:
            self._taken = 0
            await self._fetch("select dibs.sweep(0)")
        claiming = self._claim_in_two_phases if self._options.claim == "two-phase" else self._claim_at_once
        async with self._claiming:
            if self._offers.stands(worker):
                claims, _ = await asyncio.gather(
                    claiming(queue, worker, limit, lease, known), self._offers.take_back(worker)
                )
            else:
                claims = await claiming(queue, worker, limit, lease, known)
        self._taken += len(claims)
        return claims

    async def _claim_at_once(
        self, queue: str, worker: str, limit: int, lease: timedelta, tasks: tuple[str, ...] | None
    ) -> list[Claim]:
        lookout, began = self._places.of(queue, tasks), time.monotonic()
        lists, places = lookout.arguments()
        found = await self._fetch(_CLAIM if lists else _CLAIM_IN_LANE, queue, worker, limit, lease, tasks, *places)
        claims = rows.claims(found, queue, worker)
        lookout.claimed(claims, limit, lease, began)
        return claims

    async def _claim_in_two_phases(
        self, queue: str, worker: str, limit: int, lease: timedelta, tasks: tuple[str, ...] | None
    ) -> list[Claim]:
        if self._pool is None:
            await self.setup()
        claims: list[Claim] = []
        before = None
        async with speaking_dibs(self._url), self._pool.acquire() as connection, connection.transaction():
            wanted = limit
            while wanted:
                locked = await connection.fetchval(_LOCK, queue, wanted, tasks, before is None)
                if not locked or locked == before:  # the same again: steps that end as soon as their flow is free
                    break
                before = locked
                taken = await connection.fetch(_TAKE, locked, worker, lease)
                claims += rows.claims(taken, queue, worker)
                # Those that were locked and not taken are over; others may stand behind them.
                wanted = limit - len(claims) if len(taken) < len(locked) else 0
        return claims

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        about = rules.beating(worker, claims, lease, info, self._limits)
        said = rules.reports(reports, claims)
        ids, epochs = [claim.id for claim in claims], [claim.epoch for claim in claims]
        if said:
            texts = {job: msgspec.json.encode(report).decode() for job, report in said.items()}
            heard = [texts.get(job) for job in ids]
            [[pulses]] = await self._fetch(_REPORTING, worker, ids, epochs, lease, about, heard)
        else:
            [[pulses]] = await self._fetch(_HEARTBEAT, worker, ids, epochs, lease, about)
        return [_PULSES[pulse] for pulse in pulses]

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        items = rules.settleable(settlements, self._limits)
        if not items:
            return []
        first = items[0]
        if all(item.kind == "succeeded" and item.worker == first.worker and not item.steps for item in items):
            return await self._succeed(items, first.worker)
        adding = any(item.steps for item in items)
        with self._places.unsettled(adding or any(item.kind in _PUTS_BACK for item in items)):
            [[verdicts]] = await self._fetch(
                _SETTLE,
                [item.id for item in items],
                [item.epoch for item in items],
                [item.worker for item in items],
                [item.kind for item in items],
                [item.result for item in items],
                [item.error for item in items],
                [item.traceback for item in items],
                [item.delay for item in items],
                [steps_json(item.steps) if item.steps else None for item in items] if adding else None,
            )
        return [_VERDICTS[verdict] for verdict in verdicts]

    async def _succeed(self, items: Sequence[Settled], worker: str) -> list[Verdict]:
        """The commonest settle, with as little to send as there is to say."""
        first = items[0]
        if len(items) == 1:
            [[verdict]] = await self._fetch(_SUCCEED_ONE, first.id, first.epoch, worker, first.result)
            return [_VERDICTS[verdict]]
        ids = [item.id for item in items]
        if all(item.epoch == first.epoch and item.result == first.result for item in items):
            [[verdicts]] = await self._fetch(_SUCCEED_ALIKE, ids, first.epoch, worker, first.result)
        else:
            epochs, results = [item.epoch for item in items], [item.result for item in items]
            [[verdicts]] = await self._fetch(_SUCCEED, ids, epochs, worker, results)
        return [Verdict.ACCEPTED] * len(items) if verdicts is None else [_VERDICTS[verdict] for verdict in verdicts]

    async def sweep(self, limit: int = CHUNK, *, not_within: timedelta | None = None) -> int:
        self._taken = 0
        with self._places.unsettled():
            return await self._number("select dibs.sweep($1, $2)", *rules.sweeping(limit, not_within))

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        found = await self._fetch("select * from dibs.get($1)", job)
        return rows.job(found[0]) if found else None

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        filter_ = rows.which(rules.chosen(which, change=False))
        floor: UUID | None = None
        if rules.most(most) is not None:
            [[floor]] = await self._fetch("select dibs.floor_of($1, $2, $3)", filter_, after, most)
        # One more than asked for, to know whether there are more.
        asked = (filter_, after, rules.limit(limit) + 1, floor)
        found = await self._fetch("select * from dibs.find($1, $2, $3, $4)", *asked)
        jobs = tuple(rows.job(row) for row in found[:limit])
        return Page(jobs, jobs[-1].id if len(found) > limit else floor)

    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        if rules.most(most) is None:
            return [rows.counts(row) for row in await self._fetch("select * from dibs.counts()")]
        return [rows.counts(row) for row in await self._fetch("select * from dibs.counts_up_to($1)", most)]

    async def workers(self) -> list[WorkerInfo]:
        return [rows.worker(row) for row in await self._fetch("select * from dibs.workers()")]

    # --- an operator's verbs --------------------------------------------------------------------------------

    async def _count(
        self, which: Filter, states: frozenset[State], after: UUID | None = None, most: int | None = None
    ) -> Counted:
        asked = (rows.which(which), [state.value for state in states], after, most)
        found = await self._number("select dibs.count_matching($1, $2, $3, $4)", *asked)
        return Counted(found, complete=most is None or found < most)

    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        statement, extra = _change_call(change)
        with self._places.unsettled():
            [row] = await self._fetch(statement, rows.which(which), after, limit, *extra)
        return Changed(*row)

    async def prune(self, retention: Retention, limit: int = CHUNK) -> int:
        spans = (retention.succeeded, retention.failed, retention.cancelled)
        pruned = await self._number("select dibs.prune($1, $2, $3, $4)", *spans, rules.limit(limit))
        await self._fetch("select dibs.make_days()")
        return pruned

    async def _number(self, statement: str, *arguments: Any) -> int:
        [[number]] = await self._fetch(statement, *arguments)
        return int(number)

    # --- what is no job -------------------------------------------------------------------------------------

    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        texts = keepable(kind, values, rank, self._limits)
        await self._fetch("select dibs.keep($1, $2, $3, $4)", kind, list(texts), list(texts.values()), rank)

    async def kept(self, kinds: Sequence[str]) -> Kept:
        asked = rules.names(kinds, "kind") or ()
        return rows.kept(await self._fetch("select * from dibs.kept($1)", list(asked)), asked)


def _change_call(change: Change) -> tuple[str, tuple[Any, ...]]:
    """The call of a bulk verb: $1 filter, $2 after, $3 limit, $4 what the verb takes besides."""
    match change:
        case Cancel(force):
            return "select * from dibs.cancel($1, after => $2, max_jobs => $3, force => $4)", (force,)
        case Requeue():
            return "select * from dibs.requeue($1, after => $2, max_jobs => $3)", ()
        case Reschedule(run_at):
            return "select * from dibs.reschedule($1, after => $2, max_jobs => $3, run_at => $4)", (run_at,)
        case Reprioritise(priority):
            return "select * from dibs.reprioritise($1, after => $2, max_jobs => $3, priority => $4)", (priority,)
        case Delete(force):
            return "select * from dibs.delete($1, after => $2, max_jobs => $3, force => $4)", (force,)
