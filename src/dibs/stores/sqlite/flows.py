"""Flows: storing them and their steps, letting them run again, and forgetting them."""

from collections.abc import Collection, Iterable, Sequence

from dibs import limits as rules
from dibs.clock import to_micros
from dibs.errors import Refused
from dibs.job import Enqueued
from dibs.limits import AdmittedFlow, AdmittedStep, Settled
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.enqueueing import Execute
from dibs.stores.sqlite.rows import Attempt


def start(execute: Execute, flow: AdmittedFlow, now: int) -> Enqueued:
    """Store the flow with all of its steps, through any driver; ``now`` in microseconds.

    Raises ``Refused`` halfway if the id of a job is known: the caller takes back what was stored until then.
    """
    row = (flow.id.bytes, flow.name, str(flow.on_failure), now, flow.meta)
    created = bool(execute(sql.START_FLOW, row))
    if created:
        _add(execute, flow.id.bytes, flow.steps, {}, now)
    return Enqueued(flow.id, created)


def _add(execute: Execute, flow: bytes, steps: Sequence[AdmittedStep], others: dict[str, bytes], now: int) -> None:
    """Store steps that need each other, or one of the others."""
    ids = others | {step.name: step.job.id.bytes for step in steps}
    for step in steps:
        if not execute(sql.ADD_STEP, _params(step, flow, now)):
            raise Refused(rules.known_job(step.job.id))
        for place, need in enumerate(step.needs):
            execute(sql.ADD_NEED, (step.job.id.bytes, place, ids[need], need))


def _params(step: AdmittedStep, flow: bytes, now: int) -> Row:
    job, unmet = step.job, len(step.needs)
    return (
        job.id.bytes,
        job.queue,
        job.task,
        "waiting" if unmet else "queued",
        int(not unmet),
        job.priority,
        now if job.run_at is None else to_micros(job.run_at),
        now,
        job.max_attempts,
        job.meta,
        job.args,
        flow,
        step.name,
        unmet,
        None if job.expires_at is None else to_micros(job.expires_at),
        job.limit_key or "",
    )


def add(db: Connection, adder: Attempt, item: Settled, now: int) -> str | None:
    """Add the steps of a success to the flow of its job, before that success; answers what is wrong with them if so."""
    if (problem := _wrong(db, adder, item)) is None and adder.flow is not None and adder.step is not None:
        _add(db.rows, adder.flow, item.steps, {adder.step: adder.id}, now)
    return problem


def _wrong(db: Connection, adder: Attempt, item: Settled) -> str | None:
    if adder.flow is None:
        return rules.NO_STEP
    for step in item.steps:
        if db.rows(sql.STEP_KNOWN, (adder.flow, step.name)):
            return rules.known_name(step.name)
    if item.adder is not None and item.adder != adder.step:
        return rules.other_adder(item.adder)
    for step in item.steps:
        if db.rows(sql.KNOWN, (step.job.id.bytes, step.job.id.bytes)):
            return rules.known_job(step.job.id)
    return None


def is_running(db: Connection, flow: bytes) -> bool:
    return bool(db.rows(sql.FLOW_MODE, (flow,))[0][0] == "running")


def resume(db: Connection, flow: bytes, now: int) -> None:
    """Steps of the flow were requeued: let it run, and those that have not started wait for what they need now."""
    db.run(sql.RESUME_FLOW, (flow,))
    db.run(sql.LOOK_AGAIN, (flow,))
    db.run(sql.COUNT_UNMET, (flow,))
    db.run(sql.WAIT_AGAIN, (flow,))
    db.run(sql.LINE_UP_FLOW, (flow, now))
    db.run(sql.DROP_RESULTS, (flow,))


def keep(db: Connection, steps: Sequence[tuple[bytes]]) -> None:
    """Before these finished steps leave the history: those who have their results as inputs keep them."""
    db.run_all(sql.KEEP_RESULT, steps)
    db.run_all(sql.KEEP_EPOCH, steps)


def forget(db: Connection, steps: Collection[tuple[bytes, bytes]]) -> None:
    """Drop finished steps, given with their flows, and the flows that have no other."""
    ids = [(step,) for step, _ in steps]
    db.run_all(sql.DROP_NEEDS, ids)
    keep(db, ids)
    db.run_all(sql.FORGET, ids)
    for flow in {flow for _, flow in steps}:
        if db.run(sql.DROP_FLOW, (flow,)):
            db.run(sql.DROP_RESULTS, (flow,))


def needs_of(db: Connection, steps: Iterable[bytes]) -> dict[bytes, list[Row]]:
    """What each of the steps needs, in order: the name, whether it is met, and the result as JSON text."""
    found: dict[bytes, list[Row]] = {}
    for row in db.rows_all(sql.NEEDS, [(step,) for step in steps]):
        found.setdefault(row[0], []).append(row[1:])
    return found
