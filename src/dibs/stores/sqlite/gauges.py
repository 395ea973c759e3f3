"""How much room one limit leaves while one claim is at work."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from dibs.scope import Rate
from dibs.stores.sqlite.connect import Row

UNLIMITED = 1 << 62


class Bounds(NamedTuple):
    """A row of limit.sql."""

    concurrency: int | None
    starts: int | None
    per: int
    rank: int

    @property
    def rate(self) -> Rate | None:
        return None if self.starts is None else Rate(self.starts, timedelta(microseconds=self.per))


class Gauge:
    """What one limit leaves during one claim: for each limit key, or, under the empty key, for all it is about.

    At first it goes by how many jobs are known to be held, of which some may have ended. Once what is running was
    counted it is ``sure``.
    """

    __slots__ = (
        "_counted",
        "_full_at",
        "_held",
        "_most",
        "_now",
        "_taken",
        "_written",
        "free",
        "kind",
        "name",
        "rate",
        "sure",
    )

    def __init__(self, kind: str, name: str, bounds: Bounds, now: int) -> None:
        self.kind = kind
        self.name = name
        self.rate = bounds.rate
        self.free: dict[str, int] = {}
        self.sure = bounds.concurrency is None
        self._most = UNLIMITED if bounds.concurrency is None else bounds.concurrency
        self._now = now
        self._held: dict[str, int] = {}
        self._full_at: dict[str, int] = {}
        self._taken: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        """Of those that were taken: whoever counts what is running counts them, too."""
        self._counted: tuple[Mapping[str, int], Mapping[str, int]] | None = None

    def read(self, keys: Iterable[str], held: Mapping[str, int], full_at: Mapping[str, int]) -> None:
        """Told of keys that it does not know: how many jobs are held at most, when the buckets are full again."""
        running, held = self._counted or (held, held)
        for key in keys:
            self._held[key] = held.get(key, 0)
            self._full_at[key] = full_at.get(key, 0)
            self.free[key] = self._room(key, running.get(key, 0))

    def count(self, running: Mapping[str, int], held: Mapping[str, int]) -> None:
        """Told of all keys how many jobs are running, and how many are held."""
        self.sure = True
        self._counted = (running, held)
        written = self._written
        self._held = {key: held.get(key, 0) - written[key] for key in self.free}
        self.free = {key: self._room(key, running.get(key, 0) - written[key]) - self._taken[key] for key in self.free}

    def wrote(self) -> None:
        """What was taken so far is running."""
        self._written = self._taken.copy()

    def _room(self, key: str, running: int) -> int:
        room = self._most - running
        if self.rate is None:
            return room
        owed = -(-max(0, self._full_at[key] - self._now) // self.rate.apart)
        return min(room, self.rate.count - owed)

    def without(self, counts: Mapping[str, int]) -> dict[str, int]:
        """What would be left for these keys; less than nothing if there is no room."""
        free = self.free
        return {key: free[key] - count for key, count in counts.items()}

    def take(self, counts: Mapping[str, int], left: Mapping[str, int] | None = None) -> None:
        """Take room, told what is left then, if that is known already."""
        self.free.update(self.without(counts) if left is None else left)
        self._taken.update(counts)

    def used(self) -> list[Row]:
        """How many are held at most, for keep_use.sql. A claim that took nothing has nothing to write."""
        taken = self._taken
        keys = self._held if self._counted and taken else taken
        return [(self.kind, self.name, key, self._held[key] + taken[key]) for key in keys]

    def poured(self) -> list[Row]:
        """When the buckets that were taken from are full again, for pour.sql."""
        if self.rate is None:
            return []
        apart, full_at, now = self.rate.apart, self._full_at, self._now
        return [
            (self.kind, self.name, key, max(full_at[key], now) + count * apart) for key, count in self._taken.items()
        ]
