"""Flows: storing them and their steps, letting them run again, and forgetting them."""

from collections.abc import Collection, Iterable, Sequence

from dibs import limits as rules
from dibs.clock import to_micros
from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Enqueued
from dibs.limits import AdmittedFlow, AdmittedStep, Settled
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, Row
from dibs.stores.sqlite.enqueueing import Execute
from dibs.stores.sqlite.rows import Attempt


def start(db: Connection, flow: AdmittedFlow, now: int) -> Enqueued:
    """Store the flow with all of its steps, in a transaction of ours; ``now`` in microseconds.

    Raises ``Refused`` halfway if the id of a job is known: the caller takes back what was stored until then.
    """
    if not db.rows(sql.START_FLOW, _flow_params(flow, now)):
        return Enqueued(flow.id, False)
    _add(db, flow.id.bytes, flow.steps, {}, now)
    return Enqueued(flow.id, True)


def start_through(execute: Execute, flow: AdmittedFlow, now: int) -> Enqueued:
    """The same, through any driver."""
    if not execute(sql.START_FLOW, _flow_params(flow, now)):
        return Enqueued(flow.id, False)
    for step in flow.steps:
        if not execute(sql.ADD_STEP, _params(step, flow.id.bytes, now)):
            raise Refused(rules.known_job(step.job.id))
    for need in _needs(flow.steps, {}):
        execute(sql.ADD_NEED, need)
    return Enqueued(flow.id, True)


def _add(db: Connection, flow: bytes, steps: Sequence[AdmittedStep], others: dict[str, bytes], now: int) -> None:
    """Store steps that need each other, or one of the others."""
    if db.run_all(sql.ADD_STEP_ALL, [_params(step, flow, now) for step in steps]) < len(steps):
        ours = {step.job.id for step in steps if db.rows(sql.FLOW_OF, (step.job.id.bytes,)) == [(flow,)]}
        raise Refused(rules.known_job(next(step.job.id for step in steps if step.job.id not in ours)))
    db.run_all(sql.ADD_NEED, _needs(steps, others))


def _needs(steps: Sequence[AdmittedStep], others: dict[str, bytes]) -> list[Row]:
    """The parameters of add_need.sql."""
    ids = others | {step.name: step.job.id.bytes for step in steps}
    return [(step.job.id.bytes, place, ids[need], need) for step in steps for place, need in enumerate(step.needs)]


def _flow_params(flow: AdmittedFlow, now: int) -> Row:
    return (flow.id.bytes, flow.name, str(flow.on_failure), now, flow.meta)


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
        _add(db, adder.flow, item.steps, {adder.step: adder.id}, now)
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
    ghosts = [(step, new_id().bytes) for step, _ in steps]
    db.run_all(sql.PART, ghosts)
    db.run_all(sql.PART_RESULTS, ghosts)
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
