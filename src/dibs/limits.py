"""What a job may hold. Every store asks here first, so bad input gets the same answer everywhere.

Rules for what a *user* gives raise :class:`~dibs.errors.Refused` and nothing is stored. What a *handler* gave
(a result, an error, a report) must not leave its job running, so a result that cannot be stored turns into a
failure with that reason, and the text of an error or a report is cleaned.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite, isnan
from typing import Any
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import Claim, Filter, LogLine, NewJob, Order, Report, Settlement
from dibs.outcome import Failed, Outcome, Retry, Snoozed, Succeeded

NAME_LENGTH = 200
PRIORITIES = (-32768, 32767)
MAX_ATTEMPTS = (1, 1000)
LEASE = (timedelta(seconds=1), timedelta(hours=24))
LONGEST_DELAY = timedelta(days=3650)
BULK = 10_000
DEPTH = 64
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
ERROR_LENGTH = 2_000
TRACEBACK_LENGTH = 20_000
ERRORS_KEPT = 10
NOTE_LENGTH = 200
LINE_LENGTH = 1_000
LINES_KEPT = 100

WORKERS_KEPT = timedelta(days=1)
LEASE_EXPIRED = "lease expired"

# Control characters, line separators and lone surrogates, the same class as in the CHECKs of the SQL stores.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_encode = msgspec.json.Encoder().encode


class Limits(msgspec.Struct, frozen=True):
    """The limits that can be set; the others are part of the contract."""

    max_bytes: int = 1 << 20
    """The longest arguments, and the longest result, as JSON in UTF-8."""


DEFAULT = Limits()


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A job that passed: JSON as text, times in UTC. What a store's enqueue works on."""

    id: UUID
    queue: str
    task: str
    args: str
    priority: int
    run_at: datetime | None
    max_attempts: int
    key: str | None
    meta: str


def admit(jobs: Sequence[NewJob], limits: Limits = DEFAULT) -> list[Admitted]:
    """Check the jobs of one enqueue call, all or nothing."""
    bulk(len(jobs), "jobs")
    return [_admit(job, limits) for job in jobs]


def _admit(job: NewJob, limits: Limits) -> Admitted:
    job_id(job.id)
    return Admitted(
        job.id,
        name(job.queue, "queue"),
        name(job.task, "task"),
        to_json(job.args, "args", limits),
        priority(job.priority),
        None if job.run_at is None else moment(job.run_at, "run_at"),
        within(job.max_attempts, MAX_ATTEMPTS, "max_attempts"),
        None if job.key is None else name(job.key, "key"),
        "{}" if job.meta == {} else _meta(job.meta, limits),
    )


def _meta(meta: Any, limits: Limits) -> str:
    if not isinstance(meta, dict):
        raise Refused(f"meta must be a dict, not {type(meta).__name__}")
    return to_json(meta, "meta", limits)


