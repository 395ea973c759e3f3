"""The optimistic claim: look, WATCH, look again, MULTI, EXEC, and no script.

A round looks for the first jobs in the order, watches them and the queue's settings, reads them again, and
takes them in one transaction. If anything that decided it changed in between, the server drops the
transaction, and the next round starts from what is there then: somebody else got ahead, so it goes on with
the next jobs. A job's record changes with everything that happens to it, so watching records is enough; where there
are limits, what they count is watched, too.
"""

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from dibs.clock import span_micros
from dibs.job import Claim
from dibs.stores.redis import values
from dibs.stores.redis.draft import Candidate, Draft, Wanted, group_of, in_order
from dibs.stores.redis.link import Link
from dibs.stores.redis.rooms import Rooms
from dibs.stores.redis.scripts import Script
from dibs.stores.redis.wire import Command, Wire

_PAGE = 1_000
_PASSED = 100
"""How many are looked at in one round where limits may hold some back."""


class Taken(msgspec.Struct, frozen=True):
    """What one round came to; ``last`` if nothing claimable was left."""

    claims: list[Claim]
    last: bool


class _Look(msgspec.Struct):
    """What one round looks for, on which connection, and when."""

    wire: Wire
    wanted: Wanted
    now: int
    settings: bytes
    page: int
    """The most candidates that are worth reading."""


