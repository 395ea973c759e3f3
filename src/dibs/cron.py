"""Cron expressions in time zones. Pure arithmetic: the same instants on every machine, wherever one starts to count.

Five fields (minute, hour, day of the month, month, weekday) as in Debian's cron, with names, lists, ranges and steps,
``L`` (last day), ``LW`` (last working day), ``5L`` (last Friday), ``MON#1`` (first Monday); or a name: ``@daily``. If
both day and weekday are given, either may match; if one of them starts with a star, both must.

When clocks change:

- An expression with fixed times (neither minute nor hour starts with a star) runs once for each of its times. One that
  is skipped when clocks go forward runs at the end of the gap: 02:30 at 03:00. Several in one gap run once. One that
  comes twice when clocks go back runs the first time only.
- An expression with a star in minute or hour follows the clock on the wall: what it does not show does not run, what
  it shows twice runs twice. So ``0 * * * *`` runs 23 times on the short day and 25 times on the long one.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from dibs.errors import Refused

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

# What these files hold is up to the machine (or counts leap seconds), so two workers would not agree.
_OF_ONE_MACHINE = ("localtime", "posixrules", "right/")
_LONGEST_CHANGE = timedelta(days=1)
_ADVICE = "write five fields, minute hour day month weekday, as in '30 2 * * MON-FRI'"


def check(expression: str) -> str:
    """The expression, if it is one and has a moment at all within fifty years."""
    shown = repr(expression)[:100]
    if expression.startswith("@") and expression.lower() not in NAMED:
        raise Refused(f"cron {shown} is no known name: use one of {', '.join(NAMED)}, or {_ADVICE}")
    fields = _fields(expression)
    # A sixth field would be seconds: first for some, last for others, and with other rules when clocks change.
    if len(fields) != 5:
        raise Refused(f"cron {shown} has {len(fields)} fields: {_ADVICE}, or use every= for seconds")
    try:
        first = next(CronSim(" ".join(fields), datetime(2000, 1, 1)), None)
    except CronSimError as problem:
        raise Refused(f"cron {shown} is not understood ({str(problem).lower()}): {_ADVICE}") from None
    if first is None:
        raise Refused(f"cron {shown} never comes: no day matches all of its day, month and weekday")
    return expression


def check_zone(name: str) -> str:
    """The name, if the database of time zones has it and it means the same everywhere."""
    try:
        if name.startswith(_OF_ONE_MACHINE):
            raise ValueError(name)
        _zone(name)
    except (KeyError, ValueError, OSError):  # KeyError: not found; OSError: a folder of zones, such as "Europe"
        raise Refused(
            f"zone {repr(name)[:100]} is no known time zone: use a name such as 'UTC' or 'Europe/Berlin'"
        ) from None
    return name


def after(expression: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """The instants of a checked expression later than ``moment``, in UTC, rising, as long as there are any.

    Which instants these are does not depend on ``moment``: a later start only leaves out the earlier ones.
    """
    fields, where = _fields(expression), _zone(zone)
    follows_the_wall = fields[0].startswith("*") or fields[1].startswith("*")
    instants = _shown(fields, where, moment) if follows_the_wall else _fixed(fields, where, moment)
    return (instant for instant in instants if instant > moment)


def _fields(expression: str) -> list[str]:
    return NAMED.get(expression.lower(), expression).split()


@lru_cache(maxsize=1_000)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _fixed(fields: list[str], zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """Each time of the expression once: at the end of a gap, the first time in a fold. So cronsim has it."""
    return (found.astimezone(UTC) for found in _matches(fields, moment.astimezone(zone)))


def _shown(fields: list[str], zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """Each instant at which the clock on the wall shows a time of the expression.

    cronsim walks through plain wall times only. Its own walk through a zone steps over times after a change of half
    an hour or at midnight, and over which ones depends on where it starts (docs/decisions/0013).
    """
    # The wall may soon show again what it shows now: begin at the lowest time that lies ahead.
    ahead = (moment.astimezone(zone), (moment + _LONGEST_CHANGE).astimezone(zone))
    start = moment.astimezone(UTC) + min(one.utcoffset() or timedelta(0) for one in ahead)
    again: deque[datetime] = deque()
    for wall in _matches(fields, start.replace(tzinfo=None)):
        first, second = _instants(wall, zone)
        if first > second:
            continue  # in a gap
        while again and again[0] < first:
            yield again.popleft()
        yield first
        if first < second:
            again.append(second)
    yield from again


def _instants(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The first and the second time that clocks show ``wall``: as a rule the same; in a gap the first is the later."""
    return (
        wall.replace(tzinfo=zone, fold=0).astimezone(UTC),
        wall.replace(tzinfo=zone, fold=1).astimezone(UTC),
    )


def _matches(fields: list[str], start: datetime) -> Iterator[datetime]:
    try:
        yield from CronSim(" ".join(fields), start)
    except OverflowError:  # past the year 9999
        return