def name(value: object, what: str) -> str:
    """1 to 200 printable characters, no space at either end."""
    if not isinstance(value, str):
        raise Refused(f"{what} must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= NAME_LENGTH:
        raise Refused(f"{what} must have 1 to {NAME_LENGTH} characters, this one has {len(value)}")
    if _UNPRINTABLE.search(value) or value[0] == " " or value[-1] == " ":
        raise Refused(
            f"{what} {value[:40]!a} must be printable and have no space at either end: "
            "leave out control characters, line breaks and lone surrogates"
        )
    return value


def names(values: Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    """A list of names, or None for any; sorted, without repeats."""
    if values is None:
        return None
    if isinstance(values, str):
        raise Refused(f"{what}s must be a list of names, not one string")
    bulk(len(values), f"{what}s")
    return tuple(sorted({name(value, what) for value in values}))


def job_id(value: object) -> UUID:
    """A UUIDv7: the order in which jobs are listed is the order of their ids."""
    if not isinstance(value, UUID) or value.int >> 76 & 0xF != 7:
        raise Refused(f"id must be a UUIDv7 (see dibs.new_id), not {value!r}")
    return value


def moment(value: object, what: str) -> datetime:
    """A time with a zone, from 1970 to 9998, in UTC."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Refused(f"{what} must be a datetime with a time zone, not {value!r}")
    if not TIMES[0] <= value < TIMES[1]:
        raise Refused(f"{what} must lie between the years 1970 and 9998, not {value.isoformat()}")
    return value.astimezone(UTC)


def priority(value: object) -> int:
    """A number from -32768 to 32767."""
    return within(value, PRIORITIES, "priority")


def order(value: object) -> Order:
    """One of the two orders of a queue."""
    if value not in tuple(Order):
        raise Refused(f"order must be one of {', '.join(Order)}, not {value!r}")
    return Order(str(value))


def lease(value: object) -> timedelta:
    """From 1 second to 24 hours."""
    if not isinstance(value, timedelta) or not LEASE[0] <= value <= LEASE[1]:
        raise Refused(f"lease must be a timedelta from 1 second to 24 hours, not {value!r}")
    return value


def bulk(size: int, what: str) -> None:
    """A call takes at most 10,000 of anything."""
    if size > BULK:
        raise Refused(f"one call takes at most {BULK:,} {what}, not {size:,}: send them in chunks")


def limit(value: object) -> int:
    """How many to claim, list or change at once: 1 to 10,000."""
    return within(value, (1, BULK), "limit")


def chosen(which: Filter, *, change: bool) -> Filter:
    """Check a filter; one that would change every job has to say so."""
    given = [field for field in which.__struct_fields__[:-1] if getattr(which, field) is not None]
    if change and not given and not which.everything:
        raise Refused("this filter is empty and would match every job: say everything=True if so")
    bulk(len(which.ids or ()), "ids")
    for field in given:
        if field.endswith(("_since", "_before")):
            moment(getattr(which, field), field)
    for field, what in (("queues", "queue"), ("tasks", "task"), ("workers", "worker"), ("keys", "key")):
        names(getattr(which, field), what)
    return which


def to_json(value: Any, what: str, limits: Limits = DEFAULT) -> str:
    """JSON text that every store keeps to the letter."""
    _check(value, what, DEPTH)
    encoded = _encode(value)
    if len(encoded) > limits.max_bytes:
        raise Refused(
            f"{what} take {len(encoded):,} bytes as JSON, more than the {limits.max_bytes:,} allowed: "
            "store the data elsewhere and pass a reference"
        )
    return encoded.decode()


def _check(value: Any, what: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii() or "\0" in value:
            _check_text(value, what)
    elif kind is dict or kind is list or kind is tuple:
        if depth == 0:
            raise Refused(f"{what} must not be nested deeper than {DEPTH} levels")
        if kind is dict:
            _check_keys(value, what)
            value = value.values()
        _check_items(value, what, depth - 1)
    elif kind is float:
        if not isfinite(value):
            raise Refused(f"{what} must not hold {value}: JSON has no NaN or infinity")
    elif kind is int:
        if not _SMALLEST <= value <= _GREATEST:
            raise Refused(f"{what} must hold integers of at most 64 bits: pass longer ones as strings")
    elif kind is not bool and value is not None:
        raise Refused(f"{what} must be JSON (dict, list, str, int, float, bool or None), not {kind.__name__}")


def _check_keys(value: dict[Any, Any], what: str) -> None:
    for key in value:
        if type(key) is not str:
            raise Refused(f"{what} must have strings as keys, not {type(key).__name__}")
        if not key.isascii() or "\0" in key:
            _check_text(key, what)


def _check_items(items: Iterable[Any], what: str, depth: int) -> None:
    # Every job comes through here twice, so what most payloads are made of is let through without a call.
    for item in items:
        kind = type(item)
        if (kind is str and item.isascii() and "\0" not in item) or kind is bool or item is None:
            continue
        if kind is int and _SMALLEST <= item <= _GREATEST:
            continue
        _check(item, what, depth)


def _check_text(value: str, what: str) -> None:
    if _UNSTORABLE.search(value):
        raise Refused(f"{what} must not hold NUL characters or lone surrogates: {value[:40]!a}")


def within(value: object, bounds: tuple[int, int], what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not bounds[0] <= value <= bounds[1]:
        raise Refused(f"{what} must be a whole number from {bounds[0]} to {bounds[1]}, not {value!r}")
    return int(value)


# --- what a worker sends ------------------------------------------------------------------------------------


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


def settleable(settlements: Sequence[Settlement], limits: Limits = DEFAULT) -> list[Settled]:
    """Make each settlement storable; refuse only what no worker can mean: one claim settled twice in one call."""
    bulk(len(settlements), "settlements")
    if len({item.id for item in settlements}) < len(settlements):
        # The same job may come twice with two epochs, of which one is lost; the same claim may not.
        fences = {(item.id, item.epoch, item.worker) for item in settlements}
        if len(fences) < len(settlements):
            raise Refused("one settle call must not hold the same claim twice")
    return [_settled(item, limits) for item in settlements]


def _settled(item: Settlement, limits: Limits) -> Settled:
    outcome: Outcome = item.outcome
    if type(outcome) is Succeeded:
        try:
            result = to_json(outcome.result, "result", limits)
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


def clean(text: object, length: int) -> str:
    """A handler's text that every store can hold: what cannot be stored is replaced, what is too long is cut."""
    try:
        text = str(text)
    except Exception as problem:  # an exception's own __str__ may be broken
        text = f"<no text: {type(problem).__name__}>"
    text = _UNSTORABLE.sub("\ufffd", text)
    return text if len(text) <= length else text[: length - 1] + "…"


def claimable(
    queue: str, worker: str, count: int, span: timedelta, tasks: Collection[str] | None
) -> tuple[str, ...] | None:
    """Check what a claim asks for; answers the known tasks, sorted, or None for any."""
    name(queue, "queue")
    name(worker, "worker")
    limit(count)
    lease(span)
    return None if tasks is None else names(list(tasks), "task")


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
