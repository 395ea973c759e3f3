"""What a worker sends. What a *handler* gave must not leave its job running: it is cleaned, or fails the job."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from math import isnan
from typing import Any
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import Claim, LogLine, NewStep, Report, Settlement
from dibs.limits import needs
from dibs.limits.basics import (
    DEFAULT,
    ERROR_LENGTH,
    LINE_LENGTH,
    LINES_KEPT,
    LONGEST_DELAY,
    MAX_ATTEMPTS,
    NOTE_LENGTH,
    TRACEBACK_LENGTH,
    Limits,
    bulk,
    clean,
    lease,
    limit,
    moment,
    name,
    names,
    span,
    to_json,
    within,
)
from dibs.limits.flows import AdmittedStep, steps
from dibs.outcome import Failed, Outcome, Retry, Snoozed, Succeeded


class Settled(msgspec.Struct, frozen=True, gc=False):
    """An outcome that can be stored, flattened: what a store's settle works on."""

    id: UUID
    epoch: int
    worker: str
    kind: str
    result: str | None = None
    error: str | None = None
    traceback: str = ""
    delay: timedelta = timedelta(0)
    steps: tuple[AdmittedStep, ...] = ()
    """To be added to the job's flow, if the store finds nothing against it: see ``NO_STEP`` and those below it."""
    adder: str | None = None
    """What the steps need and is none of them: it must be the name of the step that adds them."""


def settleable(settlements: Sequence[Settlement], limits: Limits = DEFAULT) -> list[Settled]:
    """Make each settlement storable; refuse only what no worker can mean: one claim settled twice in one call."""
    bulk(len(settlements), "settlements")
    if len({item.id for item in settlements}) < len(settlements):
        # The same job may come twice with two epochs, of which one is lost; the same claim may not.
        fences = {(item.id, item.epoch, item.worker) for item in settlements}
        if len(fences) < len(settlements):
            raise Refused("one settle call must not hold the same claim twice")
    return [storable(item, limits) for item in settlements]


def storable(item: Settlement, limits: Limits = DEFAULT) -> Settled:
    """One of them, as it will be recorded: a success whose result or steps no store can keep is a failure."""
    outcome: Outcome = item.outcome
    if type(outcome) is Succeeded:
        try:
            # Most handlers return nothing.
            result = "null" if outcome.result is None else to_json(outcome.result, "result", limits)
            if outcome.steps:
                return _adding(item, result, outcome.steps, limits)
            return Settled(item.id, item.epoch, item.worker, "succeeded", result)
        except (Refused, RecursionError) as problem:
            outcome = Failed(f"the result cannot be stored: {problem}")
    kind = str(outcome.__struct_config__.tag)
    error = traceback = None
    delay = timedelta(0)
    if isinstance(outcome, Retry | Failed):
        error, traceback = clean(outcome.error, ERROR_LENGTH), clean(outcome.traceback, TRACEBACK_LENGTH)
    if isinstance(outcome, Retry | Snoozed):
        delay = min(max(outcome.delay, timedelta(0)), LONGEST_DELAY)
    return Settled(item.id, item.epoch, item.worker, kind, None, error, traceback or "", delay)


def _adding(item: Settlement, result: str, added: Sequence[NewStep], limits: Limits) -> Settled:
    """A success that adds steps, or, if one of them is bad, a failure."""
    try:
        admitted = steps(added, limits)
        others = needs.outside({step.name: step.needs for step in admitted})
        if len(others) > 1:
            raise Refused(f'"{others[0]}" and "{others[1]}" are needed and neither is one of them')
    except (Refused, RecursionError) as problem:
        error = clean(f"the steps cannot be added: {problem}", ERROR_LENGTH)
        return Settled(item.id, item.epoch, item.worker, "failed", None, error)
    adder = others[0] if others else None
    return Settled(item.id, item.epoch, item.worker, "succeeded", result, steps=admitted, adder=adder)


def claimable(
    queue: str, worker: str, count: int, span: timedelta, tasks: Collection[str] | None
) -> tuple[str, ...] | None:
    """Check what a claim asks for; answers the known tasks, sorted, or None for any."""
    name(queue, "queue")
    name(worker, "worker")
    limit(count)
    lease(span)
    return None if tasks is None else names(list(tasks), "task")


def sweeping(count: int, not_within: timedelta | None) -> tuple[int, timedelta | None]:
    """Check what a sweep is asked for."""
    return limit(count), None if not_within is None else span(not_within, "not_within")


def beating(
    worker: str,
    claims: Sequence[Claim],
    span: timedelta,
    info: Mapping[str, Any] | None,
    limits: Limits = DEFAULT,
) -> str | None:
    """Check a heartbeat; answers the worker's info as JSON text, or None if none was given."""
    name(worker, "worker")
    bulk(len(claims), "claims")
    lease(span)
    return None if info is None else to_json(dict(info), "info", limits)


def reports(said: Mapping[UUID, Report] | None, claims: Sequence[Claim]) -> dict[UUID, Report]:
    """The reports of the jobs that these claims are for, made storable. Reports of others are left out.

    What a handler said is never refused, whatever it is. The rest of a report comes from the worker: one that is
    no ``Report``, or that has lines of no time and no attempt, is refused.
    """
    if not said:
        return {}
    return {job: _report(said[job]) for job in {claim.id for claim in claims} if job in said}


def _report(report: Report) -> Report:
    if not isinstance(report, Report):
        raise Refused(f"a report must be a dibs.job.Report, not {type(report).__name__}")
    lines = tuple(map(_line, report.log[-LINES_KEPT:]))
    return Report(_progress(report.progress), clean(report.note, NOTE_LENGTH), lines)


def _line(line: LogLine) -> LogLine:
    attempt = within(line.attempt, MAX_ATTEMPTS, "the attempt of a log line")
    return LogLine(moment(line.at, "the time of a log line"), attempt, clean(line.text, LINE_LENGTH))


def _progress(fraction: Any) -> float | None:
    try:
        number = float(fraction)
    except Exception:  # a handler may hand over anything, also what has a broken __float__
        return None
    return None if isnan(number) else min(1.0, max(0.0, number))
