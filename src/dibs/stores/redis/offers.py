"""Offers: what a worker that waits would claim. Whoever brings a job makes that claim and sends it: ``hand.lua``."""

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

    async def make(self, queues: Sequence[str], offer: Offer) -> None:
        """See ``Offering.offer``."""
        channel = self._link.root + b"hand:" + offer.worker.encode()
        if channel not in self.channels and self.wire is not None:
            self.wire.send(("SUBSCRIBE", channel))
        self.channels[channel], self._queues[offer.worker] = offer, queues
        tasks = b"" if offer.tasks is None else values.pack(tuple(offer.tasks))
        about = offer.worker, span_micros(offer.lease), tasks, span_micros(offer.good_for)
        sent_at = self._reckoning.sent()
        moment = int(await self._link.call(self._script, *about, *queues))
        self._reckoning.answered(sent_at, from_micros(moment))

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
