"""How jobs look in Redis, and back. The positions of a record stand in ``lua/prelude.lua``."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from dibs.clock import from_micros, span_micros, to_micros
from dibs.job import SILENT, AttemptError, Claim, Filter, Job, LogLine, Report, State
from dibs.limits import PRIORITIES, Admitted, Settled

STATES = {
    "w": State.WAITING,
    "q": State.QUEUED,
    "r": State.RUNNING,
    "s": State.SUCCEEDED,
    "f": State.FAILED,
    "c": State.CANCELLED,
}
LETTERS = {state: letter for letter, state in STATES.items()}
KINDS = {
    "succeeded": "s",
    "failed": "f",
    "cancelled": "c",
    "retry": "r",
    "released": "l",
    "snoozed": "z",
}

pack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode
_to_head = msgspec.json.Decoder(tuple[float | None, str]).decode
_to_lines = msgspec.json.Decoder(tuple[LogLine, ...]).decode


class Record(msgspec.Struct, array_like=True):
    """One job's record. '' and 0 stand for None: an array of Lua cannot hold nil."""

    state: str
    attempts: int
    epoch: int
    worker: str
    locked_until: int
    started_at: int
    finished_at: int
    cancel_asked: int
    outcome: str
    priority: str
    max_attempts: int
    queue: str
    task: str
    key: str
    flow: str
    step: str
    needs: int
    run_at: str
    created_at: str


class _Error(msgspec.Struct, array_like=True):
    attempt: int
    epoch: int
    worker: str
    started_at: int
    ended_at: int
    error: str
    traceback: str


to_record = msgspec.msgpack.Decoder(Record).decode
_to_error = msgspec.msgpack.Decoder(_Error).decode

# The head of an array of 17, as the encoder writes it, and of the 19 that a record has: the server adds
# run_at and created_at behind what the client packed.
_PACKED, _WHOLE = b"\xdc\x00\x11", b"\xdc\x00\x13"


def stamp(moment: datetime) -> str:
    """A moment as 18 digits: these sort as moments do."""
    return f"{to_micros(moment):018d}"


def rank(priority: int) -> str:
    """A priority as 5 digits: these sort as priorities do."""
    return f"{priority - PRIORITIES[0]:05d}"


# --- going in -----------------------------------------------------------------------------------


def new_job(job: Admitted) -> tuple[str, str, str, str, str, str, str]:
    """What ``enqueue.lua`` takes for one job, besides its record."""
    return (
        job.id.hex,
        rank(job.priority),
        "" if job.run_at is None else stamp(job.run_at),
        job.queue,
        job.task,
        job.key or "",
        job.args if job.meta == "{}" else f"{job.args}\0{job.meta}",
    )


def new_record(job: Admitted) -> bytes:
    """The record of a new job, up to where the server adds the times."""
    static = (rank(job.priority), job.max_attempts, job.queue, job.task, job.key or "", "", "", 0)
    return _WHOLE + pack(("q", 0, 0, "", 0, 0, 0, 0, "", *static))[len(_PACKED) :]


def settlements(items: Sequence[Settled]) -> bytes:
    """What ``settle.lua`` takes."""
    rows = [
        (
            item.id.hex,
            item.epoch,
            item.worker,
            KINDS[item.kind],
            _text(item),
            item.traceback,
            span_micros(item.delay) if item.delay else 0,
        )
        for item in items
    ]
    try:
        return pack(rows)
    except (UnicodeEncodeError, OverflowError):
        return pack([(row[0], *_fence(row[1], row[2]), *row[3:]) for row in rows])


def _text(item: Settled) -> str:
    if item.error is not None:
        return item.error
    return "" if item.result is None or item.result == "null" else item.result


def _fence(epoch: int, worker: str) -> tuple[int, str]:
    """A worker or an epoch that no claim can have must be told that it lost, like any other stranger."""
    try:
        worker.encode()
    except UnicodeEncodeError:
        worker = "\0"
    return (epoch if 0 <= epoch < 1 << 53 else -1), worker


