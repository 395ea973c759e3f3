"""One claim in the worker's hands, from the claim's answer to the settle's."""

import asyncio
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from dibs.attempt import Attempt
from dibs.job import Claim, LogLine
from dibs.telemetry.tally import Figures

if TYPE_CHECKING:
    from dibs.worker.plan import Plan


class Why(Enum):
    """Why a handler was interrupted."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    LOST = "lost"
    STOP = "stop"


class Run(Attempt):
    """An attempt, and what only the worker has to know about it. Times are monotonic seconds.

    The heartbeat's thread writes ``until``, ``beat_at``, ``locked_until``, ``cancelled`` and ``lost``; all else belongs
    to the loop.
    """

    __slots__ = (
        "beat_at",
        "began_at",
        "came_at",
        "earlier",
        "ended",
        "ended_at",
        "figures",
        "handle",
        "items",
        "plan",
        "started",
        "until",
        "why",
    )

    began_at: float
    """When its handler was started, and when it ended; not there before."""
    ended_at: float
    figures: Figures
    """Where it is counted."""

    def __init__(self, claim: Claim, plan: "Plan", asked_at: float, came_at: float, lease: float) -> None:
        Attempt.__init__(self, claim)
        self.plan = plan
        self.came_at = came_at
        self.until = asked_at + lease
        """The lease is certain until then: counted from before the call that gave it."""
        # One whose own lease is longer than the claim's is renewed at once.
        self.beat_at = asked_at + lease / 3 if plan.lease <= lease else asked_at
        self.started = False
        self.ended = False
        """Its outcome is on its way to the store, which alone says from now on what became of it."""
        self.why: Why | None = None
        self.handle: asyncio.Task[None] | None = None
        self.earlier: tuple[LogLine, ...] | None = None
        """The lines that earlier attempts wrote; None until asked for."""
        self.items: list[Any] | None = None
        """What a batch handler gets; of the first run of a batch only."""

    def part(self) -> None:
        """It is over: let go of those that ran with it. Objects that refer to each other are freed late."""
        self._batch = None

    def renewed(self, asked_at: float, lease: float, claimed_for: float) -> None:
        """A heartbeat that was sent at ``asked_at`` said that the lease is held."""
        self.until = max(self.until, asked_at + lease)
        self.beat_at = asked_at + lease / 3
        moved = timedelta(seconds=asked_at - self.came_at + lease - claimed_for)
        self.locked_until = max(self.locked_until, self.claim.locked_until + moved)
