"""What a queue may be told about its order, and a scope about its limits."""

from datetime import timedelta

from dibs.errors import Refused
from dibs.job import Order
from dibs.limits.basics import name, within
from dibs.scope import Limit, Rate, Scope

AGEING = (timedelta(milliseconds=1), timedelta(days=1))
CONCURRENCY = (0, 1_000_000)
STARTS = (1, 1_000_000)
_PER = (timedelta(milliseconds=1), timedelta(days=1))


def ageing(value: object, order: Order) -> timedelta | None:
    """From a millisecond to a day, in a fifo queue; None for none."""
    if value is None:
        return None
    if not isinstance(value, timedelta) or not AGEING[0] <= value <= AGEING[1]:
        raise Refused(f"ageing must be a timedelta from 1 ms to 1 day, or None for none, not {value!r}")
    if order is Order.LIFO:
        raise Refused("a lifo queue cannot age: its newest job is always first; choose fifo or no ageing")
    return value


def scope(value: object) -> Scope:
    """A queue, a task, or each key of a queue."""
    if not isinstance(value, Scope):
        raise Refused(f"a limit is set for a dibs.Scope, not for {type(value).__name__}")
    if (value.queue is None) == (value.task is None):
        raise Refused("a scope names a queue or a task: one of the two")
    if value.each_key not in (True, False) or (value.each_key and value.queue is None):
        raise Refused("each_key belongs to a queue: name the queue")
    if value.queue is not None:
        name(value.queue, "queue")
    else:
        name(value.task, "task")
    return value


def limited(value: object) -> Limit:
    """A limit that says something, in numbers that every store can count with."""
    if not isinstance(value, Limit):
        raise Refused(f"a limit must be a dibs.Limit, or None for none, not {type(value).__name__}")
    if value.concurrency is None and value.rate is None:
        raise Refused("a limit must say something: concurrency, rate, or both; None takes a limit away")
    if value.concurrency is not None:
        within(value.concurrency, CONCURRENCY, "concurrency")
    if value.rate is not None:
        _rate(value.rate)
    return value


def _rate(rate: object) -> None:
    if not isinstance(rate, Rate):
        raise Refused(f"rate must be a dibs.Rate, not {type(rate).__name__}")
    count, per = within(rate.count, STARTS, "the count of a rate"), _per(rate.per)
    if per < timedelta(microseconds=count):
        raise Refused(f"a rate is at most one start a microsecond, not {count:,} in {per}")


def _per(value: object) -> timedelta:
    if not isinstance(value, timedelta) or not _PER[0] <= value <= _PER[1]:
        raise Refused(f"the time of a rate must be a timedelta from 1 ms to 1 day, not {value!r}")
    return value
