"""What the broken stores have in common."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from dibs.job import Claim, Report
from dibs.outcome import Pulse
from dibs.stores.memory import MemoryStore
from dibs.testing.labs.memory import MemoryLab

S = TypeVar("S", bound=type[MemoryStore])
CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {}
"""Every broken store, and the tests (module::name) that must fail on it."""


def caught_by(*tests: str) -> Callable[[S], S]:
    def note(store: S) -> S:
        CAUGHT_BY[store] = tests
        return store

    return note


class Wanted(NamedTuple):
    """What a claim asks for."""

    queue: str
    worker: str
    limit: int
    lease: timedelta
    tasks: Collection[str] | None = None


class WrongClaim(MemoryStore):
    """To be told what its claims do instead."""

    async def claim(
        self, queue: str, worker: str, limit: int, lease: timedelta, tasks: Collection[str] | None = None
    ) -> list[Claim]:
        return await self.wrong(Wanted(queue, worker, limit, lease, tasks))

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        return await self.right(wanted)

    async def right(self, wanted: Wanted) -> list[Claim]:
        return await super().claim(*wanted)


class Beat(NamedTuple):
    """What a heartbeat says."""

    worker: str
    claims: Sequence[Claim]
    lease: timedelta
    info: Mapping[str, Any] | None
    reports: Mapping[UUID, Report] | None


class WrongHeartbeat(MemoryStore):
    """To be told what its heartbeats do instead."""

    async def heartbeat(
        self, worker: str, claims: Sequence[Claim], lease: timedelta, info: Any = None, reports: Any = None
    ) -> list[Pulse]:
        return await self.wrong(Beat(worker, claims, lease, info, reports))

    async def wrong(self, beat: Beat) -> list[Pulse]:
        return await self.right(beat)

    async def right(self, beat: Beat) -> list[Pulse]:
        return await super().heartbeat(*beat)


def lab_of(store: type[MemoryStore]) -> type[MemoryLab]:
    """A lab in which that store is tested."""

    class BrokenLab(MemoryLab):
        race_jobs = 3_000

        def __init__(self) -> None:
            super().__init__()
            self._store = store(clock=self._clock)

    return BrokenLab
