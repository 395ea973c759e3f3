"""What a store keeps about schedules: those added at run time, those that code declares, pauses, and how far each got.

Four kinds of :meth:`dibs.store.Store.keep`, each by the schedule's name, and each written by those who know: operators
add and pause, workers say what their code declares and up to when ticks were handled. So nobody has to read, change and
write back what somebody else may be changing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dibs.clock import to_micros
from dibs.errors import Refused
from dibs.job import Kept
from dibs.schedule import Schedule, check, rhythm
from dibs.store import Store

STORED = "schedule"
"""Schedules that were added at run time."""
DECLARED = "schedule in code"
"""Schedules that the code of some worker declares, and when a worker last said so. To look at: nobody acts by them."""
PAUSED = "schedule paused"
HANDLED = "schedule handled"
"""Up to which moment each schedule's ticks were enqueued, or passed over. Ranked by that moment: it never falls."""

TELL_EVERY = timedelta(seconds=60)
"""How often somebody says again what code declares."""
SEEN = timedelta(minutes=3)
"""A declaration that nobody repeated for so long is gone from the code, or its workers are."""
FORGOTTEN = timedelta(days=7)
"""After which nobody is shown it any more."""

_FIELDS = frozenset(Schedule.__struct_fields__)


class Handled(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule got."""

    until: datetime
    rhythm: str
    """Of the ticks that this is about. If the schedule has others by now, nothing is known of those."""
    tick: datetime | None = None
    """The last one that a job was enqueued for."""


class Declared(msgspec.Struct, frozen=True):
    """A schedule in code, as a worker told it."""

    seen_at: datetime
    schedule: dict[str, Any]


class Timetable(msgspec.Struct, frozen=True):
    """All schedules at one instant, by name. What cannot be read is in ``problems``, with the reason."""

    now: datetime
    schedules: dict[str, Schedule]
    handled: dict[str, Handled]
    problems: dict[str, str]


class Reader:
    """Makes schedules of what is kept. Remembers what it has read, so that looking again costs little."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], tuple[Mapping[str, Any], Schedule | str]] = {}

    def timetable(self, found: Kept, declared: Mapping[str, Schedule]) -> Timetable:
        """The stored schedules and those of this program's code; a stored one takes the place of one in code."""
        schedules, problems = dict(declared), dict[str, str]()
        for name, value in found.values[STORED].items():
            self._put(name, self.schedule(STORED, name, value), schedules, problems)
        for name in found.values[PAUSED].keys() & schedules.keys():
            schedules[name] = msgspec.structs.replace(schedules[name], paused=True)
        return Timetable(found.now, schedules, handled(found), problems)

    def schedule(self, kind: str, name: str, value: Mapping[str, Any]) -> Schedule | str:
        """One schedule, or why it cannot be read."""
        known = self._read.get((kind, name))
        if known is None or known[0] != value:
            known = self._read[kind, name] = (value, _readable(name, value))
        return known[1]

    @staticmethod
    def _put(name: str, read: Schedule | str, schedules: dict[str, Schedule], problems: dict[str, str]) -> None:
        if isinstance(read, Schedule):
            schedules[name] = read
        else:
            problems[name] = read
            schedules.pop(name, None)


def _readable(name: str, value: Mapping[str, Any]) -> Schedule | str:
    try:
        return decode(name, value)
    except Refused as problem:
        return str(problem)


def encode(schedule: Schedule) -> dict[str, Any]:
    """The schedule as JSON, without what is as usual: so a later version that can do more is understood for longer."""
    made: dict[str, Any] = msgspec.to_builtins(schedule)
    del made["name"]
    return made


def decode(name: str, value: Mapping[str, Any]) -> Schedule:
    """The schedule, checked; Refused says why it cannot be run here."""
    if newer := sorted(value.keys() - _FIELDS):
        raise Refused(f"it was stored by another version of dibs, with {', '.join(newer)}: upgrade this one")
    try:
        return check(msgspec.convert({**value, "name": name}, Schedule))
    except msgspec.ValidationError as problem:
        raise Refused(f"it cannot be read: {str(problem)[:200]}") from None


def handled(found: Kept) -> dict[str, Handled]:
    """How far each schedule got; one that cannot be read counts as never looked at."""
    made = {}
    for name, value in found.values[HANDLED].items():
        try:
            made[name] = msgspec.convert(value, Handled)
        except msgspec.ValidationError:
            continue
    return made


def declarations(found: Kept) -> dict[str, Declared]:
    """What code declares, as far as it can be read."""
    made = {}
    for name, value in found.values[DECLARED].items():
        try:
            made[name] = msgspec.convert(value, Declared)
        except msgspec.ValidationError:
            continue
    return made


# --- writing --------------------------------------------------------------------------------------------------


async def move_on(store: Store, done: Mapping[str, Handled], now: datetime) -> None:
    """Record how far schedules got. Somebody who was held up and comes with an earlier moment changes nothing."""
    await store.keep(HANDLED, {name: msgspec.to_builtins(one) for name, one in done.items()}, rank=to_micros(now))


async def begin(store: Store, schedule: Schedule, now: datetime) -> None:
    """From now on, whatever was known before: nothing earlier is missed."""
    await store.keep(HANDLED, {schedule.name: None})
    await move_on(store, {schedule.name: Handled(now, rhythm(schedule))}, now)


async def tell(store: Store, schedules: Iterable[Schedule]) -> None:
    """Say what this program's code declares, unless somebody just did, and forget what nobody has said for long."""
    found = await store.kept([DECLARED])
    now, known = found.now, declarations(found)
    wanted = {schedule.name: encode(schedule) for schedule in schedules}
    fresh = {name for name, one in known.items() if now - one.seen_at < TELL_EVERY / 2}
    said: dict[str, dict[str, Any] | None] = {
        name: None for name in found.values[DECLARED] if name not in known or now - known[name].seen_at > FORGOTTEN
    }
    for name, made in wanted.items():
        if name not in fresh or known[name].schedule != made:
            said[name] = msgspec.to_builtins(Declared(now, made))
    if said:
        await store.keep(DECLARED, said)
