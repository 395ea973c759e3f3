"""What a worker counts of its jobs, by queue and task: read by metrics and by samples, paid for once.

Only the worker's loop writes. Whoever reads, from whatever thread, may see a job in one figure and not yet in
another, never a figure that falls.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from dibs.job import Claim
from dibs.outcome import Outcome, Succeeded, Verdict
from dibs.telemetry.buckets import Times

OUTCOMES = ("succeeded", "failed", "retried", "snoozed", "cancelled", "released", "lost")
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""How many outcomes go to the store in one call: the bounds of their buckets."""


ENOUGH = 32
"""So many of one task that end together are timed each; of more, so many and up to twice as many stand for all."""


class Ran(Protocol):
    """What is to be known of a claim in a worker's hands. Times are monotonic seconds."""

    claim: Claim
    came_at: float
    began_at: float
    """When its handler was started; means something only if ``started``."""
    ended_at: float
    started: bool
    figures: "Figures"
    """Where it is counted."""


R = TypeVar("R", bound=Ran)
K = TypeVar("K", bound=Hashable)


class Figures(msgspec.Struct, eq=False):
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
    def moves(self) -> int:
        """How many attempts were started or ended."""
        return sum(getattr(self, name) for name in COUNTS)

    def count(self, event: str) -> None:
        setattr(self, event, getattr(self, event) + 1)

    def copy(self) -> "Figures":
        return Figures.total([self])

    @classmethod
    def total(cls, some: Sequence["Figures"]) -> "Figures":
        """All of them together, at least one."""
        counts = {name: sum([getattr(each, name) for each in some]) for name in COUNTS}
        ran, waited = ([getattr(each, name) for each in some] for name in ("ran", "waited"))
        return cls(**counts, ran=Times.total(ran), waited=Times.total(waited))

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


def summed(figures: Iterable[tuple[K, Figures]]) -> dict[K, Figures]:
    """Those of the same name together."""
    named = defaultdict[K, list[Figures]](list)
    for name, each in figures:
        named[name].append(each)
    return {name: some[0] if len(some) == 1 else Figures.total(some) for name, some in named.items()}


Place = tuple[str, str]
"""A queue and a task."""


class Tally:
    """Counts as cheaply as it can. All are counted; of many alike that begin or end together, some are timed.

    A worker of tiny jobs settles hundreds in one call, and looking at the time of each would cost it more than all
    other figures together.
    """

    def __init__(self) -> None:
        self.begun: list[Ran] = []
        """Those that were started and are not counted yet: ``append`` is all that a start costs."""
        self.lease = 0.0
        """How long claims last, in seconds: a claim says when it ends, not when it began."""
        self.settles = [0] * (len(SIZES) + 1)
        """How many calls of settle were for so many jobs."""
        self.settled = 0
        self._places = defaultdict[Place, Figures](Figures)

    def place(self, queue: str, task: str) -> Figures:
        """Where to count the jobs of a task in a queue."""
        return self._places[queue, task]

    def expect(self, queue: str, runs: Sequence[Ran]) -> None:
        """These were claimed from a queue: say where each is counted."""
        if len(runs) == 1:
            runs[0].figures = self.place(queue, runs[0].claim.task)
            return
        figures = {task: self.place(queue, task) for task in {run.claim.task for run in runs}}
        for run in runs:
            run.figures = figures[run.claim.task]

    def succeeded(
        self, batch: Sequence[tuple[R, Outcome]], verdicts: Sequence[Verdict]
    ) -> list[tuple[tuple[R, Outcome], Verdict]]:
        """The store has answered for these. Counts those that succeeded; answers the others, for ``ended``."""
        self.catch_up()
        self.settles[bisect_left(SIZES, len(batch))] += 1
        self.settled += len(batch)
        accepted, done, others = Verdict.ACCEPTED, list[R](), []
        for each in zip(batch, verdicts, strict=True):
            (run, outcome), verdict = each
            if verdict is accepted and type(outcome) is Succeeded:
                done.append(run)
            else:
                others.append(each)
        for figures, runs in _by_figures(done):
            figures.succeeded += len(runs)
            figures.ran.add_like([run.ended_at - run.began_at for run in _some(runs)], len(runs))
        return others

    def ended(self, run: Ran, event: str) -> None:
        """One that ended in another way. A lost one has no end of its own."""
        self.catch_up()
        run.figures.count(event)
        if run.started and event != "lost":
            run.figures.ran.add_like([run.ended_at - run.began_at], 1)

    def catch_up(self) -> None:
        """Count those that were started. On the worker's loop only."""
        for figures, runs in _by_figures(self.begun):
            figures.started += len(runs)
            figures.waited.add_like([self._waited(run) for run in _some(runs)], len(runs))
        self.begun.clear()

    def _waited(self, run: Ran) -> float:
        """By the store's clock until it was claimed, by ours from then on."""
        claim = run.claim
        return (claim.locked_until - claim.run_at).total_seconds() - self.lease + run.began_at - run.came_at

    def places(self) -> dict[Place, Figures]:
        """What was counted so far, as a copy."""
        return {place: figures.copy() for place, figures in self._places.copy().items()}


def _by_figures(runs: list[R]) -> Iterable[tuple[Figures, list[R]]]:
    """Those that are counted in the same place together."""
    if len({run.figures for run in runs}) == 1:  # as of most workers that are in a hurry
        return [(runs[0].figures, runs)]
    found = defaultdict[Figures, list[R]](list)
    for run in runs:
        found[run.figures].append(run)
    return found.items()


def _some(runs: list[R]) -> list[R]:
    """Enough of them to stand for all."""
    return runs if len(runs) <= ENOUGH else runs[:: len(runs) // ENOUGH]
