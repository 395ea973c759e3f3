"""What the words on a command line mean: spans of time, moments, names, ids."""

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from dibs.clock import system_clock
from dibs.scope import Rate

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:  # not generic before click 8.4
    Kind = click.ParamType

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])")


def read_span(text: str) -> timedelta | None:
    """``90``, ``90s``, ``5m``, ``1h30m``, ``2d``; None if it is no span."""
    text = text.strip().lower()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return timedelta(seconds=float(text))
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip():
            return None
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        return None


class Span(Kind):
    """A length of time."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = read_span(str(value))
        if found is None:
            self.fail(f"{value!r} is no length of time: write 90s, 5m, 1h30m or 2d", param, ctx)
        return found


class PerTime(Kind):
    """So many in so much time."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        found = Rate.read(str(value))
        if found is None:
            self.fail(f"{value!r} is no rate: write 100/min, 5/s, 1000/h or 10/30s", param, ctx)
        return found


class Moment(Kind):
    """A moment: a date, a time, or how long ago (or, with ``ahead``, from now) it is."""

    name = "moment"

    def __init__(self, *, ahead: bool = False) -> None:
        self.ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        if text == "now":
            return system_clock()
        try:
            span = read_span(text.removeprefix("+") if self.ahead else text.removesuffix("ago"))
            if span is not None:
                return system_clock() + (span if self.ahead else -span)
            # Without a zone it means what the clock on this machine's wall says.
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            example = "+10m" if self.ahead else "2h (two hours ago)"
            self.fail(f"{value!r} is no moment: write {example}, 2030-01-31 or 2030-01-31T14:30Z", param, ctx)


class JobId(Kind):
    """The id of a job."""

    name = "id"
    thing = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(str(value))
        except ValueError:
            self.fail(f"{value!r} is no {self.thing} id: copy one from dibs {self.thing}s list", param, ctx)


class FlowId(JobId):
    """The id of a flow."""

    thing = "flow"


class Queues(Kind):
    """Queues in strict order (``a,b``), or with weights (``a=3,b=1``)."""

    name = "queues"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int] | tuple[str, ...]:
        if not isinstance(value, str):
            given: dict[str, int] | tuple[str, ...] = value
            return given
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts:
            self.fail("no queue given: write --queues mail,default", param, ctx)
        if not any("=" in part for part in parts):
            return tuple(dict.fromkeys(parts))
        weights: dict[str, int] = {}
        for part in parts:
            name, _, weight = part.rpartition("=")
            if not name or not weight.isdecimal() or not int(weight):
                self.fail(f"{part!r} has no weight: give all queues one (mail=3,default=1), or none", param, ctx)
            weights[name] = int(weight)
        return weights


class Pair(Kind):
    """An argument for a task: ``name=value``, the value as JSON if it is JSON, else as text."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is no argument: write name=value; the app is named by --app", param, ctx)
        try:
            return name.strip(), json.loads(text)
        except ValueError:
            return name.strip(), text


class Plain(Kind):
    """Arguments as one would write them first: ``name=value``, or a JSON object of all."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            return dict(Json().convert(value, param, ctx))
        return dict([Pair().convert(value, param, ctx)])


class Json(Kind):
    """A JSON text; ``-`` reads it from standard input."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = sys.stdin.read() if value == "-" else value
        try:
            return json.loads(text)
        except ValueError as problem:
            self.fail(f"this is not JSON: {problem}", param, ctx)
