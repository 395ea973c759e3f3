"""Where claims of one process have got to in each queue.

Under load the front of the claim index is full of entries that lead nowhere: jobs that are running, or finished and
not vacuumed, which an old snapshot can keep for hours. A claim that starts behind the last place it claimed does not
walk through them. What may have come to stand before that place (a late commit, an expired lease, a job given back
by another process) is found by looking from the beginning again: when a scan comes back short, and every second.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from dibs.job import Claim

_Key = tuple[str, tuple[str, ...] | None]
# A look from the beginning that takes this long has a dead front to walk through; those may take a tenth of the time.
_LONG = 0.02
_SHARE = 10


class Lookout:
    """The places in one queue, for one set of tasks, per lane (priority)."""

    def __init__(self, look_every: float) -> None:
        self._look_every = look_every
        self._lanes: dict[int, tuple[datetime, UUID]] = {}
        self._looked_at: datetime | None = None
        self._until: datetime | None = None
        self._next_long_look = 0.0

    def arguments(self) -> tuple[bool, tuple[Any, ...]]:
        """The last arguments of ``dibs.claim``: the places, for how long and since when, whether to be thorough.

        Before them, whether the places are lists: a single one is given without.
        """
        thorough = time.monotonic() >= self._next_long_look
        return len(self._lanes) != 1, (*self._places(), self._until, thorough, self._looked_at)

    def _places(self) -> tuple[Any, Any, Any]:
        if not self._lanes:
            return None, None, None
        if len(self._lanes) == 1:
            [(priority, (run_at, id_))] = self._lanes.items()
            return priority, run_at, id_
        places = self._lanes.values()
        return list(self._lanes), [place[0] for place in places], [place[1] for place in places]

    def claimed(self, claims: Sequence[Claim], limit: int, lease: timedelta, began: float) -> None:
        """Remember how far a claim got. ``began`` is when it was sent, by the monotonic clock."""
        if not claims or not self._look_every:
            return
        moment = claims[0].locked_until - lease
        outdated = self._until is None or moment >= self._until
        if outdated:
            self._lanes.clear()
        if outdated or len(claims) < limit:
            self._looked(moment, time.monotonic() - began)
        # Each lane comes in order, so the last of it is the furthest, but for what a second look found before it.
        one_lane = claims[0].priority == claims[-1].priority
        for claim in claims[-1:] if one_lane else {claim.priority: claim for claim in claims}.values():
            known, reached = self._lanes.get(claim.priority), (claim.run_at, claim.id)
            if known is None or reached > known:
                self._lanes[claim.priority] = reached

    def _looked(self, moment: datetime, took: float) -> None:
        """A claim has looked from the beginning."""
        pause = min(took * _SHARE, self._look_every) if took > _LONG else 0.0
        self._next_long_look = time.monotonic() + pause
        self._looked_at = moment
        self._until = moment + timedelta(seconds=self._look_every)


class Places:
    """The places in every queue that this store claims from."""

    def __init__(self, look_every: float) -> None:
        self._look_every = look_every
        self._lookouts: dict[_Key, Lookout] = {}

    def of(self, queue: str, tasks: tuple[str, ...] | None) -> Lookout:
        """The places in one queue."""
        lookout = self._lookouts.get((queue, tasks))
        if lookout is None:
            lookout = self._lookouts[queue, tasks] = Lookout(self._look_every)
        return lookout

    @contextmanager
    def unsettled(self, really: bool = True) -> Iterator[None]:
        """Around a call that may put a job before a place: the next claim looks from the beginning.

        The places are forgotten after the call. A claim that was under way meanwhile remembers its place in a lookout
        that is no longer asked.
        """
        try:
            yield
        finally:
            if really:
                self._lookouts.clear()
