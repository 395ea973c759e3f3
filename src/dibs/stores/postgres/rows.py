"""Rows to values."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dibs.job import (
    SILENT,
    AttemptError,
    Claim,
    Filter,
    Flow,
    FlowState,
    Job,
    Kept,
    OnFailure,
    Order,
    QueueCounts,
    Report,
    State,
    WorkerInfo,
)
from dibs.scope import Limit, LimitUse, Rate, Scope

_report = msgspec.json.Decoder(Report).decode

CLAIMED = (
    "id, epoch, task, args, priority, run_at, created_at, attempt, max_attempts, locked_until, "
    "key, flow, step, meta, inputs"
)
"""The columns of a ``dibs.claimed``."""


def claims(found: Iterable[Any], queue: str, worker: str) -> list[Claim]:
    """Rows of ``CLAIMED``. No call for each: they come in hundreds."""
    # fmt: off
    return [
        Claim(
            id_, epoch, worker, queue, task, args, priority, run_at, created_at, attempt, most, until, key, flow, step,
            meta, {} if inputs is None else inputs,
        )
        for id_, epoch, task, args, priority, run_at, created_at, attempt, most, until, key, flow, step, meta, inputs
        in found
    ]
    # fmt: on


def job(row: Any) -> Job:
    """A row of the view ``dibs.jobs``."""
    fields = dict(row)
    fields["state"] = State(fields["state"])
    fields["errors"] = tuple(msgspec.convert(error, AttemptError) for error in fields["errors"] or ())
    fields["report"] = SILENT if fields["report"] is None else _report(fields["report"])
    fields["needs"] = tuple(fields["needs"] or ())
    fields["inputs"] = fields["inputs"] or {}
    return Job(**fields)


def flow(row: Any) -> Flow:
    """A row of the view ``dibs.flows``."""
    fields = dict(row)
    fields["state"], fields["on_failure"] = FlowState(fields["state"]), OnFailure(fields["on_failure"])
    fields["steps"] = {State(state): count for state, count in fields["steps"].items()}
    return Flow(**fields)


def counts(row: Any) -> QueueCounts:
    """A row of ``dibs.counts()``, or of ``dibs.counts_up_to()``."""
    return QueueCounts(
        queue=row["queue"],
        paused=row["paused"],
        order=Order.LIFO if row["lifo"] else Order.FIFO,
        ageing=row["ageing"],
        states={state: row[state.value] for state in State},
        scheduled=row["scheduled"],
        oldest_due=row["oldest_due"],
        more=frozenset(State(state) for state in row.get("more") or ()),
    )


def use(row: Any) -> LimitUse:
    """A row of ``dibs.limits()``."""
    rate = None if row["starts"] is None else Rate(row["starts"], row["per"])
    return LimitUse(
        scope=Scope(queue=row["queue"], task=row["task"], each_key=row["each_key"]),
        limit=Limit(concurrency=row["concurrency"], rate=rate),
        rank=row["rank"],
        key=row["key"],
        running=row["running"],
        next_start=row["next_start"],
    )


def worker(row: Any) -> WorkerInfo:
    """A row of ``dibs.workers()``."""
    return WorkerInfo(name=row["name"], seen_at=row["seen_at"], running=row["running"], info=row["info"])


def kept(found: Sequence[Any], kinds: Iterable[str]) -> Kept:
    """The rows of ``dibs.kept()``: at least one, for the clock."""
    values: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in kinds}
    for _, kind, name, value in found:
        if name is not None:
            values[kind][name] = value
    return Kept(found[0][0], values)


def which(filter_: Filter) -> str:
    """A filter as the JSON object that the SQL functions take: the given fields only."""
    fields = {name: getattr(filter_, name) for name in filter_.__struct_fields__}
    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    return msgspec.json.encode(given).decode()
