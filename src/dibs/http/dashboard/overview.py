"""What stands on the first page: how things are in one sentence, the numbers, and the charts."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from dibs.http.dashboard.charts import Series, bar_chart, line_chart, seconds
from dibs.http.dashboard.words import number
from dibs.http.service.data import Finding, Overview, Samples, Slot
from dibs.job import State

LINES = 6
"""So many queues have a line of their own."""


class Verdict(msgspec.Struct, frozen=True):
    """How things are."""

    level: str
    headline: str
    findings: tuple[Finding, ...]


class Chart(msgspec.Struct, frozen=True):
    title: str
    legend: tuple[tuple[str, str], ...]
    picture: Markup


def verdict(seen: Overview) -> Verdict:
    """The worst first; nothing but the headline if all is well."""
    wrong = sorted((each for each in seen.findings if each.level != "ok"), key=lambda each: each.level != "fail")
    if not wrong:
        workers = f"{seen.workers_live} worker{'' if seen.workers_live == 1 else 's'}"
        due, running = _many(seen, seen.due, State.QUEUED), _many(seen, seen.states[State.RUNNING], State.RUNNING)
        return Verdict("ok", f"All is well: {workers}, {due} due, {running} running", ())
    worst = wrong[0]
    rest = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    headline = f"{worst.about}: {worst.text}{rest}"
    return Verdict(worst.level, headline[0].upper() + headline[1:], tuple(wrong))


def place_of(finding: Finding) -> str:
    """The page where something can be done about it."""
    thing = finding.about.partition(" ")[0]
    return _PLACES.get(thing, "")


_PLACES = {
    "queue": "queues",
    "queues": "queues",
    "worker": "workers",
    "workers": "workers",
    "failures": "failures",
    "schedule": "schedules",
    "schedules": "schedules",
}


def numbers(seen: Overview) -> list[tuple[str, str, str]]:
    """A name, a value, and where it leads."""
    states = seen.states
    return [
        ("due", _many(seen, seen.due, State.QUEUED), "jobs?state=queued"),
        ("for later", _many(seen, seen.scheduled, State.QUEUED), "jobs?state=queued"),
        ("running", _many(seen, states[State.RUNNING], State.RUNNING), "jobs?state=running"),
        ("failed", _many(seen, states[State.FAILED], State.FAILED), "failures"),
        ("a second", "–" if seen.throughput is None else f"{seen.throughput:.3g}", "jobs?state=succeeded"),
        ("wait, p99", "–" if seen.latency.p99 is None else seconds(seen.latency.p99), "queues"),
        ("run, p99", "–" if seen.runtime.p99 is None else seconds(seen.runtime.p99), "workers"),
        ("workers", f"{seen.workers_live:,}", "workers"),
    ]


def _many(seen: Overview, count: int, state: State) -> str:
    return number(count, state in seen.more)


def counting(seen: Overview) -> str:
    """What is to be known of the numbers, if it is something."""
    if seen.more:
        return "A plus means that there are more: they are being counted."
    age = (seen.at - seen.counted_at).total_seconds()
    return f"Jobs were counted {age:.0f} s ago." if age >= 1 else ""


def charts(samples: Samples) -> list[Chart]:
    """What workers recorded."""
    slots = samples.slots
    if not slots:
        return []
    starts = [slot.at for slot in slots]
    ended = [
        _series("succeeded", slots, lambda slot: slot.total.succeeded, "succeeded"),
        _series("failed", slots, lambda slot: slot.total.failed, "failed"),
        _series("cancelled", slots, lambda slot: slot.total.cancelled, "cancelled"),
    ]
    waits = [
        _series("half wait less than", slots, lambda slot: slot.total.latency.p50, "s1"),
        _series("1 of 100 waits more than", slots, lambda slot: slot.total.latency.p99, "s2"),
    ]
    runs = [
        _series("half run less than", slots, lambda slot: slot.total.runtime.p50, "s1"),
        _series("1 of 100 runs more than", slots, lambda slot: slot.total.runtime.p99, "s2"),
    ]
    depths = _depths(slots)
    minutes = f"{samples.slot_seconds / 60:g} min"
    return [
        Chart(f"Ended in {minutes}", _legend(ended), bar_chart("jobs that ended", starts, ended)),
        Chart("Due, by queue", _legend(depths), line_chart("due jobs", starts, depths)),
        Chart("Time from due to start", _legend(waits), line_chart("time to start", starts, waits, seconds)),
        Chart("Time to run", _legend(runs), line_chart("run time", starts, runs, seconds)),
    ]


def _depths(slots: Sequence[Slot]) -> list[Series]:
    """The fullest queues, each with a line."""
    highest: dict[str, int] = {}
    for slot in slots:
        for name, queue in slot.queues.items():
            highest[name] = max(highest.get(name, 0), queue.due)
    names = sorted(highest, key=lambda name: (-highest[name], name))[:LINES]
    return [_depth(name, slots, f"s{number}") for number, name in enumerate(sorted(names), 1)]


def _depth(name: str, slots: Sequence[Slot], kind: str) -> Series:
    return _series(name, slots, lambda slot: slot.queues[name].due if name in slot.queues else None, kind)


def _series(name: str, slots: Sequence[Slot], value: Callable[[Slot], Any], kind: str) -> Series:
    return Series(name, tuple(value(slot) for slot in slots), kind)


def _legend(series: Sequence[Series]) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.kind) for each in series)