def held(claims: Sequence[Claim]) -> bytes:
    """What ``heartbeat.lua`` takes."""
    flat: list[str | int] = []
    for claim in claims:
        flat += (claim.id.hex, claim.epoch if 0 <= claim.epoch < 1 << 53 else -1)
    return pack(flat)


def reports(said: Mapping[UUID, Report], claims: Sequence[Claim]) -> bytes:
    """What ``heartbeat.lua`` takes for these claims, besides them."""
    found = {claim.id.hex: _report(said[claim.id]) for claim in claims if claim.id in said}
    return pack(found) if found else b""


def _report(report: Report) -> str:
    # As text: the server's MessagePack knows no binary values.
    return (_to_json((report.progress, report.note)) + b"\0" + _to_json(report.log)).decode()


def filter_of(which: Filter, states: frozenset[State], ids: Sequence[str] | None) -> bytes:
    """What ``scan.lua`` takes."""
    wanted = states if which.states is None else {state for state in states if state in which.states}
    moments = (which.created_since, which.created_before, which.finished_since, which.finished_before)
    return pack(
        (
            0 if ids is None else ids,
            0 if which.queues is None else which.queues,
            0 if which.tasks is None else which.tasks,
            0 if wanted == frozenset(State) else [LETTERS[state] for state in wanted],
            0 if which.workers is None else which.workers,
            0 if which.keys is None else which.keys,
            *("" if moment is None else stamp(moment) for moment in moments),
        )
    )


# --- coming out ---------------------------------------------------------------------------------


def to_id(text: bytes) -> UUID:
    return UUID(int=int(text, 16))


def _body(body: bytes) -> tuple[Any, dict[str, Any]]:
    args, found, meta = body.partition(b"\0")
    return _from_json(args), (_from_json(meta) if found else {})


def to_claim(job: bytes, record: bytes, body: bytes) -> Claim:
    """A claim from what ``claim.lua`` answers for it."""
    return claim_of(job, to_record(record), body)


def claim_of(job: bytes, r: Record, body: bytes) -> Claim:
    """A claim from the record of a job that was just taken."""
    args, meta = _body(body)
    return Claim(
        to_id(job),
        r.epoch,
        r.worker,
        r.queue,
        r.task,
        args,
        int(r.priority) + PRIORITIES[0],
        from_micros(int(r.run_at)),
        from_micros(int(r.created_at)),
        r.attempts,
        r.max_attempts,
        from_micros(r.locked_until),
        r.key or None,
        meta=meta,
    )


def to_jobs(answers: Sequence[Any]) -> list[Job]:
    """Jobs from what ``look.lua`` answers: six values each."""
    return [_to_job(answers[at : at + 6]) for at in range(0, len(answers), 6)]


def _to_job(known: Sequence[Any]) -> Job:
    job, record, body, result, errors, report = known
    r = to_record(record)
    args, meta = _body(body)
    return Job(
        id=to_id(job),
        queue=r.queue,
        task=r.task,
        args=args,
        state=STATES[r.state],
        priority=int(r.priority) + PRIORITIES[0],
        run_at=from_micros(int(r.run_at)),
        created_at=from_micros(int(r.created_at)),
        attempts=r.attempts,
        max_attempts=r.max_attempts,
        epoch=r.epoch,
        worker=r.worker or None,
        locked_until=_maybe(r.locked_until),
        cancel_asked=bool(r.cancel_asked),
        started_at=_maybe(r.started_at),
        finished_at=_maybe(r.finished_at),
        result=_from_json(result) if result else None,
        errors=tuple(_attempt(_to_error(error)) for error in errors),
        key=r.key or None,
        meta=meta,
        report=_to_report(report) if report else SILENT,
    )


def _to_report(text: bytes) -> Report:
    head, _, lines = text.partition(b"\0")
    progress, note = _to_head(head) if head else (None, "")
    return Report(progress, note, _to_lines(lines))


def _attempt(error: _Error) -> AttemptError:
    return AttemptError(
        attempt=error.attempt,
        epoch=error.epoch,
        worker=error.worker,
        started_at=from_micros(error.started_at),
        ended_at=from_micros(error.ended_at),
        error=error.error,
        traceback=error.traceback,
    )


def _maybe(micros: int) -> datetime | None:
    return from_micros(micros) if micros else None
