"""Schedules on a screen: the list, and the page about one."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text

from dibs.cli import show
from dibs.job import Job
from dibs.schedule import Schedule
from dibs.schedules import Listed


def print_list(found: Sequence[Listed]) -> None:
    """A line for each."""
    screen = show.console()
    table = show.Grid("SCHEDULE…", "RHYTHM…", "TASK…?", "NEXT", "UTC?", "LAST", "FROM", "")
    for listed in found:
        coming = listed.next[0] if listed.next else None
        table.row(
            show.one_line(listed.name),
            "?" if listed.schedule is None else rhythm(listed.schedule),
            "?" if listed.schedule is None else show.one_line(listed.schedule.task),
            "–" if coming is None or not listed.live else show.ago(coming, listed.now),
            "–" if coming is None or not listed.live else f"{coming:%Y-%m-%d %H:%M:%S}",
            show.ago(listed.last, listed.now),
            listed.origin,
            _marks(listed),
        )
    show.put(screen, table.fit(screen.width))


def rhythm(schedule: Schedule) -> str:
    """When its ticks are, in a few words."""
    if schedule.every is not None:
        return f"every {_exact(schedule.every)}"
    zone = "" if schedule.zone == "UTC" else f" {schedule.zone}"
    return show.one_line(f"{schedule.cron}{zone}")


def _exact(length: timedelta) -> str:
    """A span of time without rounding: 1d 12h, 90s, 1h 30m."""
    left, parts = length.total_seconds(), []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if left >= size and (size > 60 or left % 60 == 0):
            parts.append(f"{left // size:.0f}{unit}")
            left %= size
    return " ".join([*parts, f"{left:g}s"] if left else parts)


def _marks(listed: Listed) -> Text:
    if listed.problem is not None:
        return Text(show.one_line(listed.problem), style="red")
    if not listed.live:
        seen = (
            "no worker has it yet"
            if listed.seen_at is None
            else f"not seen for {show.span(listed.now - listed.seen_at)}"
        )
        return Text(seen, style="bright_black")
    if listed.paused:
        return Text("paused", style="yellow")
    if listed.late is not None:
        return Text(f"late since {listed.late:%H:%M:%S}: no worker is at work", style="red")
    return Text("" if listed.next else "ended", style="bright_black")


def print_one(listed: Listed, last: Job | None) -> None:
    """Everything about one schedule, and its ticks in its zone and in UTC."""
    screen = show.console()
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(listed, last):
        facts.add_row(name, value)
    show.put(screen, facts)
    if listed.schedule is None or not listed.next:
        return
    zone = listed.schedule.zone
    table = show.Grid(f"NEXT, {zone}", "UTC", "") if zone != "UTC" else show.Grid("NEXT, UTC", "")
    for tick in listed.next:
        here = f"{tick.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %z}"
        away = show.ago(tick, listed.now)
        table.row(*((here, f"{tick:%Y-%m-%d %H:%M:%S}", away) if zone != "UTC" else (here[:-6], away)))
    show.put(screen, Text(""))
    show.put(screen, table.fit(screen.width))


def _facts(listed: Listed, last: Job | None) -> Iterator[tuple[str, str | Text]]:
    yield "schedule", show.one_line(listed.name)
    yield "from", _origin(listed)
    if listed.problem is not None:
        yield "problem", Text(show.one_line(listed.problem), style="red")
    if listed.paused:
        since = "" if listed.paused_at is None else f" since {_when(listed.paused_at, listed.now)}"
        yield "paused", Text(f"yes{since}", style="yellow")
    if (schedule := listed.schedule) is not None:
        yield "rhythm", rhythm(schedule)
        yield "task", show.one_line(schedule.task)
        yield "arguments", show.as_json(schedule.args)
        yield "queue", show.one_line(schedule.queue)
        yield from _rest(schedule)
    if listed.last is not None:
        job = "" if last is None else f", job {last.id} {last.state}"
        yield "last tick", f"{_when(listed.last, listed.now)}{job}"


def _rest(schedule: Schedule) -> Iterator[tuple[str, str]]:
    if schedule.priority:
        yield "priority", str(schedule.priority)
    if schedule.key is not None:
        yield "key", show.one_line(schedule.key)
    if schedule.limit_key is not None:
        yield "limit key", show.one_line(schedule.limit_key)
    for word, span in (("unique for", schedule.unique_for), ("expires in", schedule.expires_in)):
        if span is not None:
            yield word, _exact(span)
    if schedule.jitter:
        yield "jitter", f"up to {show.span(schedule.jitter)}"
    yield (
        "missed",
        {"skip": "skipped", "one": "the latest is made up for", "all": "all are made up for"}[schedule.missed],
    )
    yield "overlap", "skip: no new job while the last is unfinished" if schedule.overlap == "skip" else "allowed"
    for word, moment in (("starts at", schedule.starts_at), ("ends at", schedule.ends_at)):
        if moment is not None:
            yield word, show.utc(moment)


def _origin(listed: Listed) -> str:
    if listed.origin == "stored":
        return "the store, added at run time"
    if listed.seen_at is None:
        return "code, no worker has it yet"
    state = "of workers" if listed.live else "that no worker has any more"
    return f"code {state}, seen {show.ago(listed.seen_at, listed.now)}"


def _when(moment: datetime, now: datetime) -> str:
    return f"{show.utc(moment)}  ({show.ago(moment, now)})"
