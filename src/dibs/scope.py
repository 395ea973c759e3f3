"""How many jobs may run at once, and how often one may start: the values that say so."""

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600}
_UNITS |= {"d": 86_400, "day": 86_400}
_TEXT = re.compile(rf"\s*(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})\s*")


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so much time, evenly: a token bucket that holds ``count`` and is refilled within ``per``."""

    count: int
    per: timedelta
    """A number means seconds."""

    if TYPE_CHECKING:

        def __init__(self, count: int, per: timedelta | float) -> None: ...

    def __post_init__(self) -> None:
        per: object = self.per
        if isinstance(per, int | float) and not isinstance(per, bool):
            msgspec.structs.force_setattr(self, "per", timedelta(seconds=per))

    @classmethod
    def read(cls, text: str) -> "Rate | None":
        """``100/min``, ``5/s``, ``1000/h``, ``10/30s``; None if it is no rate."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        try:
            return cls(int(found[1]), timedelta(seconds=float(found[2] or 1) * _UNITS[found[3]]))
        except OverflowError:
            return None

    def __str__(self) -> str:
        seconds = self.per.total_seconds()
        for word, size in (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1), ("ms", 0.001)):
            if seconds >= size and (seconds / size).is_integer():
                many = round(seconds / size)
                return f"{self.count}/{word if many == 1 else f'{many}{word}'}"
        return f"{self.count}/{seconds:g}s"

    @property
    def apart(self) -> int:
        """Microseconds between two starts, once the bucket is empty."""
        return -(-(self.per // timedelta(microseconds=1)) // self.count)


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim has to respect. None: no limit of that kind."""

    concurrency: int | None = None
    """At most so many hold a valid lease at any moment; 0 lets none start."""
    rate: Rate | None = None
    """At most so many are claimed in any such time."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs share a limit: those of a queue, those of a task in whatever queue, or, with ``each_key``, those of a
    queue that have the same ``limit_key``: every key by itself, and jobs without one not at all."""

    queue: str | None = None
    task: str | None = None
    each_key: bool = False


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is set, and how far it is used, at one instant."""

    scope: Scope
    limit: Limit
    rank: int
    key: str | None = None
    """Whose use it is, where each key has its own."""
    running: int | None = None
    """How many hold a valid lease; None where each key has its own and none was asked for."""
    next_start: datetime | None = None
    """When the rate lets another job start; None if at once."""
