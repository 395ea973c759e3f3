"""Offers: what a worker that waits would claim. ``dibs.enqueue_plain`` makes that claim, and ``dibs.hand`` sends it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from dibs.job import Claim
from dibs.store import Offer
from dibs.stores.reckoning import Reckoning

_OFFER = "select dibs.offer($1, $2, $3, $4, $5, $6)"
_RETRACT = "select dibs.retract($1)"
LATE = 2.0
"""Seconds that a claim may be on its way."""
_handed = msgspec.json.Decoder(tuple[str, str, UUID, str, Any, int, datetime, int, datetime, Any]).decode
"""What ``dibs.hand`` sends."""


class Offers:
    """Each worker has one at a time. Its claims come to the connection that listens."""

    def __init__(self, fetch: Callable[..., Awaitable[list[Any]]], deaf: Callable[[], None]) -> None:
        self._fetch = fetch
        self._deaf = deaf
        """Called when a claim was sent to us that we did not hear of."""
        self._last: dict[str, Offer] = {}
        """The last one of each worker: a claim may come late."""
        self._open: set[str] = set()
        """Workers whose offer stands, as far as we know."""
        self._came = 0
        self._in_doubt = False
        """An offer was taken up, and no claim has come since."""
        self._reckoning = Reckoning()

    async def make(self, listener: str, queues: Sequence[str], offer: Offer) -> bool:
        """See ``Offering.offer``; ``listener`` is the name of the connection that listens."""
        if self._in_doubt:
            return False
        self._last[offer.worker] = offer
        self._open.add(offer.worker)
        tasks = None if offer.tasks is None else list(offer.tasks)
        sent_at = self._reckoning.sent()
        about = offer.worker, listener, list(queues), offer.lease, tasks, offer.good_for
        [[moment]] = await self._fetch(_OFFER, *about)
        self._reckoning.answered(sent_at, moment)
        if moment is None:
            self._open.discard(offer.worker)
        return moment is not None

    async def retract(self, worker: str) -> bool:
        """See ``Offering.retract``."""
        stands, came = worker in self._open, self._came
        self._open.discard(worker)
        [[stood]] = await self._fetch(_RETRACT, worker)
        if stands and not stood and came == self._came:
            self._in_doubt = True
            asyncio.get_running_loop().call_later(LATE, self._give_up, came)
        return bool(stood)

    def _give_up(self, came: int) -> None:
        """Wait no longer for the claim."""
        if came == self._came:
            self._in_doubt = False
            self._deaf()

    def stands(self, worker: str) -> bool:
        """Whether there is something to take back."""
        return worker in self._open

    async def take_back(self, worker: str) -> None:
        """While the worker claims for itself; it must not lose what it gets."""
        with suppress(Exception):
            await self.retract(worker)

    def taken_up(self, message: str) -> None:
        """A claim has come."""
        worker, queue, id_, task, args, priority, moment, most, until, meta = _handed(message)
        offer = self._last.get(worker)
        if offer is None:
            return  # its lease brings the job back
        self._open.discard(worker)
        self._came += 1
        self._in_doubt = False
        run_at, locked_until = moment.astimezone(UTC), until.astimezone(UTC)
        claim = Claim(
            id_,
            1,
            worker,
            queue,
            task,
            args,
            priority,
            run_at,
            run_at,
            1,
            most,
            locked_until,
            None,
            None,
            None,
            meta,
            {},
        )
        offer.take(claim, self._reckoning.not_before(claim, offer.lease))
