"""Schedules as people handle them: declared in code, added and changed at run time, paused, looked at."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from dibs.errors import ConfigurationError, Refused, ScheduleUnknown
from dibs.handle import Handle
from dibs.ids import new_id
from dibs.job import Job, Kept, NewJob
from dibs.schedule import META, Missed, Overlap, Schedule, check, job_for, rhythm, ticks, upcoming
from dibs.signals import Delay
from dibs.store import Store
from dibs.task import Task, Tasks
from dibs.timetable import (
    DECLARED,
    HANDLED,
    PAUSED,
    SEEN,
    STORED,
    Handled,
    Reader,
    begin,
    declarations,
    encode,
    handled,
)

Origin = Literal["code", "stored"]
What = Task[..., Any] | NewJob
"""The job of every tick: a task that needs no arguments, or ``task.job(…)``; or ``NewJob(task="…")`` for a task that
another program runs."""

DECLARED_AT_MOST = 1_000
LATE = timedelta(minutes=1)


class Rhythm(TypedDict, total=False):
    """When a schedule has its ticks, and what becomes of those that cannot be; ``Schedule`` says what each means."""

    cron: str | None
    every: Delay | None
    zone: str
    jitter: Delay
    missed: Missed
    overlap: Overlap
    starts_at: datetime | None
    ends_at: datetime | None
    expires_in: Delay | None


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands."""

    name: str
    origin: Origin
    schedule: Schedule | None
    """None if this version of dibs cannot read it: ``problem`` says why."""
    problem: str | None = None
    paused: bool = False
    paused_at: datetime | None = None
    last: datetime | None = None
    """The last tick that a job was enqueued for."""
    late: datetime | None = None
    """The first tick that nobody has handled, if that is more than a minute ago: no worker is at work."""
    next: tuple[datetime, ...] = ()
    """The next ticks; none while it is paused, or if it has ended."""
    seen_at: datetime | None = None
    """For one in code: when a worker last said that its code has it."""
    live: bool = True
    """Whether workers have it: one that is in no worker's code has no ticks."""
    now: datetime
    """By the store's clock."""


# --- making one -----------------------------------------------------------------------------------------------


def schedule_of(name: str, what: What, given: Mapping[str, Any], tasks: Tasks) -> Schedule:
    """The schedule that these words mean, checked, also against the task if it is known; Refused says what is wrong."""
    job, said = _template(what, tasks), _spans(given)
    if said.get("expires_in") is None:
        said["expires_in"] = _expires_in(what, tasks)
    return check(
        Schedule(
            name=name,
            task=job.task,
            args=job.args,
            queue=job.queue,
            priority=job.priority,
            max_attempts=job.max_attempts,
            key=job.key,
            unique_for=job.unique_for,
            limit_key=job.limit_key,
            meta=job.meta,
            **said,
        )
    )


def declare(tasks: Tasks, name: str, what: What, given: Mapping[str, Any]) -> Schedule:
    """Make a schedule of this program's code known; a ConfigurationError names what is wrong with it."""
    try:
        made = schedule_of(name, what, given, tasks)
    except Refused as problem:
        raise ConfigurationError(f"schedule {name}: {problem}") from None
    there = tasks.schedules.get(made.name)
    if there is not None and there != made:
        raise ConfigurationError(f"there is a schedule {name} already: give this one another name")
    if len(tasks.schedules) >= DECLARED_AT_MOST:
        raise ConfigurationError(
            f"code declares at most {DECLARED_AT_MOST:,} schedules: add others with app.schedules.add"
        )
    tasks.schedules[made.name] = made
    return made


def _template(what: What, tasks: Tasks) -> NewJob:
    if isinstance(what, Task):
        return what.options(delay=None, run_at=None, expires_at=None).job()
    if not isinstance(what, NewJob):
        raise Refused(f"a schedule is given a task, or task.job(…), not {type(what).__name__}")
    if what.run_at is not None:
        raise Refused(f"a schedule says when its jobs are due: leave delay and run_at of {what.task} out")
    known = tasks.by_name.get(what.task)
    if known is not None:
        try:
            known.signature.unpack(what.args)
        except Refused as problem:
            raise Refused(str(problem).replace("the stored arguments do not fit it: ", "")) from None
    return what


def _expires_in(what: What, tasks: Tasks) -> timedelta | None:
    """How long after its tick a job may start, as the task is declared: a moment would suit one tick only."""
    task = what if isinstance(what, Task) else tasks.by_name.get(what.task)
    span = None if task is None else task.defaults.expires_in
    if isinstance(what, NewJob) and what.expires_at is not None and span is None:
        raise Refused(f"a schedule says when its jobs expire: leave it out of {what.task}, and give expires_in here")
    return span


