"""How samples lie in the store: by slots of five minutes of the store's clock, each a kind of its own."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from dibs.telemetry.tally import Figures, Place, summed

SLOT = timedelta(minutes=5)
KEPT_FOR = timedelta(hours=48)
INDEX = "samples"
"""The kind that names the slots that have something; without it nobody could find what to forget."""
TOGETHER = "(all workers)"
"""The name of what all workers of a slot that is over have written, added up."""
TASKS = 500
"""How many places a sample names at most; the quietest of more are added up."""
OTHERS: Place = ("(others)", "(others)")

Places = dict[Place, Figures]


def begin(moment: datetime) -> datetime:
    """When the slot of that moment began."""
    whole = moment.astimezone(UTC).replace(second=0, microsecond=0)
    return whole - timedelta(minutes=whole.minute % 5)


def name(slot: datetime) -> str:
    return f"{slot.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def named(text: str) -> datetime | None:
    """The slot of that name; None if it is no such name."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def sample(slot: datetime) -> str:
    """The kind of what workers did in a slot, by worker."""
    return f"sample:{name(slot)}"


def depth(slot: datetime) -> str:
    """The kind of how much was in the queues in a slot, by minute."""
    return f"depth:{name(slot)}"


def pack(places: Mapping[Place, Figures]) -> dict[str, Any]:
    """Figures as what is kept: by queue, then by task."""
    packed: dict[str, Any] = {}
    for (queue, task), figures in _few(places).items():
        packed.setdefault(queue, {})[task] = figures.pack()
    return packed


def unpack(packed: Mapping[str, Any]) -> Places:
    return {
        (queue, task): Figures.unpack(figures)
        for queue, tasks in packed.items()
        if isinstance(tasks, Mapping)
        for task, figures in tasks.items()
        if isinstance(figures, Mapping)
    }


def together(samples: Iterable[Mapping[Place, Figures]]) -> Places:
    """All of them added up."""
    return summed(chain.from_iterable(each.items() for each in samples))


def since(places: Mapping[Place, Figures], before: Mapping[Place, Figures]) -> Places:
    """What has been counted since ``before``: places with nothing new are left out."""
    found = {place: figures.minus(before[place]) if place in before else figures for place, figures in places.items()}
    return {place: figures for place, figures in found.items() if figures.moves}


def _few(places: Mapping[Place, Figures]) -> Places:
    if len(places) <= TASKS:
        return dict(places)
    busiest = sorted(places, key=lambda place: -places[place].moves)
    named = {place: place for place in busiest[: TASKS - 1]}
    return summed((named.get(place, OTHERS), places[place]) for place in busiest)
