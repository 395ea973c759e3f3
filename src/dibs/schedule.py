"""Schedules and their ticks. Pure values and arithmetic: no store, no clock, no worker.

Every function gives the same answer on every machine, so any number of workers can look at a schedule at any time: the
job of a tick has an id made of the schedule's name and the tick, and a store never stores a known id again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Any, Literal, get_args

import msgspec

from dibs import cron, limits
from dibs.clock import EPOCH, span_micros
from dibs.errors import Refused
from dibs.ids import derived_id
from dibs.job import Job, NewJob, Priority

Missed = Literal["skip", "one", "all"]
Overlap = Literal["allow", "skip"]

GRACE = timedelta(seconds=30)
"""A tick is missed once it is this old and nobody has handled it: as long as it takes to notice a dead worker."""
CATCH_UP = 1_000
"""How many missed ticks ``missed="all"`` makes up for: the latest ones."""
SHORTEST = timedelta(seconds=1)
LONGEST_JITTER = timedelta(days=1)
META = "schedule"
"""Where a job's meta names the schedule and the tick that it comes from."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which job to enqueue, and when. Pass it through :func:`check` before use."""

    name: str
    task: str
    args: Any = msgspec.field(default_factory=dict)
    queue: str = "default"
    priority: int = Priority.NORMAL
    max_attempts: int = 5
    key: str | None = None
    """The key of its jobs: no new one while it is busy in the queue."""
    unique_for: timedelta | None = None
    """The key stays busy for at least so long after a job was enqueued. A tick that finds it busy is passed over."""
    limit_key: str | None = None
    """Whose jobs they are, for limits of each key."""
    expires_in: timedelta | None = None
    """A job that has not started so long after it was due ends cancelled."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    cron: str | None = None
    """See :mod:`dibs.cron`. Either this or ``every``."""
    every: timedelta | None = None
    """Elapsed time, counted from ``starts_at``, or else from 1970: no zone, no daylight saving."""
    zone: str = "UTC"
    """Whose clock ``cron`` means."""
    jitter: timedelta = timedelta(0)
    """Each tick's job is due up to this much later, by an amount that depends on nothing but name and tick."""
    missed: Missed = "one"
    """What to do about ticks that nobody was there for: see :func:`due`."""
    overlap: Overlap = "allow"
    """``skip``: no new job while one of this schedule is unfinished."""
    paused: bool = False
    starts_at: datetime | None = None
    """No tick before this; with ``every`` it is the first."""
    ends_at: datetime | None = None
    """No tick at this moment or after it."""


# --- checking -------------------------------------------------------------------------------------------------


def check(schedule: Schedule) -> Schedule:
    """The schedule, with its times in UTC, if it can be kept and its jobs can be stored; else ``Refused``."""
    limits.name(schedule.name, "the name of a schedule")
    _check_rhythm(schedule)
    _check_choices(schedule)
    if schedule.expires_in is not None:
        _check_span(schedule.expires_in, SHORTEST, limits.LONGEST_DELAY, "expires_in")
    starts, ends = (
        None if moment is None else limits.moment(moment, what)
        for moment, what in ((schedule.starts_at, "starts_at"), (schedule.ends_at, "ends_at"))
    )
    if starts is not None and ends is not None and starts >= ends:
        raise Refused(f"ends_at must be later than starts_at: {ends.isoformat()} is not after {starts.isoformat()}")
    _check_meta(schedule.meta)
    checked = msgspec.structs.replace(schedule, starts_at=starts, ends_at=ends)
    limits.admit([job_for(checked, EPOCH)])
    return checked


def _check_rhythm(schedule: Schedule) -> None:
    if (schedule.cron is None) == (schedule.every is None):
        raise Refused("a schedule needs either cron= or every=, and not both: leave one out")
    if schedule.cron is not None:
        cron.check(limits.name(schedule.cron, "cron"))
        cron.check_zone(limits.name(schedule.zone, "zone"))
        return
    _check_span(schedule.every, SHORTEST, limits.LONGEST_DELAY, "every")
    if schedule.zone != "UTC":
        raise Refused("every= counts elapsed time and knows no zone: leave zone out, or use cron=")


def _check_choices(schedule: Schedule) -> None:
    longest = LONGEST_JITTER if schedule.every is None else min(LONGEST_JITTER, schedule.every)
    _check_span(schedule.jitter, timedelta(0), longest, "jitter")
    for what, value, known in (
        ("missed", schedule.missed, get_args(Missed)),
        ("overlap", schedule.overlap, get_args(Overlap)),
        ("paused", schedule.paused, (False, True)),
    ):
        if value not in known or type(value) is not type(known[0]):
            raise Refused(f"{what} must be one of {', '.join(map(str, known))}, not {value!r}")


def _check_span(value: object, shortest: timedelta, longest: timedelta, what: str) -> None:
    if not isinstance(value, timedelta) or not shortest <= value <= longest:
        raise Refused(f"{what} must be a timedelta from {shortest} to {longest}, not {value!r}")


def _check_meta(meta: object) -> None:
    if not isinstance(meta, dict):
        raise Refused(f"meta must be a dict, not {type(meta).__name__}")
    if META in meta:
        raise Refused(f"meta of a schedule must not hold {META!r}: dibs names the schedule and the tick there")


# --- ticks ----------------------------------------------------------------------------------------------------


