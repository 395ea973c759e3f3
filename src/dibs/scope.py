"""How many jobs may run at once, and how often one may start: the values that say so."""

from datetime import datetime, timedelta

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so much time, evenly: a token bucket that holds ``count`` and is refilled within ``per``."""

    count: int
    per: timedelta

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
