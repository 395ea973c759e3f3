"""What is kept that is no job."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dibs import limits as rules
from dibs.clock import Clock
from dibs.job import Kept
from dibs.keepable import keepable
from dibs.limits import Limits


class Keeping:
    """The part of the memory store that knows nothing of jobs."""

    _lock: threading.Lock
    _clock: Clock
    _limits: Limits

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, dict[str, tuple[int, str]]] = {}

    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        texts = keepable(kind, values, rank, self._limits)
        with self._lock:
            there = self._values.setdefault(kind, {})
            for name, text in texts.items():
                if text is None:
                    there.pop(name, None)
                elif name not in there or there[name][0] <= rank:
                    there[name] = (rank, text)

    async def kept(self, kinds: Sequence[str]) -> Kept:
        asked = rules.names(kinds, "kind") or ()
        with self._lock:
            texts = {kind: sorted(self._values.get(kind, {}).items()) for kind in asked}
            now = self._clock()
        return Kept(
            now, {kind: {name: msgspec.json.decode(text) for name, (_, text) in found} for kind, found in texts.items()}
        )
