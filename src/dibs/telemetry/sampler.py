"""Samples: what workers did, for the charts of the dashboard.

Each worker writes what it counted in this slot of five minutes, if it counted anything; by the store's clock, which
comes with the look for asks that it makes anyway. Slots that are over are added up over workers, and forgotten after
two days. Any worker does that, none leads: doing it twice does no harm.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from dibs.errors import StoreUnavailable
from dibs.job import UNFINISHED, Kept, QueueCounts, State
from dibs.limits import BULK
from dibs.store import Store
from dibs.telemetry import asks, slots
from dibs.telemetry.asks import ASK
from dibs.telemetry.slots import INDEX, KEPT_FOR, SLOT, TOGETHER, Places
from dibs.telemetry.tally import Tally

EVERY = 10.0
"""Seconds between two looks: as often as a worker shows itself."""
OVER = 2 * SLOT
"""A slot that began so long ago is over: nobody writes it any more."""
AT_ONCE = 12
"""How many old slots one look tidies at most."""
QUEUES = 500
"""How many queues a line of depths names at most: the deepest."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Sampler:
    """What one worker writes about itself, and what it reads that is meant for it."""

    def __init__(self, name: str, store: Store, tally: Tally, stop: Callable[[], None]) -> None:
        self._name = name
        self._store = store
        self._tally = tally
        self._stop = stop
        self._began = monotonic()
        self._slot: datetime | None = None
        self._indexed: datetime | None = None
        self._before: Places = {}
        """What had been counted when the slot began."""
        self._written: Places = {}
        """What had been counted when it was last written."""
        self._measured_at: datetime | None = None
        self._moves = 0
        """How many attempts had begun or ended when the queues were last measured."""
        self._may_count = True
        self._empty = True
        """Whether nothing was in them then."""

    async def look(self) -> None:
        """Hear whether somebody asks us to stop; write what there is to write. Nothing, if nothing happened."""
        kinds = [ASK] if self._slot is None else [ASK, slots.depth(self._slot)]
        kept = await self._store.kept(kinds)
        await self._hear(kept)
        if await self._write(kept.now):
            await tidy(self._store, kept.now)
        else:
            await self._measure(kept)

    async def leave(self) -> None:
        """The worker ends: write what it did last."""
        self._tally.catch_up()
        if slots.since(self._tally.places(), self._written):
            await self._write((await self._store.kept(())).now)

    async def _hear(self, kept: Kept) -> None:
        heard = kept.values[ASK]
        if self._name in heard:
            # By the store's clock. One that was asked before it began has nothing to answer for.
            began = kept.now - timedelta(seconds=monotonic() - self._began)
            if asks.stops(heard[self._name], began):
                self._stop()
        await asks.forget(self._store, heard, self._name, kept.now)

    async def _write(self, now: datetime) -> bool:
        """Write what was done in this slot, if there is something new; answers whether the slot is new to us."""
        self._tally.catch_up()
        slot, places = slots.begin(now), self._tally.places()
        new = slot != self._slot
        if new:
            self._slot, self._before = slot, self._written
        if slots.since(places, self._written):
            await self._index(slot)
            done = slots.since(places, self._before)
            await self._store.keep(slots.sample(slot), {self._name: slots.pack(done)})
            self._written = places
        return new

    async def _measure(self, kept: Kept) -> None:
        """How much is in the queues: every minute while we work, else in every slot; whoever comes first."""
        assert self._slot is not None
        minute = kept.now.astimezone(UTC).replace(second=0, microsecond=0)
        moves = sum(figures.moves for figures in self._written.values())
        due = minute if moves != self._moves else self._slot
        if not self._may_count or (self._measured_at is not None and self._measured_at >= due):
            return
        self._measured_at, self._moves = minute, moves
        there = kept.values[slots.depth(self._slot)].get(slots.name(minute))
        depths = await self._depths(kept.now) if there is None else there
        if depths is None:
            return
        was_empty = self._empty
        self._empty = not any(any(each.values()) for each in depths.values())
        if there is None and not (self._empty and was_empty):
            await self._index(self._slot)
            await self._store.keep(slots.depth(self._slot), {slots.name(minute): depths})

    async def _depths(self, now: datetime) -> dict[str, Any] | None:
        try:
            return depth_of(await self._store.counts(), now)
        except StoreUnavailable:
            raise
        except Exception:  # a role that only works may not count, in PostgreSQL: another worker's may
            self._may_count = False
            return None

    async def _index(self, slot: datetime) -> None:
        if self._indexed != slot:
            await self._store.keep(INDEX, {slots.name(slot): {}})
            self._indexed = slot


def depth_of(counts: Sequence[QueueCounts], now: datetime) -> dict[str, dict[str, float]]:
    """What is in the queues, as it is kept: those with the most, without what is nothing."""
    deepest = sorted(counts, key=lambda each: -sum(each.states.get(state, 0) for state in UNFINISHED))
    found = {}
    for each in deepest[:QUEUES]:
        queued = each.states.get(State.QUEUED, 0)
        figures = {
            "due": queued - each.scheduled,
            "scheduled": each.scheduled,
            "waiting": each.states.get(State.WAITING, 0),
            "running": each.states.get(State.RUNNING, 0),
            "oldest": max(0.0, (now - each.oldest_due).total_seconds()) if each.oldest_due else 0.0,
        }
        found[each.queue] = {name: value for name, value in figures.items() if value}
    return found


async def tidy(store: Store, now: datetime) -> None:
    """Forget slots that are too old, and add up over workers those that are over; a few of them."""
    index = (await store.kept((INDEX,))).values[INDEX]
    found = sorted((slots.named(name) or _LONG_AGO, name) for name in index)
    old = [name for slot, name in found if slot <= now - KEPT_FOR]
    over = [name for slot, name in found if now - KEPT_FOR < slot <= now - OVER and not index[name].get("together")]
    for name in old[:AT_ONCE]:
        await _forget(store, name)
    for name in over[:AT_ONCE]:
        await _add_up(store, name)


async def _forget(store: Store, name: str) -> None:
    kinds = (f"sample:{name}", f"depth:{name}")
    kept = (await store.kept(kinds)).values
    for kind in kinds:
        names = list(kept[kind])
        for at in range(0, len(names), BULK):
            await store.keep(kind, dict.fromkeys(names[at : at + BULK]))
    await store.keep(INDEX, {name: None})


async def _add_up(store: Store, name: str) -> None:
    """Write what all have done under one name, and theirs no more, in one stroke.

    Two that do so at once write the same.
    """
    kind = f"sample:{name}"
    kept = (await store.kept((kind,))).values[kind]
    if set(kept) - {TOGETHER}:
        together = slots.together(slots.unpack(packed) for packed in list(kept.values())[: BULK - 1])
        gone = dict.fromkeys(list(kept)[: BULK - 1])
        await store.keep(kind, {**gone, TOGETHER: slots.pack(together)})
    await store.keep(INDEX, {name: {"together": True}})