def ticks(schedule: Schedule, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first ``limit`` ticks later than ``after`` and not later than ``until``, in UTC, rising.

    They are the same whether the schedule is paused or not: a pause keeps them from being due.
    """
    return list(islice(takewhile(lambda tick: tick <= until, _after(schedule, after)), limit))


def upcoming(schedule: Schedule, now: datetime, count: int) -> list[datetime]:
    """The next ``count`` ticks later than ``now``; none while the schedule is paused."""
    return [] if schedule.paused else list(islice(_after(schedule, now), count))


def due(schedule: Schedule, last: datetime | None, now: datetime) -> list[datetime]:
    """The ticks to enqueue now, if those up to ``last`` have been handled; oldest first.

    Ticks younger than :data:`GRACE` are on time, and all of them are due. Older ones have been missed, and are

    - ``skip``: gone;
    - ``one``: made up for by the latest of them, or by the tick that is on time, if there is one;
    - ``all``: due, the latest :data:`CATCH_UP` of them.

    ``last`` is any moment, not only a tick: enqueue what is due, then move it on to ``now``, never back. None means
    that nobody has looked before, so nothing has been missed. Look more often than once in :data:`GRACE`, or ticks
    that come closer together are missed by those who are there. A worker with an older ``last`` than others gets no
    tick that they did not get or did not all miss. After a clock was set back ``last`` lies ahead: none is due. While
    a schedule is paused nothing is due; move ``last`` on all the same, or the ticks of the pause will count as missed.
    """
    if schedule.paused:
        return []
    since = now - GRACE
    handled = since if last is None else last
    on_time = ticks(schedule, max(handled, since), now, limits.BULK)
    if schedule.missed == "skip" or handled >= since or (schedule.missed == "one" and on_time):
        return on_time
    return _latest(schedule, handled, since, 1 if schedule.missed == "one" else CATCH_UP) + on_time


def _latest(schedule: Schedule, after: datetime, until: datetime, count: int) -> list[datetime]:
    """The last ``count`` ticks of a span, without walking through all of a long one."""
    back = timedelta(hours=1)
    while True:
        start = until - min(back, until - after)
        found = list(takewhile(lambda tick: tick <= until, _after(schedule, start)))
        if len(found) >= count or start == after:
            return found[-count:]
        back *= 8


def _after(schedule: Schedule, moment: datetime) -> Iterator[datetime]:
    """All ticks later than ``moment``, rising, until the schedule ends."""
    start, end = schedule.starts_at or EPOCH, schedule.ends_at or limits.TIMES[1]
    moment = max(moment, start - timedelta(microseconds=1))
    if schedule.every is not None:
        return _intervals(start, end, schedule.every, moment)
    assert schedule.cron is not None, "a checked schedule has one of the two"
    return takewhile(lambda tick: tick < end, cron.after(schedule.cron, schedule.zone, moment))


def _intervals(start: datetime, end: datetime, every: timedelta, moment: datetime) -> Iterator[datetime]:
    numbers = range((moment - start) // every + 1, -((start - end) // every))
    return (start + number * every for number in numbers)


def rhythm(schedule: Schedule) -> str:
    """Which ticks it has, in a word to compare: how far a schedule got means nothing once its ticks are others."""
    start, end = (
        "" if moment is None else f" {word} {_stamp(moment)}"
        for word, moment in (("from", schedule.starts_at), ("to", schedule.ends_at))
    )
    if schedule.every is not None:
        return f"every {span_micros(schedule.every)} µs{start}{end}"
    return f"cron {schedule.cron} in {schedule.zone}{start}{end}"


# --- the job of a tick ----------------------------------------------------------------------------------------


def tick_key(schedule: Schedule, tick: datetime) -> str:
    """The name of a tick, for people and for other systems: fits the rule for names, however long the schedule's."""
    return _fitting(schedule.name, f"@{_stamp(tick)}")


def job_for(schedule: Schedule, tick: datetime) -> NewJob:
    """The job of a tick: the same for everybody who asks, with an id that depends on name and tick alone.

    So a tick is stored once, by however many workers, also after its job has finished, and also if the schedule was
    changed in between. Its ``meta`` names the schedule and the tick. With ``overlap="skip"`` the job has a key that all
    jobs of the schedule share, so the store itself refuses a second one while the first is unfinished.
    """
    run_at = tick + _delay(schedule, tick)
    return NewJob(
        id=derived_id(tick, schedule.name),
        task=schedule.task,
        args=schedule.args,
        queue=schedule.queue,
        priority=schedule.priority,
        run_at=run_at,
        max_attempts=schedule.max_attempts,
        key=schedule.key or (_fitting(f"schedule:{schedule.name}", "") if schedule.overlap == "skip" else None),
        unique_for=schedule.unique_for,
        limit_key=schedule.limit_key,
        expires_at=None if schedule.expires_in is None else run_at + schedule.expires_in,
        meta=schedule.meta | {META: {"name": schedule.name, "tick": _stamp(tick)}},
    )


class Tick(msgspec.Struct, frozen=True):
    """Where a job comes from."""

    schedule: str
    at: str
    by_hand: bool


def tick_of(job: Job) -> Tick | None:
    """The schedule and the tick that the job was enqueued for; None if no schedule made it."""
    about = job.meta.get(META)
    if not isinstance(about, dict) or not isinstance(about.get("name"), str) or not isinstance(about.get("tick"), str):
        return None  # anybody may write anything there
    return Tick(about["name"], about["tick"], about.get("by_hand") is True)


def _delay(schedule: Schedule, tick: datetime) -> timedelta:
    micros = span_micros(schedule.jitter)
    return timedelta(microseconds=_hash(f"{schedule.name}\0{_stamp(tick)}") * micros >> 64)


def _stamp(tick: datetime) -> str:
    return tick.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _fitting(name: str, end: str) -> str:
    """A name with that end; the middle of a long one gives way to a hash of the whole."""
    room = limits.NAME_LENGTH - len(end)
    return f"{name if len(name) <= room else f'{name[: room - 17]}~{_hash(name):016x}'}{end}"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
