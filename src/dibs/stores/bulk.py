"""The operator's verbs, once for all stores: each is a ``Change`` that a store applies to one chunk of jobs."""

from abc import ABC, abstractmethod
from datetime import datetime
from uuid import UUID

from dibs import limits as rules
from dibs.job import Cancel, Change, Changed, Counted, Delete, Filter, Reprioritise, Requeue, Reschedule, State
from dibs.store import CHUNK


class BulkVerbs(ABC):
    """Checks what an operator asked for and hands it on. The promises stand in ``dibs.store``."""

    _limits: rules.Limits

    @property
    def max_bytes(self) -> int:
        """The longest arguments, and the longest result, as JSON in UTF-8."""
        return self._limits.max_bytes

    @abstractmethod
    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        """Apply the change to the first ``limit`` jobs behind ``after`` that match and are in ``change.states``."""

    @abstractmethod
    async def _count(
        self, which: Filter, states: frozenset[State], after: UUID | None = None, most: int | None = None
    ) -> Counted:
        """How many jobs behind ``after`` match and are in one of the states; with ``most`` see ``Store.count``."""

    async def count(self, which: Filter, *, most: int | None = None) -> Counted:
        return await self._count(rules.chosen(which, change=False), frozenset(State), most=rules.most(most))

    async def _apply(self, which: Filter, change: Change, dry_run: bool, after: UUID | None, limit: int) -> Changed:
        rules.chosen(which, change=True)
        rules.limit(limit)
        if dry_run:
            return Changed((await self._count(which, change.states, after)).count)
        return await self._change(which, change, after, limit)

    async def cancel(
        self,
        which: Filter,
        *,
        force: bool = False,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        return await self._apply(which, Cancel(force), dry_run, after, limit)

    async def requeue(
        self, which: Filter, *, dry_run: bool = False, after: UUID | None = None, limit: int = CHUNK
    ) -> Changed:
        return await self._apply(which, Requeue(), dry_run, after, limit)

    async def reschedule(
        self,
        which: Filter,
        run_at: datetime,
        *,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        change = Reschedule(rules.moment(run_at, "run_at"))
        return await self._apply(which, change, dry_run, after, limit)

    async def reprioritise(
        self,
        which: Filter,
        priority: int,
        *,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        change = Reprioritise(rules.priority(priority))
        return await self._apply(which, change, dry_run, after, limit)

    async def delete(
        self,
        which: Filter,
        *,
        force: bool = False,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        return await self._apply(which, Delete(force), dry_run, after, limit)
