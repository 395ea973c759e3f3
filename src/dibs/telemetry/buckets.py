"""Times in fixed buckets: what many workers counted can be added up, and percentiles read off."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

import msgspec

_STEPS = (1.0, 1.7, 2.5, 3.5, 5.0, 7.0)
"""Six a decade, about evenly apart on a logarithmic scale: a percentile is off by less than that."""

BOUNDS: tuple[float, ...] = tuple(float(f"{step}e{power}") for power in range(-4, 5) for step in _STEPS)
"""Seconds, from a tenth of a millisecond to most of a day: a time belongs to the first that is not below it."""

COARSE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Some of them, for Prometheus, where each is a series of its own."""

_PLACES = tuple(BOUNDS.index(bound) for bound in COARSE)


class Times(msgspec.Struct):
    """How long things took: how many in each bucket (the last one has no bound), and all of them together."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def add_like(self, some: Sequence[float], count: int) -> None:
        """So many more, of which these are some."""
        counts, (weight, left) = self.counts, divmod(count, len(some))
        for seconds in some:
            counts[bisect_left(BOUNDS, seconds)] += weight
        counts[bisect_left(BOUNDS, some[0])] += left
        self.seconds += sum(some) * count / len(some)

    @property
    def count(self) -> int:
        return sum(self.counts)

    @classmethod
    def total(cls, some: Sequence["Times"]) -> "Times":
        """All of them together, at least one: in one go, because a page adds up thousands."""
        return cls(
            list(map(sum, zip(*(each.counts for each in some), strict=True))), sum(each.seconds for each in some)
        )

    def minus(self, other: "Times") -> "Times":
        counts = [one - less for one, less in zip(self.counts, other.counts, strict=True)]
        return Times(counts, max(0.0, self.seconds - other.seconds))

    def quantile(self, share: float) -> float | None:
        """The time that this share of them did not exceed, about; None if there were none.

        Within its bucket it is found as if those in there lay evenly.
        """
        if not (count := self.count):
            return None
        up_to = list(accumulate(self.counts))
        wanted = max(1, ceil(count * share))
        place = bisect_left(up_to, wanted)
        low = BOUNDS[place - 1] if place else 0.0
        high = BOUNDS[place] if place < len(BOUNDS) else low
        return low + (high - low) * (wanted - up_to[place] + self.counts[place]) / self.counts[place]

    def mean(self) -> float | None:
        return self.seconds / count if (count := self.count) else None

    # --- as JSON: only buckets that have something --------------------------------------------------------------

    def pack(self) -> dict[str, Any]:
        filled = {str(place): count for place, count in enumerate(self.counts) if count}
        return {"seconds": round(self.seconds, 6), "counts": filled}

    @classmethod
    def unpack(cls, packed: Any) -> "Times":
        """What ``pack`` made. Buckets that nobody knows are left out: another version may have written them."""
        times = cls()
        if isinstance(packed, Mapping):
            times.seconds = float(packed.get("seconds", 0.0))
            for place, count in dict(packed.get("counts", {})).items():
                if place.isdecimal() and int(place) < len(times.counts):
                    times.counts[int(place)] = int(count)
        return times


def coarse(times: Times) -> list[tuple[str, float]]:
    """How many took no longer than each of the coarse bounds, as Prometheus wants it."""
    up_to = list(accumulate(times.counts))
    found = [(f"{bound:g}", float(up_to[place])) for bound, place in zip(COARSE, _PLACES, strict=True)]
    return [*found, ("+Inf", float(up_to[-1]))]
