"""What is kept that is no job."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros
from dibs.job import Kept
from dibs.keepable import keepable
from dibs.limits import Limits
from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import LAYOUT, Script

_RANK = 16
"""Digits in front of each value."""


class Keeping:
    """The two verbs that know nothing of jobs."""

    _link: Link
    _limits: Limits
    _scripts: dict[str, Script]

    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        texts = keepable(kind, values, rank, self._limits)
        pairs = [part for name, text in texts.items() for part in (name, text or "")]
        await self._link.call(self._scripts["keep"], kind, f"{rank:0{_RANK}}", LAYOUT, *pairs)

    async def kept(self, kinds: Sequence[str]) -> Kept:
        asked = rules.names(kinds, "kind") or ()
        now, *found = await self._link.call(self._scripts["kept"], *asked)
        return Kept(from_micros(int(now)), dict(zip(asked, map(_values, found), strict=True)))


def _values(flat: list[bytes]) -> dict[str, dict[str, Any]]:
    return {flat[at].decode(): msgspec.json.decode(flat[at + 1][_RANK:]) for at in range(0, len(flat), 2)}
