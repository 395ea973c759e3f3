"""Offers: what a worker that waits would claim. Whoever brings a job makes that claim and sends it: ``hand.lua``."""

import time
from collections.abc import Sequence

from dibs.clock import from_micros, span_micros
from dibs.store import Offer
from dibs.stores.reckoning import Reckoning
from dibs.stores.redis import values
from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import Script
from dibs.stores.redis.wire import Wire

_ID, _LENGTH = 32, 8
"""What a claim on its way begins with: the job's id, and the length of its record as hexadecimal digits."""


QUIET = 1.0
"""Seconds after which a connection that said nothing is asked for a sign of life."""
LATE = 2.0
"""Seconds in which it has to give one."""


class Offers:
    """Each worker has one at a time. Its claims come on a channel of its own, to the connection that listens."""

    def __init__(self, link: Link, offer: Script) -> None:
        self._link = link
        self._script = offer
        self._queues: dict[str, Sequence[str]] = {}
        """Those that each worker offered to take a job from."""
        self._reckoning = Reckoning()
        self.channels: dict[bytes, Offer] = {}
        """Of each worker, with the last offer that it made: a claim may come late."""
        self.wire: Wire | None = None
        """The connection that listens."""
        self._heard_at = 0.0
        self._pinged_at: float | None = None
        """When it was last asked for a sign of life, if it has not given one since."""

    async def make(self, queues: Sequence[str], offer: Offer) -> bool:
        """See ``Offering.offer``."""
        if self.wire is None or not self._lives(self.wire):
            return False
        channel = self._link.root + b"hand:" + offer.worker.encode()
        if channel not in self.channels:
            self.wire.send(("SUBSCRIBE", channel))
        self.channels[channel], self._queues[offer.worker] = offer, queues
        tasks = b"" if offer.tasks is None else values.pack(tuple(offer.tasks))
        about = offer.worker, span_micros(offer.lease), tasks, span_micros(offer.good_for)
        sent_at = self._reckoning.sent()
        moment = int(await self._link.call(self._script, *about, *queues))
        self._reckoning.answered(sent_at, from_micros(moment))
        return True

    def _lives(self, wire: Wire) -> bool:
        """Whether claims are likely to arrive. A network may have forgotten a connection on which little is said."""
        now = time.monotonic()
        if self._pinged_at is not None and now - self._pinged_at > LATE:
            wire.hang_up()
            return False
        if self._pinged_at is None and now - self._heard_at > QUIET:
            self._pinged_at = now
            wire.send(("PING",))
        return True

    def heard(self) -> None:
        """The connection that listens has said something."""
        self._heard_at, self._pinged_at = time.monotonic(), None

    async def retract(self, worker: str) -> bool:
        """See ``Offering.retract``."""
        offers, queues = self._link.root + b"offers", self._queues.pop(worker, ())
        stood, *_ = await self._link.exchange(
            ("HDEL", offers, worker), *(("SREM", b"%b:%b" % (offers, queue.encode()), worker) for queue in queues)
        )
        return bool(stood == 1)

    def taken_up(self, channel: bytes, message: bytes) -> None:
        """A claim has come."""
        offer, record_at = self.channels[channel], _ID + _LENGTH
        body_at = record_at + int(message[_ID:record_at], 16)
        [claim] = values.to_claims((message[:_ID], message[record_at:body_at], message[body_at:]), ())
        offer.take(claim, self._reckoning.not_before(claim, offer.lease))
