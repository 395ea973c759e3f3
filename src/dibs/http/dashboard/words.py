"""How values read on a page: moments, spans, numbers, JSON."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from dibs.errors import Refused
from dibs.http.dashboard.charts import seconds

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = {unit: size for size, unit in _UNITS} | {"m": 60}
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|m|min|h|d)")


def clock(moment: datetime | None) -> str:
    """The whole moment."""
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime | None, now: datetime) -> str:
    """How far away it is: "5 min ago", "in 2 h"."""
    if moment is None:
        return "–"
    apart = (moment - now).total_seconds()
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(apart) >= size), (1, "s"))
    if abs(apart) < 1:
        return "now"
    count = int(abs(apart) // size)
    return f"in {count} {unit}" if apart > 0 else f"{count} {unit} ago"


def span(value: float | None) -> str:
    """So many seconds, in the unit that suits them."""
    return "–" if value is None else seconds(value)


def number(value: float | None, more: bool = False) -> str:
    """A count, with its thousands apart; with a plus if there are more."""
    return "–" if value is None else f"{value:,}{'+' if more else ''}"


def short(id: object) -> str:
    """The end of an id: that is where ids of one moment differ."""
    return f"…{str(id)[-8:]}"


def line(text: object) -> str:
    """The first line of a text, cut where it becomes tiresome."""
    first = str(text).partition("\n")[0]
    return first if len(first) <= 160 else f"{first[:159]}…"


def pretty(value: Any) -> str:
    """JSON to read and to copy."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def share(value: float | None) -> str:
    """From 0 to 1, in percent."""
    return "–" if value is None else f"{value * 100:.0f} %"


def moment_of(text: str, now: datetime, *, past: bool) -> datetime:
    """A moment that somebody typed: "now", "2h" (ago, or from now), or a date with a time; Refused if it is none."""
    given = text.strip()
    if given == "now":
        return now
    found = _SPAN.fullmatch(given)
    if found:
        away = timedelta(seconds=float(found[1]) * _SIZES[found[2]])
        return now - away if past else now + away
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise Refused(f"{given[:40]!a} is no time: write now, 10min, 2h, 3d, or 2026-11-15T08:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
