"""Limits: set, taken away and told. What they do is in ``lua/room.lua``."""

from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros, span_micros
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.stores.redis import values
from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import LAYOUT, Script

_WIDTH = 4
"""How many values ``limits.lua`` answers for one limit."""


class Stored(msgspec.Struct, array_like=True):
    """A limit as ``room.lua`` knows it: -1 and 0 stand for None."""

    rank: int
    concurrency: int
    count: int
    per: int
    apart: int

    @property
    def rate(self) -> Rate | None:
        return Rate(self.count, values.span(self.per)) if self.count else None

    def limit(self) -> Limit:
        return Limit(concurrency=None if self.concurrency < 0 else self.concurrency, rate=self.rate)


to_stored = msgspec.msgpack.Decoder(Stored).decode


class Limiting:
    """The verbs ``limit`` and ``limits``."""

    _link: Link
    _scripts: dict[str, Script]

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        field = _field(rules.scope(scope))
        rules.rank(rank)
        wanted = None if limit is None else rules.limited(limit)
        script, counted = self._scripts["limit"], 0
        told = ("", "") if wanted is None else (rank, _store(wanted, rank))
        while not await self._link.call(script, field, *told, counted, LAYOUT):
            await self._count_running(field[2:])
            counted = 1

    async def _count_running(self, task: str) -> None:
        """The jobs of the task that run already."""
        left = b""
        while True:
            left = await self._link.call(self._scripts["fill"], task, left)
            if not left:
                return

    async def limits(self, job: UUID | None = None) -> list[LimitUse]:
        now, key, *found = await self._link.call(self._scripts["limits"], "" if job is None else job.hex)
        rows = (found[at : at + _WIDTH] for at in range(0, len(found), _WIDTH))
        uses = [_to_use(int(now), key.decode(), row) for row in rows]
        return sorted((use for use in uses if use.rank >= 0), key=_place)


def _field(scope: Scope) -> str:
    if scope.queue is None:
        return f"t:{scope.task}"
    return f"{'k' if scope.each_key else 'q'}:{scope.queue}"


def _scope(field: str) -> Scope:
    kind, _, name = field.partition(":")
    return Scope(task=name) if kind == "t" else Scope(queue=name, each_key=kind == "k")


def _store(limit: Limit, rank: int) -> bytes:
    rate = limit.rate
    most = -1 if limit.concurrency is None else limit.concurrency
    return values.pack(
        Stored(rank, most, 0, 0, 0)
        if rate is None
        else Stored(rank, most, rate.count, span_micros(rate.per), rate.apart)
    )


def _to_use(now: int, limit_key: str, row: list[Any]) -> LimitUse:
    field, text, running, full_at = row
    stored, scope = to_stored(text), _scope(field.decode())
    opens_at = 0 if stored.rate is None else rules.opens_at(stored.rate, int(float(full_at)))
    return LimitUse(
        scope=scope,
        limit=stored.limit(),
        rank=stored.rank,
        key=limit_key or None if scope.each_key else None,
        running=None if running == b"" else int(running),
        next_start=from_micros(opens_at) if opens_at > now else None,
    )


def _place(use: LimitUse) -> tuple[bool, str, bool]:
    scope = use.scope
    return scope.queue is None, scope.queue or scope.task or "", scope.each_key
