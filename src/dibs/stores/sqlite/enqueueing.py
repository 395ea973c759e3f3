"""Storing jobs: in a transaction of ours, or through any driver in a transaction of the caller's."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from dibs.clock import span_micros, to_micros
from dibs.job import Enqueued, OnConflict, State
from dibs.limits import Admitted, alike
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, many
from dibs.stores.sqlite.rows import as_uuid

Execute = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]
"""Runs one statement with ``?`` placeholders and gives its rows: all that is needed of a driver."""

Holder = Sequence[Any]
"""Of a job that keeps a key busy: its id, state, created_at and run_at."""

_AT_ONCE, _CHARACTERS = 100, 10_000_000
"""Jobs that differ, in one step, and how long they may be together."""
_DUE = 2
"""Where the parameters of become.sql have the time."""


def _params(job: Admitted, now: int) -> tuple[Any, ...]:
    return (
        job.id.bytes,
        job.queue,
        job.task,
        job.priority,
        now if job.run_at is None else to_micros(job.run_at),
        now,
        job.max_attempts,
        job.key,
        None if job.unique_for is None else now + span_micros(job.unique_for),
        None if job.expires_at is None else to_micros(job.expires_at),
        job.limit_key or "",
        job.meta,
        job.args,
    )


def enqueue(db: Connection, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """All at once: what keeps keys busy is read first, and answered for after the others were stored."""
    if len(jobs) == 1:
        return enqueue_single(db, jobs[0], now) or [_there(db.rows, jobs[0], now)]
    holders = _holders(db, jobs, now)
    free = [job for job in jobs if (job.queue, job.key) not in holders] if holders else jobs
    newest = db.rows(sql.NEWEST_ROW)[0]
    stored = _store(db, free, now) if free else 0
    if stored == len(jobs):
        return [Enqueued(job.id, True) for job in jobs]
    new = {row[0] for row in db.rows(sql.STORED_SINCE, newest)} if stored else set()
    return _answers(db, jobs, holders, _known(db, jobs, new), now)


def enqueue_single(db: Connection, job: Admitted, now: int) -> list[Enqueued] | None:
    """One job, in one statement; None if its id is known or its key is busy, and nothing was done."""
    return [Enqueued(job.id, True)] if db.run(sql.ENQUEUE_ONE, _params(job, now)) == 1 else None


def _store(db: Connection, jobs: Sequence[Admitted], now: int) -> int:
    """Store those whose ids are unknown; answers how many."""
    if alike(jobs):
        first, ids = jobs[0], [job.id.bytes for job in jobs]
        packed = [id_ + job.args.encode() for id_, job in zip(ids, jobs, strict=True)]
        run_at = now if first.run_at is None else to_micros(first.run_at)
        shared = first.queue, first.task, first.priority, run_at, now, first.max_attempts, first.meta
        if stored := db.run(sql.ENQUEUE_ALIKE, (many(packed), *shared, min(ids), max(ids))):
            return stored
    return sum(_store_part(db, part, now) for part in _parts(jobs))


def _parts(jobs: Sequence[Admitted]) -> Iterator[list[Admitted]]:
    """A hundred at a time, or fewer that are long: a text of SQLite has an end."""
    part: list[Admitted] = []
    room = _CHARACTERS
    for job in jobs:
        room -= len(job.args) + len(job.meta)
        if part and (room < 0 or len(part) == _AT_ONCE):
            yield part
            part, room = [], _CHARACTERS - len(job.args) - len(job.meta)
        part.append(job)
    yield part


def _store_part(db: Connection, jobs: Sequence[Admitted], now: int) -> int:
    if len(jobs) == 1:
        return db.run(sql.ENQUEUE_ONE, _params(jobs[0], now))
    return db.run(sql.ENQUEUE_FREE, (_as_json(jobs, now),))


def _as_json(jobs: Sequence[Admitted], now: int) -> str:
    rows = (_params(job, now) for job in jobs)
    return msgspec.json.encode([(id_.hex(), *values) for id_, *values in rows]).decode()


def _holders(db: Connection, jobs: Sequence[Admitted], now: int) -> dict[tuple[str, str | None], Holder]:
    """What keeps keys of these jobs busy, by queue and key."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for job in jobs:
        if job.key is not None:
            keys[job.queue].add(job.key)
    if not keys:
        return {}
    wanted = msgspec.json.encode(keys).decode()
    finished = db.rows(sql.WINDOW_HOLDERS, (wanted, now))
    finished.sort(key=itemgetter(2))  # of several the newest, and rather than any of them the unfinished one
    return {row[:2]: row[2:] for row in (*finished, *db.rows(sql.KEY_HOLDERS, (wanted,)))}


