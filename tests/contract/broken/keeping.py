"""Stores that keep what is no job in a wrong way."""

from collections.abc import Mapping
from typing import Any

from dibs.stores.memory import MemoryStore
from tests.contract.broken.base import caught_by


@caught_by("test_kept::test_a_lower_rank_does_not_replace_a_higher_one")
class RankIsIgnored(MemoryStore):
    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        await super().keep(kind, dict.fromkeys(values))
        await super().keep(kind, values, rank=rank)


@caught_by("test_kept::test_what_cannot_be_kept_is_refused_and_nothing_of_the_call_is_kept")
class HalfKept(MemoryStore):
    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        for name, value in values.items():
            await super().keep(kind, {name: value}, rank=rank)
