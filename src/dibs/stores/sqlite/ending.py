"""The end of a job, and what follows from it for the flow that it is a step of. A plain job pays nothing for this."""

from collections import Counter
from collections.abc import Sequence

from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection


def end(
    db: Connection,
    job: bytes,
    state: str,
    now: int,
    *,
    outcome: str | None = None,
    errors: str | None = None,
    cancel_asked: bool = False,
) -> None:
    """Move an unfinished job to the history as failed or cancelled, with all consequences; one that is not there stays.

    A step that is matched by a bulk verb may have been ended by the end of another.
    """
    if not db.run(sql.RETIRE, (job, state, now, outcome, errors, int(cancel_asked))):
        return
    if not db.run(sql.REMOVE, (job,)):
        flow: bytes = db.rows(sql.FLOW_OF, (job,))[0][0]
        db.run(sql.REMOVE_STEP, (job,))
        db.run(sql.GIVE_UP, (job,))
        _lost(db, flow, job, state, now)


def _lost(db: Connection, flow: bytes, job: bytes, state: str, now: int) -> None:
    """A step failed or was cancelled."""
    standing, on_failure = db.rows(sql.FLOW_MODE, (flow,))[0]
    if on_failure == "continue":
        cancel(db, [row[0] for row in db.rows(sql.IN_VAIN, (job,))], now)
    elif standing == "running":
        db.run(sql.STOP_FLOW, (flow, state))
        cancel_not_started(db, flow, now)
        db.run(sql.ASK_FLOW, (flow,))
        db.run(sql.NOTE_ASKED_FLOW, (flow,))
    db.run(sql.FINISH_FLOW, (flow, now))


def cancel_not_started(db: Connection, flow: bytes, now: int) -> None:
    """End all steps of the flow that have not started; nothing follows from that."""
    cancel(db, [row[0] for row in db.rows(sql.NOT_STARTED, (flow,))], now)


def cancel(db: Connection, steps: Sequence[bytes], now: int) -> None:
    """End steps because another has ended; nothing follows from that."""
    if steps:
        db.run_all(sql.RETIRE, [(step, "cancelled", now, None, None, 1) for step in steps])
        db.run_all(sql.REMOVE_STEP, [(step,) for step in steps])
        db.run_all(sql.GIVE_UP, [(step,) for step in steps])


def succeeded(db: Connection, jobs: Sequence[bytes], now: int) -> None:
    """Those of these jobs that are still among the unfinished are steps, and in the history: move their flows on."""
    waiting = db.rows_all(sql.WAITING_FOR, [(job,) for job in jobs])
    needed = {need for _, need in waiting}  # whose flows are not finished, as somebody still waits there
    flows = {row[0] for row in db.rows_all(sql.FLOW_OF, [(job,) for job in jobs if job not in needed])}
    db.run_all(sql.REMOVE_STEP, [(job,) for job in jobs])
    if waiting:
        met = Counter(step for step, _ in waiting)
        db.run_all(sql.LINE_UP_STEP, [(step, count, now) for step, count in met.items()])
    db.run_all(sql.FINISH_FLOW, [(flow, now) for flow in flows])
