"""Changes of many jobs: counted first, confirmed, done in the background in small steps, with progress and a trail."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from dibs.admin import Admin
from dibs.clock import Clock
from dibs.errors import DibsError, Refused, StoreUnavailable
from dibs.http.service import search
from dibs.http.service.audit import Audit, trim
from dibs.http.service.data import Batch, BatchGiven, BatchState, JobFilter, Verb
from dibs.http.service.pace import CHUNK, Pace
from dibs.ids import new_id
from dibs.job import Cancel, Change, Changed, Counted, Delete, Filter, Reprioritise, Requeue, Reschedule
from dibs.limits import chosen, clean
from dibs.redaction import Redaction, text_without_secrets
from dibs.store import Store

BATCH = "batch"
STOP = "batch stop"
KEPT = 100
"""The newest batches that are kept to be looked at."""
AT_ONCE = 8
"""So many batches run at once in one process."""
SHARE = 0.08
"""The share of its time in which a batch works; the rest of it, it leaves the store to others."""
LONGEST_REST = 2.0
UNCONFIRMED = 100
"""More jobs than that have to be confirmed."""
COUNTED = 100_000
"""How many jobs are looked at to count those that match a text."""
TOLD_EVERY = 1.0
"""Seconds between two times that the progress is put into the store."""
LOST = timedelta(seconds=60)
"""A batch that nobody told about for so long has no server any more."""
PATIENCE = 60.0
"""Seconds for which a batch waits for a store that is away."""

OpenStore = Callable[[], Awaitable[Store]]


class Unconfirmed(DibsError):
    """So many jobs are only changed by somebody who says that he knows how many there are."""

    def __init__(self, count: int, confirmed: int | None) -> None:
        said = "send confirm with that number" if confirmed is None else f"confirm says {confirmed:,}: count again"
        super().__init__(f"this changes {count:,} jobs: {said}")
        self.count = count


class TooMany(DibsError):
    """There is too much going on already."""


def change_of(given: BatchGiven) -> Change:
    """The store's verb; Refused if something about it is missing or does not belong to it."""
    if given.run_at is not None and given.verb is not Verb.RESCHEDULE:
        raise Refused(f"run_at belongs to reschedule, not to {given.verb}")
    if given.priority is not None and given.verb is not Verb.REPRIORITISE:
        raise Refused(f"priority belongs to reprioritise, not to {given.verb}")
    if given.force and given.verb not in (Verb.CANCEL, Verb.DELETE):
        raise Refused(f"force belongs to cancel and delete, not to {given.verb}")
    match given.verb:
        case Verb.CANCEL:
            return Cancel(given.force)
        case Verb.DELETE:
            return Delete(given.force)
        case Verb.REQUEUE:
            return Requeue()
        case Verb.RESCHEDULE:
            if given.run_at is None:
                raise Refused("reschedule needs run_at")
            return Reschedule(given.run_at)
        case Verb.REPRIORITISE:
            if given.priority is None:
                raise Refused("reprioritise needs priority")
            return Reprioritise(given.priority)


def in_words(which: JobFilter, everything: bool) -> str:
    """Which jobs a filter means, for the trail."""
    told = []
    for name, value in msgspec.to_builtins(which).items():
        if isinstance(value, list | tuple) and value:
            more = f" and {len(value) - 5} more" if len(value) > 5 else ""
            told.append(f"{name} {', '.join(map(str, value[:5]))}{more}")
        elif isinstance(value, str) and value:
            told.append(f"{name} {value}")
    return clean("; ".join(told) or ("every job" if everything else "nothing"), 1_000)


