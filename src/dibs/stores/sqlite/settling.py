"""What the owner of a claim may still write: outcomes, heartbeats and reports. Every statement carries the fence."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from dibs.clock import span_micros
from dibs.job import Claim, Report
from dibs.limits import Settled
from dibs.outcome import Pulse, Verdict
from dibs.stores.sqlite import ending, flows
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection, many
from dibs.stores.sqlite.rows import Attempt, blamed

# What the driver raises for a worker or an epoch that no claim can have had: a lone surrogate, a huge number.
_IMPOSSIBLE = (UnicodeEncodeError, OverflowError, TypeError)
_PULSES = {"h": Pulse.HELD, "c": Pulse.CANCEL, "l": Pulse.LOST}
_DIGITS = 10
"""Of an epoch, where there are many."""


def settle(db: Connection, items: Sequence[Settled], now: int) -> list[Verdict]:
    """All successes at once if every one is accepted, which is nearly always so; otherwise one by one."""
    if len(items) < 2 or not all(item.kind == "succeeded" and not item.steps for item in items):
        return [_settle(db, item, now) for item in items]
    if _copy_all(db, items, now):
        _remove_all(db, items, now)
        return [Verdict.ACCEPTED] * len(items)
    copied = [item for item in items if _is_copied(db, item)]
    if copied:
        _remove_all(db, copied, now)
    accepted = {id(item) for item in copied}
    return [Verdict.ACCEPTED if id(item) in accepted else _settle(db, item, now) for item in items]


def _copy_all(db: Connection, items: Sequence[Settled], now: int) -> bool:
    """Successes to the history; False if some of them are not there, because they are lost or came before."""
    held: defaultdict[str, list[bytes]] = defaultdict(list)
    try:
        for item in items:
            assert item.result is not None
            held[item.worker].append(_packed(item) + item.result.encode())
        copied = sum(db.run(sql.SUCCEED_ALL, (many(packed), worker, now)) for worker, packed in held.items())
    except _IMPOSSIBLE:
        return False
    return copied == len(items)


def _packed(claim: Settled | Claim) -> bytes:
    """A claim among many: the id of its job, and its epoch in ten digits."""
    digits = b"%0*d" % (_DIGITS, claim.epoch)
    if len(digits) > _DIGITS or int(digits) != claim.epoch or claim.epoch < 0:
        raise OverflowError
    return claim.id.bytes + digits


def _is_copied(db: Connection, item: Settled) -> bool:
    try:
        return db.row(sql.COPIED, (item.id.bytes, item.epoch, item.worker)) is not None
    except _IMPOSSIBLE:
        return False


def _remove_all(db: Connection, items: Sequence[Settled], now: int) -> None:
    """What was copied leaves the unfinished jobs; if some of it stays, it is steps, and their flows move on."""
    jobs = [item.id.bytes for item in items]
    if db.run(sql.REMOVE_ALL, (many(jobs),)) < len(jobs):
        ending.succeeded(db, jobs, now)


def _settle(db: Connection, item: Settled, now: int) -> Verdict:
    job = item.id.bytes
    try:
        if item.steps:
            if row := db.row(sql.HELD, (job, item.epoch, item.worker, now)):
                _succeed_adding(db, Attempt(*row), item, now)
                return Verdict.ACCEPTED
        elif item.kind == "succeeded":
            if _succeed(db, item, now):
                return Verdict.ACCEPTED
        elif row := db.row(sql.HELD, (job, item.epoch, item.worker, now)):
            _end_attempt(db, Attempt(*row), item, now)
            return Verdict.ACCEPTED
        again = db.row(sql.SETTLED_BEFORE, (job, item.epoch, item.worker, item.kind))
    except _IMPOSSIBLE:
        again = None
    return Verdict.ACCEPTED if again else Verdict.LOST


def _succeed(db: Connection, item: Settled, now: int) -> bool:
    job = item.id.bytes
    if not db.run(sql.SUCCEED, (job, item.epoch, item.worker, now, item.result)):
        return False
    if not db.run(sql.REMOVE, (job,)):
        ending.succeeded(db, [job], now)
    return True


def _succeed_adding(db: Connection, attempt: Attempt, item: Settled, now: int) -> None:
    """A success that adds steps to its flow, or a failure if they cannot be added; settled as it was sent."""
    if problem := flows.add(db, attempt, item, now):
        errors = blamed(attempt, now, problem)
        ending.end(db, attempt.id, "failed", now, outcome=item.kind, errors=errors)
        return
    if attempt.flow is not None and not flows.is_running(db, attempt.flow):  # it stopped while this step was running
        ending.cancel_not_started(db, attempt.flow, now)
    elif attempt.cancel_asked:
        for step in item.steps:
            ending.end(db, step.job.id.bytes, "cancelled", now, cancel_asked=True)
    _succeed(db, item, now)


def _end_attempt(db: Connection, attempt: Attempt, item: Settled, now: int) -> None:
    """Anything but a success."""
    errors = None if item.error is None else blamed(attempt, now, item.error, item.traceback)
    run_at, attempts = now + span_micros(item.delay), attempt.attempts
    state: str | None = None
    match item.kind:
        case "failed" | "cancelled":
            state = item.kind
        case _ if attempt.cancel_asked:
            state = "cancelled"
        case "retry" if attempts >= attempt.max_attempts:
            state = "failed"
        case "snoozed":
            attempts -= 1
        case "released":
            attempts -= 1
            run_at = attempt.run_at
    if state is not None:
        ending.end(db, attempt.id, state, now, outcome=item.kind, errors=errors)
    else:
        db.run(sql.PUT_BACK, (attempt.id, run_at, attempts, item.kind, errors))


def heartbeat(
    db: Connection,
    worker: str,
    claims: Sequence[Claim],
    *,
    lease: int,
    info: str | None,
    said: Mapping[UUID, Report],
    now: int,
) -> list[Pulse]:
    """Record that the worker was seen, renew what it still holds and keep what its handlers said."""
    db.run(sql.SEEN, (worker, now, info))
    pulses = _beat_all(db, worker, claims, lease, now) or [_beat(db, worker, claim, lease, now) for claim in claims]
    for claim, pulse in zip(claims, pulses, strict=True) if said else ():
        if pulse is not Pulse.LOST and claim.id in said:
            report = msgspec.json.encode(said[claim.id]).decode()
            db.run(sql.REPORT, (claim.id.bytes, claim.epoch, worker, now, report))
    return pulses


def _beat_all(db: Connection, worker: str, claims: Sequence[Claim], lease: int, now: int) -> list[Pulse]:
    """All claims at once; nothing if there are too few for that, or one that no worker can have."""
    if len(claims) < 2:
        return []
    try:
        letters: str = db.rows(sql.PULSES, (many(map(_packed, claims)), worker, now))[0][0]
    except _IMPOSSIBLE:
        return []
    pulses = [_PULSES[letter] for letter in letters]
    held = [claim.id.bytes for claim, pulse in zip(claims, pulses, strict=True) if pulse is not Pulse.LOST]
    if held:
        db.run(sql.BEAT_ALL, (many(held), worker, now, now + lease))
    return pulses


def _beat(db: Connection, worker: str, claim: Claim, lease: int, now: int) -> Pulse:
    try:
        row = db.row(sql.BEAT, (claim.id.bytes, claim.epoch, worker, now, now + lease))
    except _IMPOSSIBLE:
        return Pulse.LOST
    if row is None:
        return Pulse.LOST
    return Pulse.CANCEL if row[0] else Pulse.HELD