def _known(db: Connection, jobs: Sequence[Admitted], new: Collection[bytes]) -> set[bytes]:
    """The ids that were those of jobs before this call, told which came with it."""
    asked = [job.id.hex for job in jobs if job.id.bytes not in new]
    return {row[0] for row in db.rows(sql.KNOWN_IDS, (msgspec.json.encode(asked).decode(),))} if asked else set()


def _answers(
    db: Connection,
    jobs: Sequence[Admitted],
    holders: dict[tuple[str, str | None], Holder],
    known: set[bytes],
    now: int,
) -> list[Enqueued]:
    """What each finds when its turn comes, told what there was before all of them; the new ones are stored already."""
    answers, becoming = [], []
    for job in jobs:
        place = job.queue, job.key
        if job.id.bytes in known:
            answers.append(Enqueued(job.id, False))
        elif (holder := holders.get(place)) is None:
            known.add(job.id.bytes)
            if job.key is not None:
                due = now if job.run_at is None else to_micros(job.run_at)
                holders[place] = job.id.bytes, State.QUEUED, now, due
            answers.append(Enqueued(job.id, True))
        elif _changes(job, holder):
            becoming.append(_becoming(job, holder, now))
            holders[place] = *holder[:3], becoming[-1][_DUE]
            answers.append(Enqueued(as_uuid(holder[0]), False, True))
        else:
            answers.append(Enqueued(as_uuid(holder[0]), False))
    if becoming:
        db.run_all(sql.BECOME, becoming)
    return answers


def enqueue_each(execute: Execute, jobs: Sequence[Admitted], now: int) -> list[Enqueued]:
    """One by one, saying of each whether it is new; ``now`` in microseconds."""
    return [
        Enqueued(job.id, True) if execute(sql.ENQUEUE, _params(job, now)) else _there(execute, job, now) for job in jobs
    ]


def _there(execute: Execute, job: Admitted, now: int) -> Enqueued:
    """The job that kept this one out, and what it becomes if it may."""
    if execute(sql.KNOWN, (job.id.bytes, job.id.bytes)):
        return Enqueued(job.id, False)
    holder = execute(sql.KEY_HOLDER, (job.queue, job.key, job.queue, job.key, now))[0]
    changes = _changes(job, holder)
    if changes:
        execute(sql.BECOME, _becoming(job, holder, now))
    return Enqueued(as_uuid(bytes(holder[0])), False, changes)


def _changes(job: Admitted, holder: Holder) -> bool:
    return job.on_conflict is not OnConflict.EXISTING and holder[1] == State.QUEUED


def _becoming(job: Admitted, holder: Holder, now: int) -> tuple[Any, ...]:
    """The parameters of become.sql: what was asked for now, in place of what the queued job was."""
    id_, _, created_at, due = holder
    run_at = now if job.run_at is None else to_micros(job.run_at)
    if job.on_conflict is OnConflict.DEBOUNCE:
        latest = run_at if job.max_delay is None else created_at + span_micros(job.max_delay)
        run_at = max(due, min(run_at, latest))
    return (
        job.task,
        job.priority,
        run_at,
        job.max_attempts,
        None if job.unique_for is None else created_at + span_micros(job.unique_for),
        None if job.expires_at is None else to_micros(job.expires_at),
        job.limit_key or "",
        job.meta,
        job.args,
        bytes(id_),
    )
