"""Instants. Stores keep whole microseconds since 1970 in UTC; people see aware datetimes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time_ns

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> datetime:
    """The wall clock of this machine, in UTC."""
    return datetime.now(UTC)


def micros_of(clock: Clock) -> Callable[[], int]:
    """That clock, in whole microseconds since 1970; the system's without a datetime, which takes four times as long."""
    return _system_micros if clock is system_clock else lambda: to_micros(clock())


def _system_micros() -> int:
    return time_ns() // 1_000


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970; exact, unlike ``timestamp()``."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The aware UTC datetime of that many microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def span_micros(span: timedelta) -> int:
    """A duration in whole microseconds."""
    return span // _MICROSECOND
