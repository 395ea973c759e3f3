"""Reading samples back: one point every five minutes, and what each task and queue did in all of them."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dibs.store import Store
from dibs.telemetry import slots
from dibs.telemetry.slots import KEPT_FOR, SLOT, Places
from dibs.telemetry.tally import Figures, Place, summed

CHUNK = 100
"""How many slots are read in one call."""


class Point(msgspec.Struct, frozen=True):
    """What all workers did in one slot."""

    at: datetime
    """When it began."""
    places: dict[Place, Figures]
    """By queue and task."""

    @property
    def tasks(self) -> dict[str, Figures]:
        return _sum(self.places, lambda place: place[1])

    @property
    def total(self) -> Figures:
        return _sum(self.places, lambda _: "all").get("all", Figures())


class Depth(msgspec.Struct, frozen=True):
    """What was in the queues in one minute."""

    at: datetime
    queues: dict[str, dict[str, float]]
    """By queue: due, scheduled, waiting, running, and for how many seconds the oldest has been due."""

    def total(self, what: str = "due") -> float:
        """Of all queues; ``oldest`` is the largest."""
        values = [each.get(what, 0.0) for each in self.queues.values()]
        return max(values, default=0.0) if what == "oldest" else sum(values)


class Series(msgspec.Struct, frozen=True):
    """What is known of a span of time: a point for each slot, also for those in which nothing happened."""

    since: datetime
    until: datetime
    now: datetime
    """The store's clock when it was read. The last slot may not be over yet."""
    points: list[Point]
    depths: list[Depth]

    @property
    def tasks(self) -> dict[str, Figures]:
        """What each task did in all of it, by name: ``figures.ran.quantile(0.99)``."""
        return _sum(self._places(), lambda place: place[1])

    @property
    def queues(self) -> dict[str, Figures]:
        return _sum(self._places(), lambda place: place[0])

    @property
    def total(self) -> Figures:
        return _sum(self._places(), lambda _: "all").get("all", Figures())

    def _places(self) -> Places:
        return slots.together(point.places for point in self.points)


async def samples(
    store: Store,
    since: datetime | timedelta = timedelta(hours=1),
    until: datetime | None = None,
    *,
    queue: str | None = None,
    task: str | None = None,
) -> Series:
    """What workers did since then, or in so much time until now; of one queue or one task, if named.

    There is nothing from before the last 48 hours.
    """
    now = (await store.kept(())).now
    end = min(until or now, now)
    start = max(end - since if isinstance(since, timedelta) else since, now - KEPT_FOR)
    first, last = slots.begin(start), slots.begin(end)
    wanted = [first + SLOT * number for number in range((last - first) // SLOT + 1)] if first <= last else []
    points, depths = list[Point](), list[Depth]()
    for at in range(0, len(wanted), CHUNK):
        some = wanted[at : at + CHUNK]
        kept = (await store.kept([kind(slot) for slot in some for kind in (slots.sample, slots.depth)])).values
        points += [Point(slot, _read(kept[slots.sample(slot)], queue, task)) for slot in some]
        depths += [depth for slot in some for depth in _depths(kept[slots.depth(slot)], queue)]
    return Series(start, end, now, points, sorted(depths, key=lambda depth: depth.at))


def _read(kept: Mapping[str, Mapping[str, Any]], queue: str | None, task: str | None) -> Places:
    found = slots.together(slots.unpack(packed) for packed in kept.values())
    return {
        place: figures for place, figures in found.items() if queue in (None, place[0]) and task in (None, place[1])
    }


def _depths(kept: Mapping[str, Mapping[str, Any]], queue: str | None) -> list[Depth]:
    found = []
    for name, queues in kept.items():
        at = slots.named(name)
        if at is not None:
            found.append(Depth(at, {each: dict(queues[each]) for each in queues if queue in (None, each)}))
    return found


def _sum(places: Mapping[Place, Figures], by: Callable[[Place], str]) -> dict[str, Figures]:
    return summed((by(place), figures) for place, figures in places.items())
