"""When a claim was made that somebody else made for us: its lease runs since then, however long it was on its way."""

import time
from datetime import datetime, timedelta

from dibs.job import Claim


class Reckoning:
    """What our monotonic clock showed when the store's clock showed something: known from the answer to an offer."""

    def __init__(self) -> None:
        self._sent_at: float | None = None
        self._moment: datetime | None = None

    def sent(self) -> float:
        """An offer is being sent; answers when, for ``answered``."""
        now = time.monotonic()
        if self._sent_at is None:
            self._sent_at = now
        return now

    def answered(self, sent_at: float, moment: datetime | None) -> None:
        """The store has answered an offer, with its time; None: it took none."""
        if moment is not None:
            self._sent_at, self._moment = sent_at, moment
        elif self._moment is None:
            self._sent_at = None

    def not_before(self, claim: Claim, lease: timedelta) -> float:
        """A time by our monotonic clock at which the claim was not yet made. By the store's, it says so itself."""
        assert self._sent_at is not None, "nobody claims for those who offered nothing"
        if self._moment is None:
            return self._sent_at
        made_at = claim.locked_until - lease
        return min(time.monotonic(), self._sent_at + (made_at - self._moment).total_seconds())