def _spans(given: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds may be given as numbers."""
    made = dict(given)
    for word in ("every", "jitter", "expires_in"):
        value = made.get(word)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                made[word] = timedelta(seconds=value)
            except (OverflowError, ValueError):
                raise Refused(f"{word} must be a timedelta or seconds, not {value!r}") from None
    if unknown := sorted(made.keys() - Rhythm.__annotations__.keys()):
        raise Refused(f"there is no {unknown[0]}: a schedule knows {', '.join(Rhythm.__annotations__)}")
    return made


# --- at run time ----------------------------------------------------------------------------------------------


class Schedules:
    """``app.schedules``: what is kept in the store, so every worker follows, within a few seconds."""

    def __init__(self, store: Callable[[], Awaitable[Store]], tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self._reader = Reader()

    async def add(
        self, name: str, what: What, *, paused: bool = False, replace: bool = False, **rhythm: Unpack[Rhythm]
    ) -> Schedule:
        """Store a schedule: ``await app.schedules.add("weekly", report.job("sales"), cron="0 6 * * MON")``.

        A name that is taken is Refused, unless ``replace`` says that the stored one may go. Its first tick is the next
        one: nothing before now counts as missed.
        """
        made, store = schedule_of(name, what, rhythm, self._tasks), await self._store()
        found = await store.kept(_KINDS)
        there = self._listed(found, 0).get(name)
        if there is not None and self._in_code(there):
            raise Refused(f"schedule {name} is declared in code: change it there, or choose another name")
        if there is not None and there.origin == "stored" and not replace:
            raise Refused(f"there is a schedule {name} already: change it, remove it, or choose another name")
        await begin(store, made, found.now)
        await store.keep(PAUSED, {name: {"since": found.now.isoformat()} if paused else None})
        await store.keep(STORED, {name: encode(made)})
        return made

    async def change(self, name: str, what: What | None = None, **rhythm: Unpack[Rhythm]) -> Schedule:
        """Change what is said here of a stored schedule, and leave the rest as it is. Of two changes the last counts.

        If its ticks are others afterwards, they count from now: nothing earlier is missed. A pause stays.
        """
        store = await self._store()
        old = self._stored(await store.kept(_KINDS), name, "changed")
        given = _spans(rhythm)
        if given.get("cron") is not None:
            given.setdefault("every", None)
        if given.get("every") is not None:
            given = {"cron": None, "zone": "UTC", **given}
        if what is not None:
            job = _template(what, self._tasks)
            given |= {field: getattr(job, field) for field in _OF_THE_JOB}
            given.setdefault("expires_in", _expires_in(what, self._tasks) or old.expires_in)
        made = check(msgspec.structs.replace(old, **given))
        await store.keep(STORED, {name: encode(made)})
        return made

    async def pause(self, name: str) -> None:
        """No more ticks until it is resumed; jobs that were enqueued before run. Also for schedules in code."""
        store = await self._store()
        found = await store.kept(_KINDS)
        if not self._one(found, name).paused:
            await store.keep(PAUSED, {name: {"since": found.now.isoformat()}})

    async def resume(self, name: str) -> None:
        """Go on with the next tick. Those of the pause are not made up for."""
        store = await self._store()
        found = await store.kept(_KINDS)
        there = self._one(found, name)
        if there.schedule is not None:
            await begin(store, there.schedule, found.now)
        await store.keep(PAUSED, {name: None})

    async def remove(self, name: str) -> None:
        """Forget a stored schedule. Jobs that were enqueued before run."""
        store = await self._store()
        there = self._one(await store.kept(_KINDS), name)
        if self._in_code(there):
            raise Refused(f"schedule {name} is declared in code: remove it there, or pause it")
        for kind in (STORED, DECLARED, PAUSED, HANDLED):
            await store.keep(kind, {name: None})

    async def list(self, *, ticks: int = 1) -> "list[Listed]":
        """Every schedule, by name, with so many of its next ticks."""
        found = await (await self._store()).kept(_KINDS)
        return [listed for _, listed in sorted(self._listed(found, ticks).items())]

    async def get(self, name: str, *, ticks: int = 10) -> Listed:
        """One schedule; ScheduleUnknown if there is none."""
        return self._one(await (await self._store()).kept(_KINDS), name, ticks)

    async def last_job(self, listed: Listed) -> Job | None:
        """The job of the last tick, if it is still there."""
        if listed.schedule is None or listed.last is None:
            return None
        return await (await self._store()).get(job_for(listed.schedule, listed.last).id)

    async def run(self, name: str) -> Handle[Any]:
        """Enqueue a job as if a tick was due now; also while paused. The schedule goes on as if nothing had been.

        With ``overlap="skip"``, while a job of the schedule is unfinished, the answer is that job.
        """
        store = await self._store()
        found = await store.kept(_KINDS)
        there = self._one(found, name)
        if there.schedule is None:
            raise Refused(f"schedule {name} cannot be run here: {there.problem}")
        tick = job_for(there.schedule, found.now)
        meta = {**tick.meta, META: {**tick.meta[META], "by_hand": True}}
        span = there.schedule.expires_in
        expires_at = None if span is None else found.now + span
        job = msgspec.structs.replace(tick, id=new_id(), run_at=None, expires_at=expires_at, meta=meta)
        [sent] = await store.enqueue([job])
        known = self._tasks.by_name.get(job.task)
        return Handle(sent.id, sent.created, self._store, _as_it_is if known is None else known.signature.unpack_result)

    # --- reading --------------------------------------------------------------------------------------------

    def _in_code(self, there: Listed) -> bool:
        """In this program's, or in that of workers who are there."""
        return there.origin == "code" and (there.live or there.name in self._tasks.schedules)

    def _stored(self, found: Kept, name: str, done: str) -> Schedule:
        there = self._one(found, name)
        if there.origin == "code":
            raise Refused(f"schedule {name} is declared in code and is {done} there; here it can be paused")
        if there.schedule is None:
            raise Refused(f"schedule {name} cannot be {done} here: {there.problem}")
        return msgspec.structs.replace(there.schedule, paused=False)

    def _one(self, found: Kept, name: str, ticks: int = 0) -> Listed:
        there = self._listed(found, ticks, only=name)
        if name not in there:
            names = [*found.values[STORED], *found.values[DECLARED], *self._tasks.schedules]
            near = get_close_matches(name, names, n=1)
            advice = f"did you mean {near[0]}?" if near else "dibs schedules list shows those that there are"
            raise ScheduleUnknown(f"there is no schedule {name}: {advice}")
        return there[name]

    def _listed(self, found: Kept, count: int, only: str | None = None) -> dict[str, Listed]:
        made: dict[str, Listed] = {}
        done, told = handled(found), declarations(found)
        for name in {*told, *self._tasks.schedules}:
            seen = told[name].seen_at if name in told else None
            read = self._tasks.schedules.get(name) or self._reader.schedule(DECLARED, name, told[name].schedule)
            live = seen is not None and found.now - seen < SEEN
            made[name] = self._entry(found, name, "code", read, done=done.get(name), seen=seen, live=live)
        for name, value in found.values[STORED].items():
            read = self._reader.schedule(STORED, name, value)
            made[name] = self._entry(found, name, "stored", read, done=done.get(name), seen=None, live=True)
        wanted = made if only is None else {name: one for name, one in made.items() if name == only}
        return {name: _with_ticks(one, count, done.get(name)) for name, one in wanted.items()}

    @staticmethod
    def _entry(
        found: Kept,
        name: str,
        origin: Origin,
        read: Schedule | str,
        *,
        done: Handled | None,
        seen: datetime | None,
        live: bool,
    ) -> Listed:
        pause = found.values[PAUSED].get(name)
        since = None if pause is None else pause.get("since")
        return Listed(
            name=name,
            origin=origin,
            schedule=read if isinstance(read, Schedule) else None,
            problem=None if isinstance(read, Schedule) else read,
            paused=pause is not None,
            paused_at=datetime.fromisoformat(since) if isinstance(since, str) else None,
            last=None if done is None else done.tick,
            seen_at=seen,
            live=live,
            now=found.now,
        )


_KINDS = (STORED, DECLARED, PAUSED, HANDLED)
_OF_THE_JOB = ("task", "args", "queue", "priority", "max_attempts", "key", "unique_for", "limit_key", "meta")


def _with_ticks(one: Listed, count: int, done: Handled | None) -> Listed:
    if one.schedule is None or one.paused or not count:
        return one
    late: list[datetime] = []
    if one.live and done is not None and done.rhythm == rhythm(one.schedule):
        late = ticks(one.schedule, done.until, one.now - LATE, 1)
    return msgspec.structs.replace(
        one, next=tuple(upcoming(one.schedule, one.now, count)), late=late[0] if late else None
    )


def _as_it_is(stored: Any) -> Any:
    return stored
