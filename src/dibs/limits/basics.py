"""The rules that all others are made of: names, numbers, times, JSON."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import Order
from dibs.limits import payload

NAME_LENGTH = 200
PRIORITIES = (-32768, 32767)
MAX_ATTEMPTS = (1, 1000)
LEASE = (timedelta(seconds=1), timedelta(hours=24))
LONGEST_DELAY = timedelta(days=3650)
BULK = 10_000
DEPTH = payload.DEPTH
TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
ERROR_LENGTH = 2_000
TRACEBACK_LENGTH = 20_000
ERRORS_KEPT = 10
NOTE_LENGTH = 200
RANKS = (0, 2**53 - 1)
"""Whole numbers that a double holds exactly: Redis counts with those."""
LINE_LENGTH = 1_000
LINES_KEPT = 100

WORKERS_KEPT = timedelta(days=1)
LEASE_EXPIRED = "lease expired"

# Control characters, line separators and lone surrogates, the same class as in the CHECKs of the SQL stores.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Limits(msgspec.Struct, frozen=True):
    """The limits that can be set; the others are part of the contract."""

    max_bytes: int = 1 << 20
    """The longest arguments, and the longest result, as JSON in UTF-8."""


DEFAULT = Limits()


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


def span(value: object, what: str) -> timedelta:
    """More than nothing, up to ten years."""
    if not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST_DELAY:
        raise Refused(f"{what} must be a timedelta of more than nothing, up to ten years, not {value!r}")
    return value


def bulk(size: int, what: str) -> None:
    """A call takes at most 10,000 of anything."""
    if size > BULK:
        raise Refused(f"one call takes at most {BULK:,} {what}, not {size:,}: send them in chunks")


def limit(value: object) -> int:
    """How many to claim, list or change at once: 1 to 10,000."""
    return within(value, (1, BULK), "limit")


def most(value: object) -> int | None:
    """How many jobs to look at, for those who would rather have less than wait: 1 to a million, or None for all."""
    return None if value is None else within(value, (1, 1_000_000), "most")


def within(value: object, bounds: tuple[int, int], what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not bounds[0] <= value <= bounds[1]:
        raise Refused(f"{what} must be a whole number from {bounds[0]} to {bounds[1]}, not {value!r}")
    return int(value)


def rank(value: object) -> int:
    """Who counts among those who set the same thing: a whole number, the greatest one does."""
    return within(value, RANKS, "rank")


def to_json(value: Any, what: str, limits: Limits = DEFAULT) -> str:
    """JSON text that every store keeps to the letter."""
    return payload.encode(value, what, limits.max_bytes)


def meta_json(meta: Any, limits: Limits) -> str:
    if not isinstance(meta, dict):
        raise Refused(f"meta must be a dict, not {type(meta).__name__}")
    return to_json(meta, "meta", limits)


def clean(text: object, length: int) -> str:
    """A handler's text that every store can hold: what cannot be stored is replaced, what is too long is cut."""
    try:
        text = str(text)
    except Exception as problem:  # an exception's own __str__ may be broken
        text = f"<no text: {type(problem).__name__}>"
    text = payload.UNSTORABLE.sub("\ufffd", text)
    return text if len(text) <= length else text[: length - 1] + "…"