class WatchClaim:
    """Claims without scripts, in the same order and with the same effects as ``claim.lua``."""

    def __init__(self, link: Link, aside: Script) -> None:
        self._link = link
        self._root = link.root
        self._aside = aside

    def clock_command(self) -> Command:
        """What to ask the server for its time."""
        return ("TIME",)

    def read_clock(self, answer: Any) -> int:
        """Its answer, in microseconds."""
        return int(answer[0]) * 1_000_000 + int(answer[1])

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: tuple[str, ...] | None,
    ) -> list[Claim]:
        """See ``Store.claim``; the arguments have passed the limits."""
        known = None if tasks is None else frozenset(task.encode() for task in tasks)
        wanted = Wanted(queue.encode(), worker, span_micros(lease), known)
        claims: list[Claim] = []
        size = limit
        async with self._link.conversation() as wire:
            while len(claims) < limit:
                taken = await self._round(wire, wanted, min(size, limit - len(claims)))
                if taken is None:
                    # Others are after the same jobs: ask for fewer, so that somebody gets through.
                    size = max(1, size // 2)
                    continue
                claims += taken.claims
                if taken.last:
                    break
        return claims

    async def _round(self, wire: Wire, wanted: Wanted, size: int) -> Taken | None:
        """Try to take up to ``size`` jobs; None if somebody got ahead."""
        clock, known, lanes = await self._ask(
            wire,
            self.clock_command(),
            self._settings(wanted.queue),
            ("SMEMBERS", self._root + b"t:" + wanted.queue),
        )
        now, settings, limited = self.read_clock(clock), known[0] or b"", known[1]
        if b"p" in settings:
            return Taken([], last=True)
        rooms = None if limited is None else Rooms(self._root, wanted.queue, now)
        lanes = [lane for lane in lanes if wanted.knows(lane.partition(b"\t")[0])]
        look = _Look(wire, wanted, now, settings, page=size if rooms is None else max(size, _PASSED))
        candidates = await self._candidates(look, lanes, rooms)
        if not candidates:
            return Taken([], last=True)
        draft = Draft(self._root, wanted, size, now, rooms)
        if not await self._watch(wire, draft, candidates, known):
            return None
        *_, done = await self._ask(wire, ("MULTI",), *draft.commands(), ("EXEC",))
        if done is None:
            return None
        for answer in done:
            if isinstance(answer, Exception):
                raise self._link.explain(answer)
        passed = [job.decode() for job in (*draft.ending, *draft.aside)]
        if passed or draft.robbed:
            told = (values.pack(passed), values.pack(draft.robbed))
            await self._ask(wire, ("EVAL", self._aside.source, 1, self._root, wanted.queue, *told))
        exhausted = len(candidates) < look.page and not draft.stale
        return Taken(draft.claims, last=exhausted and not passed)

    async def _candidates(self, look: "_Look", lanes: list[bytes], rooms: Rooms | None) -> list[Candidate]:
        """The first jobs in the order; with limits, all that may have to be passed before one is found."""
        candidates = await self._expired(look)
        if rooms is not None:
            candidates += await self._over(look)
            look.page += len(candidates)
            ask = partial(self._ask, look.wire)
            groups = {lane: (lane.partition(b"\t")[0], lane.partition(b"\t")[2]) for lane in lanes}
            await rooms.look(ask, list(groups.values()), watch=False)
            lanes = [lane for lane in lanes if rooms.open(groups[lane])]
        for lane in lanes:
            candidates += await self._due(look, lane)
        return in_order(candidates, look.settings)[: look.page]

    def _settings(self, queue: bytes) -> Command:
        """Those of the queue, and whether there are any limits."""
        return ("HMGET", self._root + b"settings", queue, "")

    async def _watch(self, wire: Wire, draft: Draft, candidates: list[Candidate], settings: list[Any]) -> bool:
        """Watch all that decides, and draft from what is there now; False if the settings changed."""
        records = [self._root + b"j:" + one.id for one in candidates]
        _, settings_now, found, bodies = await self._ask(
            wire,
            ("WATCH", self._root + b"settings", *records),
            self._settings(draft.wanted.queue),
            ("MGET", *records),
            ("MGET", *(self._root + b"b:" + one.id for one in candidates)),
        )
        if settings_now != settings:
            await self._ask(wire, ("UNWATCH",))
            return False
        known = [None if text is None else values.to_record(text) for text in found]
        steps = [one.id for one, record in zip(candidates, known, strict=True) if record and record.flow]
        inputs = await self._inputs(wire, steps) if steps else {}
        if draft.rooms is not None:
            groups = {group_of(record) for record in known if record}
            await draft.rooms.look(partial(self._ask, wire), groups, watch=True)
        for one, record, body in zip(candidates, known, bodies, strict=True):
            draft.consider(one, record, body, inputs.get(one.id) or {})
        return True

    async def _inputs(self, wire: Wire, steps: list[bytes]) -> dict[bytes, dict[str, Any]]:
        """What steps were given. It changes only with their records, which are watched."""
        [given] = await self._ask(wire, ("MGET", *(self._root + b"i:" + step for step in steps)))
        return values.inputs_of(steps, given)

    async def _ask(self, wire: Wire, *commands: Command) -> list[Any]:
        answers = await wire.ask(*commands)
        for answer in answers:
            if isinstance(answer, Exception):
                await wire.ask(("DISCARD",), ("UNWATCH",))
                explained = self._link.explain(answer)
                await self._link.follow(answer)  # the next claim asks there
                raise explained
        return answers

    # --- looking --------------------------------------------------------------------------------

    async def _expired(self, look: "_Look") -> list[Candidate]:
        """Every running job of the queue whose lease has passed."""
        found: list[Candidate] = []
        for index in (b"l:", b"x:"):
            offset = 0
            while offset % _PAGE == 0:
                key, page = self._root + index + look.wanted.queue, ("LIMIT", offset, _PAGE)
                [leases] = await self._ask(look.wire, ("ZRANGEBYSCORE", key, "-inf", look.now, *page))
                found += (Candidate.from_lease(lease) for lease in leases)
                offset += len(leases) or 1
        return [one for one in found if look.wanted.knows(one.task)]

    async def _over(self, look: "_Look") -> list[Candidate]:
        """Queued jobs whose time to start has passed: they end also where a limit closes their lane."""
        key = self._root + b"y:" + look.wanted.queue
        [jobs] = await self._ask(look.wire, ("ZRANGEBYSCORE", key, "-inf", look.now, "LIMIT", 0, _PAGE))
        if not jobs:
            return []
        [texts] = await self._ask(look.wire, ("MGET", *(self._root + b"j:" + job for job in jobs)))
        found: list[Candidate] = []
        for job, text in zip(jobs, texts, strict=True):
            record = values.to_record(text) if text else None
            if record and int(record.run_at) <= look.now and look.wanted.knows(record.task.encode()):
                place = (record.priority + record.run_at).encode() + job
                found.append(Candidate(place, record.task.encode(), expired=False))
        return found

    async def _due(self, look: "_Look", lane: bytes) -> list[Candidate]:
        """The first due jobs of one lane, stepping from priority to priority over future ones."""
        key, time = self._root + b"o:" + look.wanted.queue + b"\t" + lane, b"%018d" % look.now
        lifo, ageing = b"l" in look.settings, bool(values.ageing(look.settings))
        found: list[Candidate] = []
        start = b"-"
        while ageing or len(found) < look.page:
            [head] = await self._ask(look.wire, ("ZRANGEBYLEX", key, start, "+", "LIMIT", 0, 1))
            if not head:
                break
            priority = head[0][:5]
            low, high = b"[" + priority, b"[" + priority + time + b"\xff"
            # In a queue that ages, any priority may have the first of all.
            limit = ("LIMIT", 0, look.page if ageing else look.page - len(found))
            [places] = await self._ask(
                look.wire,
                ("ZREVRANGEBYLEX", key, high, low, *limit) if lifo else ("ZRANGEBYLEX", key, low, high, *limit),
            )
            found += (Candidate(place, lane, expired=False) for place in places)
            start = b"(" + priority + b"\xff"
        return found
