"""Queues in PostgreSQL: their settings and their limits."""

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any
from uuid import UUID

from dibs import limits as rules
from dibs.job import Order
from dibs.scope import Limit, LimitUse, Scope
from dibs.stores.postgres import rows
from dibs.stores.postgres.places import Places

_LIMIT = "select dibs.limit($1, $2, $3, $4, $5, $6, $7)"


class QueueVerbs(ABC):
    """``pause``, ``resume``, ``configure``, ``limit``, ``limits``."""

    _places: Places

    @abstractmethod
    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows that a statement answers."""

    async def pause(self, queue: str) -> None:
        await self._fetch("select dibs.pause($1)", rules.name(queue, "queue"))

    async def resume(self, queue: str) -> None:
        await self._fetch("select dibs.resume($1)", rules.name(queue, "queue"))

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        wanted = rules.order(order)
        rules.ageing(ageing, wanted)
        with self._places.unsettled():
            lifo = wanted is Order.LIFO
            await self._fetch("select dibs.configure($1, $2, $3)", rules.name(queue, "queue"), lifo, ageing)

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        where = rules.scope(scope)
        rules.rank(rank)
        wanted = Limit() if limit is None else rules.limited(limit)
        rate = (None, None) if wanted.rate is None else (wanted.rate.count, wanted.rate.per)
        with self._places.unsettled():
            await self._fetch(_LIMIT, where.queue, where.task, where.each_key, wanted.concurrency, *rate, rank)

    async def limits(self, job: UUID | None = None) -> list[LimitUse]:
        return [rows.use(row) for row in await self._fetch("select * from dibs.limits($1)", job)]
