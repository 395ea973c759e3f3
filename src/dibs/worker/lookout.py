"""Which queue to ask next, and when to ask one again that had nothing."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from math import ceil
from random import uniform
from typing import Any

import msgspec

from dibs.ending import end
from dibs.errors import StoreUnavailable
from dibs.job import Claim
from dibs.store import Offer, Offering, Store
from dibs.worker.outage import Backoff, Weather

FALLBACK = 10.0
"""Seconds after which a queue is asked again that nobody called for."""
GATHER = 0.005
"""Seconds in which several queues that run dry together are put into one wait."""
LOOK = 0.02
"""Seconds that a wait is given to look for itself before it is given up."""
FIRST_SULK, LONGEST_SULK = 0.01, 0.25
"""How long a queue is left alone that was called for and had nothing for us: jobs of tasks that we do not know, or
others were faster. It may be called for all the time."""
FIRST_RELUCTANCE, LONGEST_RELUCTANCE = 0.05, 1.0
"""After how long an offer is made again that a store did not take. In the end, not before the next wait."""
LATE = 0.25
"""Seconds that a claim may be on its way to whoever has just retracted the offer that it was made by."""


class Lane:
    """One queue, as this worker sees it."""

    __slots__ = ("asked", "called", "dry", "name", "named", "rests_until", "served", "sulk", "weight")

    def __init__(self, name: str, weight: int) -> None:
        self.name = name
        self.weight = weight
        self.dry = False
        """The last claim brought nothing, and nobody called since."""
        self.called = False
        """Asked next because a ``wait`` has ended."""
        self.named = False
        """There were due jobs when last looked at, and none for us: a limit may hold them back."""
        self.asked = 0
        """How often claims of ours had ended when it was last asked."""
        self.served = 0.0
        """Jobs claimed by weight: the lane with the least is next."""
        self.sulk = Backoff(FIRST_SULK, LONGEST_SULK)
        self.rests_until = 0.0


class Lookout:
    """Strict order for a list of queues, shares for a mapping of queues to weights.

    A queue that had nothing is not asked again before ``Store.wait`` names it or ten seconds have passed; ``awake`` is
    called when one is worth asking again.
    """

    def __init__(
        self,
        queues: Sequence[str] | Mapping[str, int],
        store: Store,
        weather: Weather,
        awake: Callable[[], None],
        offer: Callable[[], Offer | None] = lambda: None,
    ) -> None:
        weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 1)
        self._weighted = isinstance(queues, Mapping)
        self._lanes = {name: Lane(name, weight) for name, weight in weights.items()}
        self._store = store
        self._offering = store if isinstance(store, Offering) else None
        self._weather = weather
        self._changed = asyncio.Event()
        self._awake = awake
        self._offer = offer
        self._offered: Offer | None = None
        """The one that stands, as far as we know."""
        self._leaving: asyncio.Future[None] | None = None
        self._handed = asyncio.Event()
        """A claim has come since it was made."""
        self._reluctance = Backoff(FIRST_RELUCTANCE, LONGEST_RELUCTANCE)
        self._frees = 0

    # --- asking ---------------------------------------------------------------------------------------------

    def pick(self, room: int) -> tuple[str, int] | None:
        """The queue to ask now, and for how many jobs at most; None if all are dry."""
        wet = [lane for lane in self._lanes.values() if not lane.dry]
        if not wet:
            return None
        lane = min(wet, key=lambda each: each.served) if self._weighted else wet[0]
        lane.asked = self._frees
        self._offered = None  # a claim takes it back
        if not self._weighted:
            return lane.name, room
        share = ceil(room * lane.weight / sum(each.weight for each in wet))
        return lane.name, share

    def was_called(self, queue: str) -> bool:
        """Whether the queue was dry until now, and a ``wait`` has named it."""
        return self._lanes[queue].called

    def brought(self, queue: str, count: int) -> None:
        """What a claim of the queue brought."""
        lane = self._lanes[queue]
        lane.served += count / lane.weight
        if count:
            lane.called = lane.named = False
            lane.sulk.reset()
            lane.rests_until = 0.0
        elif not (lane.named and lane.asked != self._frees):  # or there may be room by now
            if lane.called:
                lane.rests_until = time.monotonic() + lane.sulk.next()
            lane.dry = True
            self._changed.set()

    def ask_all(self) -> None:
        """Take every queue for worth asking."""
        for lane in self._lanes.values():
            self._wet(lane)

    def freed(self) -> None:
        """Claims of ours have ended, so there may be room under a limit: ask where due jobs are that we did not get."""
        self._frees += 1
        for lane in self._lanes.values():
            if lane.dry and lane.named:
                self._wet(lane)

    def _wet(self, lane: Lane) -> None:
        if lane.dry:
            # One that was away long has no claim on what it missed.
            others = [each.served for each in self._lanes.values() if not each.dry]
            lane.served = max(lane.served, min(others, default=lane.served))
            lane.dry = False
            self._awake()

    # --- offering -------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Nothing runs any more: time for an offer, if there is nothing to ask either, where a store takes offers."""
        if self._offering is None or self._offered is not None or not all(lane.dry for lane in self._lanes.values()):
            return
        if self._leaving is not None and not self._leaving.done():
            return  # it would take back the next one
        offer = self._offer()
        if offer is not None:
            self._handed.clear()
            self._offered = msgspec.structs.replace(offer, take=partial(self._take, offer.take))
            self._leaving = asyncio.ensure_future(self._leave(self._offering, self._offered))

    async def _leave(self, store: Offering, offer: Offer) -> None:
        try:
            if not await store.offer(list(self._lanes), offer):
                self._offered = None
                self._refused()
                return
            self._reluctance.reset()
            if self._offered is not offer:  # we were called meanwhile, and our claim may have come before it
                await store.retract(offer.worker)
        except Exception:  # the wait, too, will say so
            self._offered = None

    def _refused(self) -> None:
        """Try again soon, a few times: a store that has just begun to listen may take no offer yet."""
        pause = self._reluctance.next()
        if pause < LONGEST_RELUCTANCE / 2:
            asyncio.get_running_loop().call_later(pause, self.idle)

    def _take(self, take: Callable[[Claim, float], None], claim: Claim, asked_at: float) -> None:
        self._offered = None
        self._handed.set()
        lane = self._lanes[claim.queue]
        lane.served += 1 / lane.weight
        take(claim, asked_at)

    async def retract(self) -> None:
        """Have no more claims made for us. One that was made just before may be on its way: it is waited for."""
        offered, self._offered = self._offered, None
        if self._leaving is not None:
            await asyncio.wait([self._leaving], timeout=LATE)
        if offered is None or self._offering is None:
            return
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(LATE):
                if not await self._offering.retract(offered.worker):
                    await self._handed.wait()

    # --- waiting --------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Wait on the dry queues, for ever; one call for all of them."""
        backoff, never = Backoff(), asyncio.Event()
        while True:
            await self._changed.wait()
            await self._gather()
            self._changed.clear()
            dry = [lane for lane in self._lanes.values() if lane.dry]
            if not dry:
                continue
            try:
                await self._wait(dry)
            except Exception as problem:
                self._weather.failed("waits", problem)
                self._changed.set()
                await backoff.pause(never)
            else:
                self._weather.fine("waits")
                backoff.reset()

    async def _gather(self) -> None:
        if not all(lane.dry for lane in self._lanes.values()):
            await asyncio.sleep(GATHER)

    async def _wait(self, dry: list[Lane]) -> None:
        """Until one of them is named, or the fallback has passed, or other queues are to be waited for."""
        now = time.monotonic()
        awaited = [lane for lane in dry if lane.rests_until <= now]
        rest = min((lane.rests_until - now for lane in dry if lane.rests_until > now), default=None)
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            if awaited:
                await self._wait_for(awaited, changed, rest)
            else:
                await asyncio.wait([changed], timeout=rest)
        finally:
            await end([changed])
            if rest is not None:
                self._changed.set()  # wait again, with those that rest

    async def _wait_for(self, lanes: list[Lane], changed: "asyncio.Future[Any]", rest: float | None) -> None:
        began, span = time.monotonic(), timedelta(seconds=FALLBACK * uniform(0.75, 1.0))
        waiting = asyncio.ensure_future(self._store.wait([lane.name for lane in lanes], span))
        try:
            await asyncio.wait([waiting, changed], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and not changed.done():
                for lane in lanes:
                    lane.named = False  # nothing is due there
                self.idle()
                left = None if rest is None else max(0.0, rest - LOOK)
                await asyncio.wait([waiting, changed], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                self._called(lanes, waiting.result())
        finally:
            try:
                # A wait begins with a look, which a driver does not like to be cut off in.
                await asyncio.wait([waiting], timeout=max(0.0, began + LOOK - time.monotonic()))
            finally:
                await end([waiting])

    def _called(self, lanes: list[Lane], named: frozenset[str]) -> None:
        """Ask those that were named; all of them if none was: that is the fallback."""
        for lane in lanes:
            if lane.name in named or not named:
                lane.called, lane.named = True, lane.name in named
                self._wet(lane)
            else:
                self._changed.set()  # it still has to be waited for