class _Live:
    """A batch that runs here."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.stop = False
        self.told_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None


class Batches:
    """Starts batches and knows how they are, also those of other servers on the same store."""

    def __init__(
        self,
        store: OpenStore,
        clock: Clock,
        redaction: Callable[[], Awaitable[Redaction]],
        audit: Audit,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._redaction = redaction
        self._audit = audit
        self._changed = changed
        self._live: dict[UUID, _Live] = {}
        self.share = SHARE

    # --- asking ---------------------------------------------------------------------------------------------

    async def change(self, given: BatchGiven, actor: str, *, most: int | None = None) -> Batch:
        """Count, or begin. Unconfirmed if it is too much to do unasked; Refused if it makes no sense.

        ``most``: whoever would rather see that there are many than wait for how many counts up to about so many.
        """
        change, redaction = change_of(given), await self._redaction()
        store = await self._store()
        counted, common = await self._count(store, given, change, redaction, most)
        now = self._clock()
        batch = Batch(
            id=new_id(),
            verb=given.verb,
            about=clean(f"{in_words(given.which, given.everything)}{common}", 1_000),
            state=BatchState.COUNTED if given.dry_run else BatchState.RUNNING,
            count=counted.count,
            complete=counted.complete,
            done=0,
            actor=actor,
            reason=clean(given.reason, 200),
            started_at=now,
            updated_at=now,
            finished_at=now if given.dry_run else None,
            error=None,
        )
        if given.dry_run:
            return batch
        _check_confirmed(counted, given.confirm)
        if sum(live.batch.state is BatchState.RUNNING for live in self._live.values()) >= AT_ONCE:
            raise TooMany(f"{AT_ONCE} batches are running: wait for one, or stop it")
        await self._begin(store, batch, given, change, redaction)
        return batch

    async def get(self, id: UUID) -> Batch | None:
        """A batch of this server, or of another one."""
        live = self._live.get(id)
        return live.batch if live is not None else {each.id: each for each in await self.all()}.get(id)

    async def all(self) -> list[Batch]:
        """The newest first."""
        found = await (await self._store()).kept([BATCH])
        known = {batch.id: batch for value in found.values[BATCH].values() if (batch := _read(value)) is not None}
        for id, batch in known.items():
            if batch.state is BatchState.RUNNING and id not in self._live and found.now - batch.updated_at > LOST:
                known[id] = msgspec.structs.replace(batch, state=BatchState.LOST)
        known |= {id: live.batch for id, live in self._live.items()}
        return [known[id] for id in sorted(known, reverse=True)]

    async def stop(self, id: UUID, actor: str) -> Batch | None:
        """Let a batch end after the step that it is in. None if there is none."""
        batch = await self.get(id)
        if batch is None or batch.state is not BatchState.RUNNING:
            return batch
        live = self._live.get(id)
        if live is None:
            await (await self._store()).keep(STOP, {str(id): {"by": actor}})
        else:
            live.stop = True
        await self._audit.write(actor, "stop batch", f"{batch.verb} {batch.about}", batch=id)
        return batch

    def running(self) -> list[Batch]:
        """Those of this server."""
        return [live.batch for live in self._live.values()]

    async def wait(self, id: UUID) -> Batch | None:
        """Until a batch of this server has ended."""
        live = self._live.get(id)
        if live is not None and live.task is not None:
            await asyncio.wait([live.task])
        return await self.get(id)

    async def close(self) -> None:
        """Stop what runs here, and tell so."""
        tasks = [live.task for live in self._live.values() if live.task is not None and not live.task.done()]
        for live in self._live.values():
            live.stop = True
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=3)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # --- counting -------------------------------------------------------------------------------------------

    async def _count(
        self, store: Store, given: BatchGiven, change: Change, redaction: Redaction, most: int | None
    ) -> tuple[Counted, str]:
        """How many jobs it would change; and, of a group of failures, what they have in common."""
        matches, which = search.matcher(given.which), search.store_filter(given.which, everything=given.everything)
        if matches is None:
            return await store.count(_narrowed(chosen(which, change=True), change), most=most), ""
        count, looked, common = 0, 0, ""
        async for jobs, rest in search.walk(store, _narrowed(which, change)):
            found = [each for job in jobs if matches(each := redaction.job(job))]
            if found and given.which.group and not common:
                common = f": {found[0].task}, {search.group_of(found[0])[1].partition(chr(10))[0]}"
            count += len(found)
            looked += len(jobs)
            if looked >= COUNTED:
                return Counted(count, complete=rest is None), common
        return Counted(count), common

    # --- doing ----------------------------------------------------------------------------------------------

    async def _begin(self, store: Store, batch: Batch, given: BatchGiven, change: Change, redaction: Redaction) -> None:
        live = _Live(batch)
        await store.keep(BATCH, {str(batch.id): msgspec.to_builtins(batch)})
        await self._audit.write(
            batch.actor, f"begin {batch.verb}", batch.about, batch.count, reason=batch.reason, batch=batch.id
        )
        ended = [id for id, each in self._live.items() if each.batch.state is not BatchState.RUNNING]
        for id in ended[: max(0, len(self._live) - KEPT)]:
            del self._live[id]
        self._live[batch.id] = live
        live.task = asyncio.create_task(self._run(live, given, change, redaction), name=f"dibs-batch-{batch.id}")

    async def _run(self, live: _Live, given: BatchGiven, change: Change, redaction: Redaction) -> None:
        state, error = BatchState.FAILED, "the server was stopped"
        try:
            async for count in self._steps(given, change, redaction):
                self._told(live, done=live.batch.done + count)
                await self._tell(live)
                if live.stop:
                    break
            state, error = (BatchState.STOPPED if live.stop else BatchState.DONE), ""
        except DibsError as problem:
            error = text_without_secrets(str(problem))
        finally:
            self._told(live, state=state, error=error or None, finished_at=self._clock())
            await self._end(live)

    async def _steps(self, given: BatchGiven, change: Change, redaction: Redaction) -> AsyncIterator[int]:
        """Do it step by step; answers how many each changed. What is created meanwhile is left alone."""
        store = await self._store()
        admin = Admin(store, self._clock)
        which = _until((await store.kept(())).now, search.store_filter(given.which, everything=given.everything))
        matches = search.matcher(given.which)
        if matches is not None:
            started = time.monotonic()
            async for jobs, _ in search.walk(store, _narrowed(which, change)):
                await self._rest(time.monotonic() - started)
                ids = tuple(job.id for job in jobs if matches(redaction.job(job)))
                for at in range(0, len(ids), CHUNK):
                    yield (await self._step(admin, Filter(ids=ids[at : at + CHUNK]), change, None, Pace())).count
                started = time.monotonic()
            return
        after, pace = None, Pace()
        while True:
            changed = await self._step(admin, which, change, after, pace)
            yield changed.count
            after = changed.after
            if after is None:
                return

    async def _step(self, admin: Admin, which: Filter, change: Change, after: UUID | None, pace: Pace) -> Changed:
        """One step, and the pause after it in which others have the store to themselves."""
        until, pause = time.monotonic() + PATIENCE, 0.1
        while True:
            started = time.monotonic()
            try:
                changed = await admin.apply(which, change, after=after, limit=pace.chunk)
                break
            except StoreUnavailable:  # doing a step again is harmless: what it did is not found again
                if started >= until:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
        took = time.monotonic() - started
        pace.learn(changed.count, took)
        await self._rest(took)
        return changed

    async def _rest(self, worked: float) -> None:
        await asyncio.sleep(min(LONGEST_REST, worked * (1 - self.share) / self.share))

    # --- telling --------------------------------------------------------------------------------------------

    def _told(self, live: _Live, **now: Any) -> None:
        live.batch = msgspec.structs.replace(live.batch, updated_at=self._clock(), **now)
        self._changed()

    async def _tell(self, live: _Live) -> None:
        """Put the progress into the store, and see whether somebody there wants it stopped; not too often."""
        if time.monotonic() - live.told_at < TOLD_EVERY:
            return
        live.told_at = time.monotonic()
        with suppress(StoreUnavailable):
            store, name = await self._store(), str(live.batch.id)
            await store.keep(BATCH, {name: msgspec.to_builtins(live.batch)})
            live.stop = live.stop or name in (await store.kept([STOP])).values[STOP]

    async def _end(self, live: _Live) -> None:
        batch = live.batch
        action = f"{batch.state} {batch.verb}"
        with suppress(StoreUnavailable):
            store = await self._store()
            await store.keep(BATCH, {str(batch.id): msgspec.to_builtins(batch)})
            await store.keep(STOP, {str(batch.id): None})
            reason = batch.error or batch.reason
            await self._audit.write(batch.actor, action, batch.about, batch.done, reason=reason, batch=batch.id)
            await trim(store, BATCH, KEPT)


def _check_confirmed(counted: Counted, confirmed: int | None) -> None:
    """Where nobody counted to the end, whoever confirms at all was told so."""
    count = counted.count
    if counted.complete and count <= UNCONFIRMED:
        return
    if confirmed is None or (counted.complete and abs(confirmed - count) > max(10, count // 10)):
        raise Unconfirmed(count, confirmed)


def _until(now: datetime, which: Filter) -> Filter:
    """Only jobs that were there already, by the store's own clock."""
    end = now + timedelta(microseconds=1)
    before = end if which.created_before is None else min(end, which.created_before)
    return msgspec.structs.replace(which, created_before=before)


def _narrowed(which: Filter, change: Change) -> Filter:
    """Only jobs that the verb applies to."""
    states = change.states if which.states is None else change.states.intersection(which.states)
    return msgspec.structs.replace(which, states=tuple(sorted(states)))


def _read(value: object) -> Batch | None:
    try:
        return msgspec.convert(value, Batch)
    except msgspec.ValidationError:
        return None
