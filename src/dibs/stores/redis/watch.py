"""The optimistic claim: look, WATCH, look again, MULTI, EXEC, and no script.

A round looks for the first jobs in the order, watches them and the queue's settings, reads them again, and
takes them in one transaction. If anything that decided it changed in between, the server drops the
transaction, and the next round starts from what is there then: somebody else got ahead, so it goes on with
the next jobs. A job's record changes with everything that happens to it, so watching records is enough.
"""

from datetime import timedelta
from typing import Any

import msgspec

from dibs.clock import span_micros
from dibs.job import Claim
from dibs.stores.redis import values
from dibs.stores.redis.draft import Candidate, Draft, Wanted, in_order
from dibs.stores.redis.link import Command, Link, Talk
from dibs.stores.redis.scripts import Script

_PAGE = 1_000


class Taken(msgspec.Struct, frozen=True):
    """What one round came to; ``last`` if nothing claimable was left."""

    claims: list[Claim]
    last: bool


class WatchClaim:
    """Claims without scripts, in the same order and with the same effects as ``claim.lua``."""

    def __init__(self, link: Link, sweep: Script) -> None:
        self._link = link
        self._root = link.root
        self._sweep = sweep

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
        async with self._link.conversation() as talk:
            while len(claims) < limit:
                taken = await self._round(talk, wanted, min(size, limit - len(claims)))
                if taken is None:
                    # Others are after the same jobs: ask for fewer, so that somebody gets through.
                    size = max(1, size // 2)
                    continue
                claims += taken.claims
                if taken.last:
                    break
        return claims

    async def _round(self, talk: Talk, wanted: Wanted, size: int) -> Taken | None:
        """Try to take up to ``size`` jobs; None if somebody got ahead."""
        clock, settings, tasks = await self._ask(
            talk,
            self.clock_command(),
            ("HGET", self._root + b"settings", wanted.queue),
            ("SMEMBERS", self._root + b"t:" + wanted.queue),
        )
        now, settings = self.read_clock(clock), settings or b""
        if b"p" in settings:
            return Taken([], last=True)
        lifo = b"l" in settings
        candidates = await self._expired(talk, wanted, now)
        key = self._root + b"o:" + wanted.queue + b"\t"
        for task in tasks:
            if wanted.tasks is None or task in wanted.tasks:
                candidates += await self._due(talk, key + task, now, size, lifo)
        candidates = in_order(candidates, lifo)[:size]
        if not candidates:
            return Taken([], last=True)
        draft = Draft(self._root, wanted, now)
        if not await self._watch(talk, draft, candidates, settings):
            return None
        *_, done = await self._ask(talk, ("MULTI",), *draft.commands(), ("EXEC",))
        if done is None:
            return None
        for answer in done:
            if isinstance(answer, Exception):
                raise self._link.explain(answer)
        if draft.ending is not None:
            await self._ask(talk, ("EVAL", self._sweep.source, 1, self._root, 1, draft.ending, wanted.queue))
        return Taken(draft.claims, last=len(candidates) < size and not draft.stale and draft.ending is None)

    async def _watch(self, talk: Talk, draft: Draft, candidates: list[Candidate], settings: bytes) -> bool:
        """Watch all that decides, and draft from what is there now; False if the settings changed."""
        queue = draft.wanted.queue
        records = [self._root + b"j:" + one.id for one in candidates]
        _, settings_now, found, bodies = await self._ask(
            talk,
            ("WATCH", self._root + b"settings", *records),
            ("HGET", self._root + b"settings", queue),
            ("MGET", *records),
            ("MGET", *(self._root + b"b:" + one.id for one in candidates)),
        )
        if (settings_now or b"") != settings:
            await self._ask(talk, ("UNWATCH",))
            return False
        known = [None if text is None else values.to_record(text) for text in found]
        steps = [one.id for one, record in zip(candidates, known, strict=True) if record and record.flow]
        inputs = await self._inputs(talk, steps) if steps else {}
        for one, record, body in zip(candidates, known, bodies, strict=True):
            draft.consider(one, record, body, inputs.get(one.id) or {})
        return True

    async def _inputs(self, talk: Talk, steps: list[bytes]) -> dict[bytes, dict[str, Any]]:
        """What steps were given. It changes only with their records, which are watched."""
        [given] = await self._ask(talk, ("MGET", *(self._root + b"i:" + step for step in steps)))
        return values.inputs_of(steps, given)

    async def _ask(self, talk: Talk, *commands: Command) -> list[Any]:
        answers = await talk(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                await talk((("DISCARD",), ("UNWATCH",)))
                raise self._link.explain(answer)
        return answers

    # --- looking --------------------------------------------------------------------------------

    async def _expired(self, talk: Talk, wanted: Wanted, now: int) -> list[Candidate]:
        """Every running job of the queue whose lease has passed."""
        found: list[Candidate] = []
        for index in (b"l:", b"x:"):
            offset = 0
            while offset % _PAGE == 0:
                key, page = self._root + index + wanted.queue, ("LIMIT", offset, _PAGE)
                [leases] = await self._ask(talk, ("ZRANGEBYSCORE", key, "-inf", now, *page))
                found += (Candidate.from_lease(lease) for lease in leases)
                offset += len(leases) or 1
        return [one for one in found if wanted.tasks is None or one.task in wanted.tasks]

    async def _due(self, talk: Talk, key: bytes, now: int, size: int, lifo: bool) -> list[Candidate]:
        """The first due jobs of one task, stepping from priority to priority over future ones."""
        task, time = key.rpartition(b"\t")[2], b"%018d" % now
        found: list[Candidate] = []
        start = b"-"
        while len(found) < size:
            [head] = await self._ask(talk, ("ZRANGEBYLEX", key, start, "+", "LIMIT", 0, 1))
            if not head:
                break
            priority = head[0][:5]
            low, high = b"[" + priority, b"[" + priority + time + b"\xff"
            limit = ("LIMIT", 0, size - len(found))
            [places] = await self._ask(
                talk,
                ("ZREVRANGEBYLEX", key, high, low, *limit) if lifo else ("ZRANGEBYLEX", key, low, high, *limit),
            )
            found += (Candidate(place, task, expired=False) for place in places)
            start = b"(" + priority + b"\xff"
        return found
