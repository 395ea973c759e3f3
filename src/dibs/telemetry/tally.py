"""What a worker counts of its jobs, by queue and task: read by metrics and by samples, paid for once.

Only the worker's loop writes. Whoever reads, from whatever thread, may see a job in one figure and not yet in
another, never a figure that falls.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from dibs.job import Claim
from dibs.outcome import Outcome, Succeeded, Verdict
from dibs.telemetry.buckets import BOUNDS, Times

OUTCOMES = ("succeeded", "failed", "retried", "snoozed", "cancelled", "released", "lost")
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""How many outcomes go to the store in one call: the bounds of their buckets."""


class Ran(Protocol):
    """What is to be known of a claim in a worker's hands. Times are monotonic seconds."""

    claim: Claim
    came_at: float
    began_at: float
    """When its handler was started; means something only if ``started``."""
    ended_at: float
    started: bool


class Figures(msgspec.Struct):
    """One task in one queue."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    ran: Times = msgspec.field(default_factory=Times)
    """How long attempts took, however they ended."""
    waited: Times = msgspec.field(default_factory=Times)
    """How long it took from when they were due until they were started."""

    @property
    def ended(self) -> int:
        return sum(getattr(self, outcome) for outcome in OUTCOMES)

    def count(self, event: str) -> None:
        setattr(self, event, getattr(self, event) + 1)

    def copy(self) -> "Figures":
        return self.plus(Figures())

    def plus(self, other: "Figures") -> "Figures":
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Figures(**counts, ran=self.ran.plus(other.ran), waited=self.waited.plus(other.waited))

    def minus(self, other: "Figures") -> "Figures":
        counts = {name: getattr(self, name) - getattr(other, name) for name in COUNTS}
        return Figures(**counts, ran=self.ran.minus(other.ran), waited=self.waited.minus(other.waited))

    def pack(self) -> dict[str, Any]:
        """As JSON, without what is nothing."""
        packed: dict[str, Any] = {name: value for name in COUNTS if (value := getattr(self, name))}
        for name in ("ran", "waited"):
            times: Times = getattr(self, name)
            if times.count:
                packed[name] = times.pack()
        return packed

    @classmethod
    def unpack(cls, packed: Any) -> "Figures":
        found = cls(ran=Times.unpack(packed.get("ran")), waited=Times.unpack(packed.get("waited")))
        for name in COUNTS:
            setattr(found, name, int(packed.get(name, 0)))
        return found


COUNTS = ("started", *OUTCOMES)

Place = tuple[str, str]
"""A queue and a task."""


class Tally:
    """Counts as cheaply as it can: half a microsecond or so for a job."""

    def __init__(self) -> None:
        self.begun: deque[Ran] = deque()
        """Those that were started and are not counted yet: ``append`` is all that a start costs."""
        self.lease = 0.0
        """How long claims last, in seconds: a claim says when it ends, not when it began."""
        self.settles = [0] * (len(SIZES) + 1)
        self.settled_jobs = 0
        self._places: dict[Place, Figures] = {}

    def settled(
        self, batch: Sequence[tuple[Any, Outcome]], verdicts: Sequence[Verdict], event: Callable[[Any, Outcome], str]
    ) -> None:
        """The store has answered for these. One that was lost is counted when that is told."""
        self.catch_up()
        self.settles[bisect_left(SIZES, len(batch))] += 1
        self.settled_jobs += len(batch)
        accepted, places, bounds = Verdict.ACCEPTED, self._places, BOUNDS
        for (run, outcome), verdict in zip(batch, verdicts, strict=True):
            if verdict is not accepted:
                continue
            claim = run.claim
            figures = places.get((claim.queue, claim.task)) or self._place(claim)
            if type(outcome) is Succeeded:
                figures.succeeded += 1
            else:
                figures.count(event(run, outcome))
            if run.started:
                seconds = run.ended_at - run.began_at
                times = figures.ran
                times.counts[bisect_left(bounds, seconds)] += 1
                times.seconds += seconds

    def lost(self, run: Ran) -> None:
        """Its lease ended before its outcome was recorded, if it came to one."""
        self.catch_up()
        self._place(run.claim).lost += 1

    def catch_up(self) -> None:
        """Count those that were started. On the worker's loop only."""
        begun, places, lease, bounds = self.begun, self._places, self.lease, BOUNDS
        while begun:
            run = begun.popleft()
            claim = run.claim
            figures = places.get((claim.queue, claim.task)) or self._place(claim)
            figures.started += 1
            # By the store's clock until it was claimed, by ours from then on.
            seconds = (claim.locked_until - claim.run_at).total_seconds() - lease + run.began_at - run.came_at
            times = figures.waited
            times.counts[bisect_left(bounds, seconds)] += 1
            times.seconds += seconds

    def places(self) -> dict[Place, Figures]:
        """What was counted so far, as a copy."""
        return {place: figures.copy() for place, figures in self._places.copy().items()}

    def _place(self, claim: Claim) -> Figures:
        return self._places.setdefault((claim.queue, claim.task), Figures())
