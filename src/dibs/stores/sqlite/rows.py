"""Between rows and values."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros
from dibs.job import SILENT, AttemptError, Claim, Flow, FlowState, Job, OnFailure, Report, State
from dibs.stores.sqlite.connect import Row

_decode = msgspec.json.decode
_encode = msgspec.json.Encoder().encode


_uuid_decoder = msgspec.msgpack.Decoder(UUID)


def as_uuid(sixteen: bytes) -> UUID:
    """What ``UUID(bytes=…)`` gives, in a quarter of its time: a claim makes one for every job."""
    return _uuid_decoder.decode(b"\xc4\x10" + sixteen)  # MessagePack: binary of length 16


class Attempt(NamedTuple):
    """A running job, as far as the end of its attempt needs it: the columns of held.sql and its like."""

    id: bytes
    run_at: int
    attempts: int
    max_attempts: int
    epoch: int
    worker: str
    started_at: int
    cancel_asked: int
    errors: str
    flow: bytes | None
    step: str | None
    expires_at: int | None


class Standing(NamedTuple):
    """A job that stands in line: the columns of walk.sql and its like. It begins as an ``Attempt`` does."""

    id: bytes
    run_at: int
    attempts: int
    max_attempts: int
    epoch: int
    worker: str
    started_at: int
    cancel_asked: int
    errors: str
    flow: bytes | None
    step: str | None
    expires_at: int | None
    row: int
    priority: int
    task: str
    limit_key: str
    locked_until: int | None
    created_at: int
    key: str | None
    meta: str
    args: str

    def attempt(self) -> Attempt:
        """What was running until its lease expired."""
        return Attempt._make(self[: len(Attempt._fields)])

    def taken(self) -> Row:
        """What take.sql would give."""
        return (
            self.run_at,
            self.id,
            self.priority,
            self.epoch + 1,
            self.task,
            self.args,
            self.created_at,
            self.attempts + 1,
            self.max_attempts,
            self.key,
            self.flow,
            self.step,
            self.meta,
        )


class _Error(msgspec.Struct, array_like=True, frozen=True):
    """An AttemptError as it is stored: an array, its times in microseconds."""

    attempt: int
    epoch: int
    worker: str
    started_at: int
    ended_at: int
    error: str
    traceback: str


_errors_decoder = msgspec.json.Decoder(list[_Error])
_report_decoder = msgspec.json.Decoder(Report)


def blamed(attempt: Attempt, now: int, error: str, traceback: str = "") -> str:
    """The errors of the job with that of its current attempt added, as JSON."""
    errors = _errors_decoder.decode(attempt.errors)
    errors.append(_Error(attempt.attempts, attempt.epoch, attempt.worker, attempt.started_at, now, error, traceback))
    return _encode(errors[-rules.ERRORS_KEPT :]).decode()


def _as_error(error: _Error) -> AttemptError:
    return AttemptError(
        attempt=error.attempt,
        epoch=error.epoch,
        worker=error.worker,
        started_at=from_micros(error.started_at),
        ended_at=from_micros(error.ended_at),
        error=error.error,
        traceback=error.traceback,
    )


def _moment(micros: int | None) -> Any:
    return None if micros is None else from_micros(micros)


def as_inputs(needs: Sequence[Row]) -> dict[str, Any]:
    """The results among the rows of needs.sql, by name; a needed step that was gone has none."""
    return {name: None if result is None else _decode(result) for name, met, result in needs if met}


def as_job(row: Row, needs: Sequence[Row] = ()) -> Job:
    """A row of get.sql and its like, with those of needs.sql if it is a step."""
    id_, queue, task, args, state, priority, run_at, created_at, attempts, max_attempts = row[:10]
    epoch, worker, locked_until, cancel_asked, started_at, finished_at, result = row[10:17]
    errors, key, unique_until, expires_at, limit_key, flow, step, meta, report = row[17:]
    return Job(
        id=as_uuid(id_),
        queue=queue,
        task=task,
        args=_decode(args),
        state=State(state),
        priority=priority,
        run_at=from_micros(run_at),
        created_at=from_micros(created_at),
        attempts=attempts,
        max_attempts=max_attempts,
        epoch=epoch,
        worker=worker,
        locked_until=_moment(locked_until),
        cancel_asked=bool(cancel_asked),
        started_at=_moment(started_at),
        finished_at=_moment(finished_at),
        result=None if result is None else _decode(result),
        errors=() if errors == "[]" else tuple(map(_as_error, _errors_decoder.decode(errors))),
        key=key,
        unique_until=_moment(unique_until),
        expires_at=_moment(expires_at),
        limit_key=limit_key or None,
        flow=None if flow is None else as_uuid(flow),
        step=step,
        meta=_decode(meta),
        report=SILENT if report is None else _report_decoder.decode(report),
        needs=tuple(need[0] for need in needs),
        inputs=as_inputs(needs),
    )


def as_flow(row: Row, counts: Sequence[Row]) -> Flow:
    """A row of flow.sql, with those of count_steps.sql."""
    id_, name, state, on_failure, created_at, finished_at, meta = row
    return Flow(
        id=as_uuid(id_),
        name=name,
        state=FlowState(state),
        on_failure=OnFailure(on_failure),
        created_at=from_micros(created_at),
        finished_at=_moment(finished_at),
        steps=dict.fromkeys(State, 0) | {State(state): count for state, count in counts},
        meta=_decode(meta),
    )


class Taken(NamedTuple):
    """What a claim got hold of."""

    rows: list[Row]
    """Those of take.sql, in the order of the queue."""
    locked_until: int
    needs: dict[bytes, list[Row]]
    """Those of needs.sql by job, for steps that need others."""


def as_claims(taken: Taken, queue: str, worker: str) -> list[Claim]:
    """What was taken, as values."""
    until, needs = from_micros(taken.locked_until), taken.needs
    return [
        Claim(
            as_uuid(id_),
            epoch,
            worker,
            queue,
            task,
            _decode(args),
            priority,
            due := from_micros(run_at),
            due if created_at == run_at else from_micros(created_at),
            attempts,
            max_attempts,
            until,
            key,
            None if flow is None else as_uuid(flow),
            step,
            {} if meta == "{}" else _decode(meta),
            {} if flow is None else as_inputs(needs.get(id_, ())),
        )
        for run_at, id_, priority, epoch, task, args, created_at, attempts, max_attempts, key, flow, step, meta in (
            taken.rows
        )
    ]
