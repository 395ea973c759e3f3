"""Looking for jobs by what no store has an index of: text in arguments and errors, and groups of equal failures.

Done by walking through pages in bounded steps, never to the end at once: whoever asks gets a place to go on from.
"""

import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import lru_cache
from uuid import UUID

import msgspec
from msgspec import UNSET

from dibs.http.service import shown
from dibs.http.service.data import FailureGroup, Failures, JobFilter
from dibs.job import Filter, Job, State
from dibs.redaction import Redaction
from dibs.store import Store

STEP = 500
"""How many jobs are read at once."""
LOOKED_AT = 5_000
"""How many jobs are read for one page of a search in their texts."""
EXAMINED = 4_000
"""How many jobs a store looks at in one step, where it has no index of what is asked for."""
SECONDS = 0.08
"""No step is begun when a search has taken so long."""
GROUPED = 5_000
"""How many failed jobs are looked at to group them, the newest; fewer where that takes long."""

Matches = Callable[[Job], bool]

_VARIABLE = re.compile(
    r"'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|\b0x[0-9a-fA-F]+\b"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*"
)


def store_filter(which: JobFilter, *, everything: bool = False) -> Filter:
    """The part of a filter that stores know."""

    def moment(value: datetime | msgspec.UnsetType) -> datetime | None:
        return None if value is UNSET else value

    return Filter(
        ids=which.id or None,
        queues=which.queue or None,
        tasks=which.task or None,
        states=which.state or None,
        workers=which.worker or None,
        keys=which.key or None,
        flows=which.flow or None,
        created_since=moment(which.created_since),
        created_before=moment(which.created_before),
        finished_since=moment(which.finished_since),
        finished_before=moment(which.finished_before),
        everything=everything,
    )


def matcher(which: JobFilter) -> Matches | None:
    """The part that they do not know, if there is one. For redacted jobs: what is hidden cannot be found."""
    text, group = which.text.casefold(), which.group
    if not text and not group:
        return None
    return lambda job: (not group or group_of(job)[0] == group) and (not text or _has(job, text))


def _has(job: Job, text: str) -> bool:
    if any(text in each.error.casefold() for each in job.errors):
        return True
    return text in msgspec.json.encode(job.args).decode().casefold()


# --- walking --------------------------------------------------------------------------------------------------


async def walk(
    store: Store, which: Filter, after: UUID | None = None, most: int | None = None
) -> AsyncIterator[tuple[Sequence[Job], UUID | None]]:
    """Page after page, each with the place behind it; pages that look at so many jobs may be short."""
    while True:
        page = await store.find(which, after, STEP, most=most)
        yield page.jobs, page.after
        after = page.after
        if after is None:
            return


async def find(
    store: Store, which: JobFilter, redaction: Redaction, after: UUID | None, limit: int
) -> tuple[list[Job], UUID | None, int]:
    """The first ``limit`` jobs, where to go on, and how many were looked at, about. All of them redacted.

    There may be fewer, or none, and still a place to go on: it does not look longer than somebody wants to wait.
    """
    matches, chosen = matcher(which), store_filter(which)
    if matches is None:
        jobs, after, looked = await _by_fields(store, chosen, after, limit)
        return [redaction.job(job) for job in jobs], after, looked
    found, looked, until = list[Job](), 0, time.monotonic() + SECONDS
    async for jobs, rest in walk(store, chosen, after, EXAMINED):
        for number, raw in enumerate(jobs, 1):
            job = redaction.job(raw)
            if matches(job):
                found.append(job)
            if len(found) == limit:
                at_end = rest is None and number == len(jobs)
                return found, None if at_end else raw.id, looked + number
        looked += len(jobs) if len(jobs) == STEP or rest is None else EXAMINED
        if looked >= LOOKED_AT or time.monotonic() > until:
            return found, rest, looked
    return found, None, looked


async def _by_fields(
    store: Store, which: Filter, after: UUID | None, limit: int
) -> tuple[Sequence[Job], UUID | None, int]:
    """What stores find by themselves."""
    found, looked, until = list[Job](), 0, time.monotonic() + SECONDS
    while True:
        page = await store.find(which, after, limit - len(found), most=EXAMINED)
        found += page.jobs
        after = page.after
        full = len(found) == limit
        looked += len(page.jobs) if full or after is None else EXAMINED
        if full or after is None or time.monotonic() > until:
            return found, after, looked


# --- failures -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=10_000)
def common(error: str) -> str:
    """What an error has in common with its like: its first line, without numbers, ids and what stands in quotes."""
    return shown.cut(_VARIABLE.sub("…", error.partition("\n")[0]), 200)


def group_of(job: Job) -> tuple[str, str]:
    """The group of a redacted failed job, and what it has in common; an empty group for one without an error."""
    error = common(job.errors[-1].error) if job.errors else "no error was recorded"
    name = hashlib.sha256(f"{job.task}\0{error}".encode()).hexdigest()[:16]
    return name, error


class _Group:
    def __init__(self, job: Job, error: str) -> None:
        self.newest = job
        self.error = error
        self.count = 0
        self.first_at = self.last_at = _ended(job)
        self.queues: set[str] = set()

    def add(self, job: Job) -> None:
        at = _ended(job)
        self.count += 1
        self.queues.add(job.queue)
        self.first_at = min(self.first_at, at)
        if at > self.last_at:
            self.last_at, self.newest = at, job


def _ended(job: Job) -> datetime:
    return job.finished_at or job.created_at


async def failures(store: Store, which: JobFilter, redaction: Redaction, now: datetime) -> Failures:
    """The newest failed jobs, by error: so many of them as there is time for."""
    chosen = msgspec.structs.replace(store_filter(which), states=(State.FAILED,))
    matches, groups, looked, more = matcher(which), dict[str, _Group](), 0, False
    until = time.monotonic() + SECONDS
    async for jobs, rest in walk(store, chosen, most=EXAMINED):
        looked += len(jobs)
        for raw in jobs:
            job = redaction.job(raw)
            if matches is None or matches(job):
                name, error = group_of(job)
                groups.setdefault(name, _Group(job, error)).add(job)
        more = rest is not None
        if looked >= GROUPED or time.monotonic() > until:
            break
    made = [_shown(name, group) for name, group in groups.items()]
    made.sort(key=lambda group: (-group.count, group.group))
    return Failures(seen_at=now, groups=tuple(made[:200]), looked_at=looked, complete=not more and len(made) <= 200)


def _shown(name: str, group: _Group) -> FailureGroup:
    return FailureGroup(
        group=name,
        task=group.newest.task,
        error=group.error,
        example=shown.last_error(group.newest) or group.error,
        count=group.count,
        first_at=group.first_at,
        last_at=group.last_at,
        queues=tuple(sorted(group.queues)),
        newest=group.newest.id,
    )
