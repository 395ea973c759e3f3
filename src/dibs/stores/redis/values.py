"""How jobs look in Redis, and back. The positions of a record stand in ``lua/prelude.lua``."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from dibs.clock import from_micros, span_micros, to_micros
from dibs.ids import from_int
from dibs.job import SILENT, AttemptError, Claim, Filter, Job, LogLine, OnConflict, Report, State
from dibs.limits import PRIORITIES, Admitted, AdmittedStep, Settled

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

COUNTED, ASIDE = 1, 2
"""What the mark of a record says: see ``lua/prelude.lua``."""

pack = msgspec.msgpack.Encoder(uuid_format="hex").encode
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
    unique_until: str | None = None
    expires_at: str = ""
    limit_key: str = ""
    mark: int = 0

    def is_over(self, now: int) -> bool:
        """As ``end_of`` in ``lua/life.lua``: claimable, and not to be started."""
        if self.state == "r" and (self.cancel_asked or self.attempts >= self.max_attempts):
            return True
        return self.expires_at != "" and int(self.expires_at) <= now

    def count(self) -> None:
        """Under the limit of its task."""
        self.unique_until, self.mark = self.unique_until or "", COUNTED

    def packed(self) -> bytes:
        """As it is stored: that of a plain job ends before what only others have."""
        if self.unique_until is None:
            return _WHOLE + pack(self)[len(_WHOLE) : -_EXTRAS]
        return pack(self)


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

# The head of an array of 17, as the encoder writes it, of the 19 that the record of a plain job has, and of the 23 that
# others have: the server adds the rest behind what the client packed.
_PACKED, _WHOLE, _LONGER = b"\xdc\x00\x11", b"\xdc\x00\x13", b"\xdc\x00\x17"
_EXTRAS = 4
"""Bytes of what a plain job does not have."""
_CONFLICTS = {OnConflict.EXISTING: "", OnConflict.REPLACE: "r", OnConflict.DEBOUNCE: "d"}


def stamp(moment: datetime) -> str:
    """A moment as 18 digits: these sort as moments do."""
    return f"{to_micros(moment):018d}"


def span(micros: int) -> timedelta:
    """That many microseconds."""
    return timedelta(microseconds=micros)


def rank(priority: int) -> str:
    """A priority as 5 digits: these sort as priorities do."""
    return f"{priority - PRIORITIES[0]:05d}"


# --- going in -----------------------------------------------------------------------------------


def new_job(job: Admitted) -> tuple[Any, ...]:
    """What ``enqueue.lua`` takes for one job, besides its record."""
    return (
        job.id,
        rank(job.priority),
        "" if job.run_at is None else stamp(job.run_at),
        job.queue,
        job.task,
        job.key or "",
        _to_body(job),
        *(() if job.is_plain else _more(job)),
    )


def is_usual(job: Admitted) -> bool:
    """It is plain, due now, and has no key: what ``one.lua`` stores. It may be lost on its way to a worker once."""
    return job.run_at is None and job.key is None and job.max_attempts > 1 and job.is_plain


def one_job(job: Admitted) -> tuple[str | bytes, ...]:
    """What ``one.lua`` takes."""
    # The property "hex" takes twice as long.
    hex_id = job.id.int.to_bytes(16, "big").hex()
    return (hex_id, _to_body(job), *_in_common(job.priority, job.queue, job.task, job.max_attempts))


@lru_cache(maxsize=1_000)
def _in_common(priority: int, queue: str, task: str, max_attempts: int) -> tuple[bytes, ...]:
    """What is the same for all jobs of a task, as a rule."""
    ranked = rank(priority)
    record = pack((ranked, max_attempts, queue, task, "", "", "", 0))[1:]
    return ranked.encode(), queue.encode(), task.encode(), record


def _more(job: Admitted) -> tuple[Any, ...]:
    return (
        0 if job.unique_for is None else span_micros(job.unique_for),
        "" if job.expires_at is None else stamp(job.expires_at),
        job.limit_key or "",
        _CONFLICTS[job.on_conflict],
        0 if job.max_delay is None else span_micros(job.max_delay),
        job.max_attempts,
    )


def _to_body(job: Admitted) -> str:
    return job.args if job.meta == "{}" else f"{job.args}\0{job.meta}"


def new_record(job: Admitted) -> bytes:
    """The record of a new job, up to where the server adds the times."""
    head = _WHOLE if job.is_plain else _LONGER
    return _record(head, rank(job.priority), job.max_attempts, job.queue, job.task, job.key or "")


def _record(head: bytes, *said: str | int) -> bytes:
    """``said``: priority, max_attempts, queue, task, key."""
    return head + pack(("q", 0, 0, "", 0, 0, 0, 0, "", *said, "", "", 0))[len(_PACKED) :]


def new_steps(steps: Sequence[AdmittedStep]) -> list[Any]:
    """What ``bring.lua`` takes. A need that is none of these steps is the step that adds them."""
    needed_by: dict[str, list[str]] = {step.name: [] for step in steps}
    of_adder = set[str]()
    for step in steps:
        for need in step.needs:
            if need in needed_by:
                needed_by[need].append(step.job.id.hex)
            else:
                of_adder.add(step.name)
    return [
        (
            step.job.id,
            rank(step.job.priority),
            "" if step.job.run_at is None else stamp(step.job.run_at),
            step.job.queue,
            step.job.task,
            step.job.max_attempts,
            _to_body(step.job),
            step.name,
            "".join(f"{need}\0" for need in step.needs),
            len(step.needs),
            "".join(needed_by[step.name]),
            int(step.name in of_adder),
            *(() if step.job.is_plain else _more(step.job)[1:3]),
        )
        for step in steps
    ]


def settlements(items: Sequence[Settled]) -> bytes:
    """What ``settle.lua`` takes."""
    rows: list[tuple[Any, ...]] = [
        (
            item.id,
            item.epoch,
            item.worker,
            KINDS[item.kind],
            _text(item),
            item.traceback,
            span_micros(item.delay) if item.delay else 0,
            *((new_steps(item.steps), item.adder or "") if item.steps else ()),
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
    flat: list[UUID | int] = []
    for claim in claims:
        flat += (claim.id, claim.epoch if 0 <= claim.epoch < 1 << 53 else -1)
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
            0 if which.flows is None else which.flows,
        )
    )


def ageing(settings: bytes) -> int:
    """The microseconds that the settings of a queue hold, or 0."""
    return int(settings.partition(b"a")[2].partition(b"p")[0] or 0)


# --- coming out ---------------------------------------------------------------------------------


def to_id(text: bytes) -> UUID:
    return from_int(int(text, 16))


def _body(body: bytes) -> tuple[Any, dict[str, Any]]:
    if b"\0" not in body:
        return _from_json(body), {}
    args, _, meta = body.partition(b"\0")
    return _from_json(args), _from_json(meta)


@lru_cache(maxsize=1_000)
def _moment(micros: str | int) -> datetime:
    """Many jobs share their moments, and a job that was due at once has one twice."""
    return from_micros(int(micros))


_NO_INPUTS: Mapping[bytes, dict[str, Any]] = {}


def to_claims(answer: Sequence[bytes], given: Sequence[bytes]) -> list[Claim]:
    """Claims from what ``claim.lua`` answers: id, record and body for each; and what steps were given."""
    if len(answer) == 3 and not given:
        job, record, body = answer
        return [_claim(to_id(job), to_record(record), body, {})]
    records = [to_record(record) for record in answer[1::3]]
    inputs = dict(zip(given[0::2], map(_inputs, given[1::2]), strict=True)) if given else _NO_INPUTS
    return claims_of(answer[0::3], records, answer[2::3], inputs)


def claims_of(
    jobs: Sequence[bytes], records: Sequence[Record], bodies: Sequence[bytes], inputs: Mapping[bytes, dict[str, Any]]
) -> list[Claim]:
    """Claims from the records of jobs that were just taken."""
    ids = msgspec.convert([job.decode() for job in jobs], list[UUID])  # many are made faster all at once
    return [
        _claim(id_, record, body, inputs.get(job) or {})
        for job, id_, record, body in zip(jobs, ids, records, bodies, strict=True)
    ]


def _claim(id_: UUID, r: Record, body: bytes, inputs: dict[str, Any]) -> Claim:
    args, meta = _body(body)
    return Claim(
        id_,
        r.epoch,
        r.worker,
        r.queue,
        r.task,
        args,
        int(r.priority) + PRIORITIES[0],
        _moment(r.run_at),
        _moment(r.created_at),
        r.attempts,
        r.max_attempts,
        _moment(r.locked_until),
        r.key or None,
        msgspec.convert(r.flow, UUID) if r.flow else None,
        r.step or None,
        meta,
        inputs,
    )


def to_jobs(answers: Sequence[Any]) -> list[Job]:
    """Jobs from what ``look.lua`` answers: eight values each."""
    return [_to_job(answers[at : at + 8]) for at in range(0, len(answers), 8)]


def _to_job(known: Sequence[Any]) -> Job:
    job, record, body, errors, result, report, needs, inputs = known
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
        unique_until=from_micros(int(r.unique_until)) if r.unique_until else None,
        expires_at=from_micros(int(r.expires_at)) if r.expires_at else None,
        limit_key=r.limit_key or None,
        meta=meta,
        report=_to_report(report) if report else SILENT,
        flow=UUID(r.flow) if r.flow else None,
        step=r.step or None,
        needs=tuple(needs.decode().split("\0")[:-1]),
        inputs=_inputs(inputs),
    )


def _inputs(text: bytes) -> dict[str, Any]:
    parts = text.split(b"\0")[:-1]
    return {name.decode(): _from_json(result) for name, result in zip(parts[0::2], parts[1::2], strict=True)}


def inputs_of(jobs: Sequence[bytes], given: Sequence[bytes | None]) -> dict[bytes, dict[str, Any]]:
    """What steps were given, from their keys ``i:``."""
    return {job: _inputs(text) for job, text in zip(jobs, given, strict=True) if text}


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
