"""What a handler sees of the job it runs, and what it can say about it."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from dibs.clock import system_clock
from dibs.job import SILENT, Claim, LogLine, NewJob, NewStep, Report
from dibs.planning import Needs, Steps

LINES_KEPT = 100
ADDED_BY = "added_by"
"""Where the meta of a step that was added names the step that added it."""


class Attempt:
    """One claim-to-settle run of a job. Safe to use from the handler's thread while heartbeats go on."""

    __slots__ = (
        "_added",
        "_batch",
        "_lines",
        "_note",
        "_progress",
        "_said",
        "_sent",
        "cancelled",
        "claim",
        "locked_until",
        "lost",
    )

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._added: Steps | None = None
        self._batch: tuple[Attempt, ...] | None = None
        self.locked_until: datetime = claim.locked_until
        """When the lease ends unless the next heartbeat moves it on."""
        self.cancelled = False
        """Somebody asked to cancel the job, or its lease is lost: stop before the next side effect."""
        self.lost = False
        """The lease is lost: somebody else may run this job now, and nothing from here will be recorded."""
        self._said = 0
        self._sent = 0
        self._progress: float | None = None
        self._note = ""
        self._lines: list[LogLine] | None = None

    @property
    def id(self) -> UUID:
        return self.claim.id

    @property
    def task(self) -> str:
        return self.claim.task

    @property
    def queue(self) -> str:
        return self.claim.queue

    @property
    def flow(self) -> UUID | None:
        """The flow that this job is a step of."""
        return self.claim.flow

    @property
    def step(self) -> str | None:
        """Its name in the flow."""
        return self.claim.step

    @property
    def inputs(self) -> dict[str, Any]:
        """The results of the steps that this one needs, by name, as JSON."""
        return self.claim.inputs

    @property
    def key(self) -> str | None:
        return self.claim.key

    @property
    def meta(self) -> dict[str, Any]:
        return self.claim.meta

    @property
    def args(self) -> Any:
        return self.claim.args

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.claim.attempt

    @property
    def max_attempts(self) -> int:
        return self.claim.max_attempts

    @property
    def epoch(self) -> int:
        """Rises with every claim of the job: a fencing token for side effects."""
        return self.claim.epoch

    @property
    def worker(self) -> str:
        return self.claim.worker

    @property
    def batch(self) -> "tuple[Attempt, ...]":
        """All attempts of this call: one, or those of a batch task."""
        # Not kept for one: an object that refers to itself is freed late.
        return self._batch or (self,)

    @batch.setter
    def batch(self, attempts: "tuple[Attempt, ...]") -> None:
        self._batch = attempts

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the job is, from 0 to 1; the next heartbeat carries it."""
        self._progress, self._note = fraction, note
        self._said += 1

    def log(self, text: str) -> None:
        """Keep a line with the job; of many, the last hundred."""
        lines = self._lines = [] if self._lines is None else self._lines
        lines.append(LogLine(system_clock(), self.claim.attempt, text))
        del lines[:-LINES_KEPT]
        self._said += 1

    def add_step(self, name: str, job: NewJob, *, needs: Needs = ()) -> str:
        """Add a step to this job's flow, in the very moment in which this step succeeds; answers its name.

        It may need other steps that are added here, and this one, whose result it then gets. If this attempt does not
        succeed nothing is added. Its meta names the step that added it, as ``added_by``.
        """
        step = self.claim.step
        if step is None:
            raise RuntimeError(f"job {self.id} ({self.task}) is no step of a flow: there is nothing to add a step to")
        added = self._added = Steps(taken=(step,)) if self._added is None else self._added
        if isinstance(job, NewJob):
            job = msgspec.structs.replace(job, meta={**job.meta, ADDED_BY: step})
        added.add(name, job, needs)
        return name

    # --- for the worker -------------------------------------------------------------------------------------

    @property
    def report(self) -> Report:
        """What the handler has said so far."""
        return Report(self._progress, self._note, tuple(self._lines or ())) if self._said else SILENT

    @property
    def added(self) -> tuple[NewStep, ...]:
        """The steps to add if it succeeds."""
        return self._added.all if self._added is not None else ()

    @property
    def unsent(self) -> bool:
        """Whether the handler said something that no heartbeat has carried yet."""
        return self._said != self._sent

    def sending(self) -> tuple[Report, Callable[[], None]]:
        """The report to send, and what to call when it has arrived."""
        said, report = self._said, self.report

        def arrived() -> None:
            self._sent = said

        return report, arrived


running: ContextVar[Attempt] = ContextVar("dibs_attempt")
carry: ContextVar[Callable[[], dict[str, str]]] = ContextVar("dibs_carry", default=dict)
"""Gives what a handler in another process is told of the context around its attempt; set by whoever traces."""


def current() -> Attempt:
    """The attempt that this code is running for; a RuntimeError outside of a handler."""
    try:
        return running.get()
    except LookupError:
        raise RuntimeError(
            "no job is running here: dibs.current() answers inside a handler that a worker called"
        ) from None
