"""Finding, counting and changing many jobs: short scripts, called until they have seen enough."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros
from dibs.job import (
    Cancel,
    Change,
    Changed,
    Counted,
    Delete,
    Filter,
    Job,
    Order,
    Page,
    QueueCounts,
    Reprioritise,
    Requeue,
    Reschedule,
    State,
    WorkerInfo,
)
from dibs.stores.bulk import BulkVerbs
from dibs.stores.redis import values
from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import Script

_STEP = 500
"""The most jobs that one script hands out or changes."""
_EXAMINED = 4_000
"""How many jobs one script looks at, at most; see scan.lua."""
_COUNTED = tuple(State)


def _scripts(most: int | None) -> int | None:
    """How many scripts look at so many jobs; None: as many as it takes."""
    return None if most is None else -(-most // _EXAMINED)


class Looking(BulkVerbs):
    """The verbs that walk through jobs; the rest of the store is in ``store.py``."""

    _link: Link
    _scripts: dict[str, Script]

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        rules.chosen(which, change=False)
        rules.limit(limit)
        scripts = _scripts(rules.most(most))
        jobs: list[Job] = []
        # One more than asked for tells whether there is another page.
        walk = _Walk(which, frozenset(State), after)
        while walk.going and len(jobs) <= limit:
            if scripts == 0:
                return Page(tuple(jobs), walk.behind)
            step = min(limit + 1 - len(jobs), _STEP)
            answer = await self._link.call(self._scripts["find"], *walk.place(), step)
            walk.go_on(answer[0])
            found = values.to_jobs(answer[1:])
            jobs += found
            if scripts is not None and len(found) < step:  # it ended because it had looked at enough
                scripts -= 1
        return Page(tuple(jobs[:limit]), jobs[limit - 1].id if len(jobs) > limit else None)

    async def _count(
        self, which: Filter, states: frozenset[State], after: UUID | None = None, most: int | None = None
    ) -> Counted:
        if after is None and which == Filter(queues=which.queues, states=which.states, everything=which.everything):
            return Counted(await self._count_by_sizes(which, states))
        count, scripts = 0, _scripts(most)
        walk = _Walk(which, states, after)
        while walk.going:
            if scripts == 0:
                return Counted(count, complete=False)
            go_on, more = await self._link.call(self._scripts["count"], *walk.place())
            walk.go_on(go_on)
            count += more
            scripts = None if scripts is None else scripts - 1
        return Counted(count)

    async def _count_by_sizes(self, which: Filter, states: frozenset[State]) -> int:
        """By queue and state the sizes of sets are known: nothing is walked through."""
        wanted = states if which.states is None else states.intersection(which.states)
        return sum(
            one.states[state]
            for one in await self.counts()
            if which.queues is None or one.queue in which.queues
            for state in wanted
        )

    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        verb, value = _verb(change)
        matched = count = 0
        last, also = b"", set[bytes]()
        walk = _Walk(which, change.states, after)
        while walk.going and matched < limit:
            # Steps of one flow are changed in one script: in two, a worker could see the flow half begun again.
            step = min(limit - matched, _STEP if which.flows is None else limit)
            before = values.pack([job.decode() for job in also]) if also else b""
            answer = await self._link.call(self._scripts["change"], *walk.place(), step, verb, value, before)
            walk.go_on(answer[0])
            matched, count, last = matched + answer[1], count + answer[2], answer[3] or last
            also.update(answer[4:])
        return Changed(count, values.to_id(last) if matched == limit else None)

    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        rules.most(most)  # the sizes of sets are known: there is nothing to be saved
        found: list[QueueCounts] = []
        async for row in self._tallies():
            tally = _tally(*row)
            if any(tally.states.values()) or row[1]:
                found.append(tally)
        return sorted(found, key=lambda one: one.queue)

    async def _tallies(self) -> AsyncIterator[list[Any]]:
        left = b""
        while True:
            answer = await self._link.call(self._scripts["counts"], left)
            for at in range(1, len(answer), 10):
                yield answer[at : at + 10]
            left = answer[0]
            if not left:
                return

    async def workers(self) -> list[WorkerInfo]:
        seen, info, held = map(_pairs, await self._link.call(self._scripts["workers"]))
        running = {name: int(count) for name, count in held.items() if int(count) > 0}
        return [
            WorkerInfo(
                name=name,
                seen_at=from_micros(int(float(seen[name]))) if name in seen else None,
                running=running.get(name, 0),
                info=msgspec.json.decode(info[name]) if name in info else {},
            )
            for name in sorted(seen.keys() | running.keys())
        ]


class _Walk:
    """Where a walk through the jobs stands: what to tell the next script."""

    def __init__(self, which: Filter, states: frozenset[State], after: UUID | None) -> None:
        self._which, self._states = which, states
        self._after = "" if after is None else after.hex
        self._ids: list[str] | None = None
        if which.ids is not None:
            ids = {job.hex for job in which.ids}
            self._ids = sorted((job for job in ids if not after or job < self._after), reverse=True)
        asked = (which.queues, which.tasks, which.states, which.workers, which.keys, which.flows, self._ids)
        self.going = () not in map(_sized, asked)

    def place(self) -> tuple[bytes, str]:
        """The first two arguments of every script that walks."""
        ids = None if self._ids is None else self._ids[:_STEP]
        return values.filter_of(self._which, self._states, ids), self._after

    @property
    def behind(self) -> UUID | None:
        """The last job that was looked at."""
        return UUID(self._after) if self._after else None

    def go_on(self, last: bytes) -> None:
        """Take note of how far the script came; nothing means to the end."""
        self._after = last.decode()
        if self._ids is not None:
            seen = self._ids.index(self._after) + 1 if last else _STEP
            self._ids = self._ids[seen:]
            self.going = bool(self._ids)
        else:
            self.going = bool(last)


def _sized(values_asked: Any) -> tuple[Any, ...] | None:
    return None if values_asked is None else tuple(values_asked)


def _verb(change: Change) -> tuple[str, str]:
    match change:
        case Cancel(force):
            return ("force" if force else "cancel"), ""
        case Requeue():
            return "requeue", ""
        case Reschedule(run_at):
            return "reschedule", values.stamp(run_at)
        case Reprioritise(priority):
            return "reprioritise", values.rank(priority)
        case Delete():
            return "delete", ""


def _tally(queue: bytes, settings: bytes, *numbers_and_oldest: Any) -> QueueCounts:
    *numbers, scheduled, oldest = numbers_and_oldest
    ageing = values.ageing(settings)
    return QueueCounts(
        queue=queue.decode(),
        paused=b"p" in settings,
        order=Order.LIFO if b"l" in settings else Order.FIFO,
        ageing=values.span(ageing) if ageing else None,
        states=dict(zip(_COUNTED, numbers, strict=True)),
        scheduled=scheduled,
        oldest_due=from_micros(int(oldest)) if oldest else None,
    )


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    return {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}
