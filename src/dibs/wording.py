"""Times and names in sentences: exact enough to act on, short enough to read."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta


def some(names: Sequence[str]) -> str:
    """The first three, and how many others there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def clock(moment: datetime) -> str:
    """The time of a day that is plain from what is said."""
    return f"{moment.astimezone(UTC):%H:%M:%S} UTC"


def when(moment: datetime, now: datetime) -> str:
    """A moment with its distance."""
    near = _span(abs(moment - now))
    exact = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{exact} (in {near})" if moment > now else f"{exact} ({near} ago)"


def _span(apart: timedelta) -> str:
    seconds = apart.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
