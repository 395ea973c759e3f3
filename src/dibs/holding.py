"""What limits hold back at this moment: which of them, and who has the room that is missing."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dibs.job import Filter, Job, State
from dibs.limiting import OPERATOR, has_no_room, is_full
from dibs.scope import LimitUse
from dibs.store import CHUNK, Store
from dibs.wording import when

NAMED = 3
"""So many of those who have the room are named."""
KEYS = 20
"""Of so many keys it is found out whether they have room; jobs of others count as if they had."""


class HeldBack(msgspec.Struct, frozen=True):
    """The limits that keep a job from starting, in words."""

    text: str
    until: datetime | None
    """When the rates let it start, if nothing else holds it back."""


async def held_back(store: Store, job: Job, now: datetime) -> HeldBack | None:
    """Which limits hold a due job back, and by whom they are used up; None if it has room under all."""
    uses = [use for use in await store.limits(job.id) if has_no_room(use)]
    if not uses:
        return None
    full = [use for use in uses if is_full(use)]
    parts = [await _occupied(store, use, now) for use in full]
    later = [(use.next_start, use) for use in uses if use.next_start is not None]
    parts += [f"{_whose(use)} starts {use.limit.rate}, the next one {when(at, now)}{_set_by(use)}" for at, use in later]
    return HeldBack(f"a limit holds it back: {'; and '.join(parts)}", None if full else max(at for at, _ in later))


async def _occupied(store: Store, use: LimitUse, now: datetime) -> str:
    most = use.limit.concurrency
    if not most:
        return f"{_whose(use)} may run none{_set_by(use)}"
    holders = await _holders(store, use, now)
    named = [f"job {job.id} on worker {job.worker}" for job in holders[:NAMED]]
    more = (use.running or 0) - len(named)
    text = f"{_whose(use)} runs {use.running:,} of {most:,} at once{_set_by(use)}"
    return f"{text}: {', '.join(named)}{f' and {more:,} others' if more > 0 else ''}" if named else text


async def _holders(store: Store, use: LimitUse, now: datetime) -> Sequence[Job]:
    """Those that hold the room, as far as a look shows them."""
    scope = use.scope
    which = Filter(
        queues=None if scope.queue is None else (scope.queue,),
        tasks=None if scope.task is None else (scope.task,),
        states=(State.RUNNING,),
    )
    found = (await store.find(which, None, CHUNK)).jobs
    return [
        job
        for job in found
        if job.locked_until is not None and job.locked_until > now and (not scope.each_key or job.limit_key == use.key)
    ]


def _whose(use: LimitUse) -> str:
    if use.scope.task is not None:
        return f"task {use.scope.task}"
    return f"key {use.key} of queue {use.scope.queue}" if use.scope.each_key else f"queue {use.scope.queue}"


def _set_by(use: LimitUse) -> str:
    return " (set by an operator)" if use.rank >= OPERATOR else ""


class Room:
    """Which of the due jobs of a queue limits hold back now."""

    def __init__(self, store: Store, queue: str, uses: Sequence[LimitUse]) -> None:
        self._store = store
        own = [use.scope for use in uses if has_no_room(use)]
        self._none = any(scope.queue == queue and not scope.each_key for scope in own)
        self._full_tasks = {scope.task for scope in own if scope.task is not None}
        self._by_key = any(use.scope.queue == queue and use.scope.each_key for use in uses)
        self._keys: dict[str, bool] = {}

    @classmethod
    async def of(cls, store: Store, queue: str) -> "Room":
        """As it is now."""
        return cls(store, queue, await store.limits())

    async def has(self, job: Job) -> bool:
        """Whether every limit that the job comes under has room."""
        if self._none or job.task in self._full_tasks:
            return False
        key = job.limit_key
        if not self._by_key or key is None:
            return True
        if key not in self._keys and len(self._keys) < KEYS:
            uses = await self._store.limits(job.id)
            self._keys[key] = not any(has_no_room(use) for use in uses if use.scope.each_key)
        return self._keys.get(key, True)
