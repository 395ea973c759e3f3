"""What an operator should know, each with what to do: findings about queues, workers, jobs and schedules."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from dibs.job import State
from dibs.overview import Queue, Worker, total
from dibs.schedules import Listed
from dibs.stores.doctor import Finding, fail, ok, warn

PATIENCE = timedelta(minutes=5)
"""A queue whose oldest due job has waited longer than this is falling behind."""


def findings(
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    schedules: Sequence[Listed],
    limited: Collection[str],
    now: datetime,
    *others: Finding,
) -> list[Finding]:
    """All of it, of what was looked at before; ``limited`` are queues without room."""
    found = [served(queue, now, limited) for queue in queues if queue.due]
    return [
        *(found or [ok("queues", f"{many(len(queues), 'queue')}, no job is due")]),
        *alive(workers),
        *others,
        failed(queues),
        *scheduled(schedules),
    ]


def served(queue: Queue, now: datetime, limited: Collection[str]) -> Finding:
    """About a queue with due jobs; ``limited`` are those that a limit holds back as a whole at this moment."""
    name, due = f"queue {queue.name}", many(queue.due, "due job", more=State.QUEUED in queue.more)
    if queue.paused:
        return warn(name, f"paused, {due} waiting", f"run dibs queues resume {queue.name}")
    if not queue.workers:
        text = f"no live worker serves it, {due} waiting"
        return fail(name, text, f"start one: dibs work APP --queues {queue.name}")
    late = None if queue.oldest_due is None else now - queue.oldest_due
    if late is not None and late > PATIENCE:
        minutes = int(late.total_seconds() // 60)
        counted = f"{queue.due:,}{'+' if State.QUEUED in queue.more else ''}"
        text = f"the oldest of {counted} due jobs has waited for {minutes:,} min"
        if queue.name in limited:
            return warn(name, text, "its limit holds it back: see dibs limits")
        return warn(name, text, "add workers, or raise --concurrency")
    return ok(name, f"{due}, {many(len(queue.workers), 'live worker')}")


def alive(workers: Sequence[Worker]) -> list[Finding]:
    """Whether somebody works, and who is gone with jobs in hand."""
    live = sum(worker.live for worker in workers)
    # One that ended and holds nothing is no news; one that holds jobs did not end in good order.
    lost = [worker for worker in workers if not worker.live and worker.running]
    if live:
        findings = [ok("workers", many(live, "live worker"))]
    else:
        findings = [warn("workers", "no live worker", "start one: dibs work APP")]
    for worker in lost[:10]:
        since = "ever" if worker.seen_at is None else f"since {worker.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        text = f"not seen {since}, holds {many(worker.running, 'job')}"
        findings.append(warn(f"worker {worker.name}", text, "see why it ended; its jobs are taken over by others"))
    return findings


def failed(queues: Sequence[Queue]) -> Finding:
    """The dead letters."""
    count = total(queues, State.FAILED)
    if not count:
        return ok("failures", "no failed jobs")
    more = any(State.FAILED in queue.more for queue in queues)
    return warn("failures", many(count, "failed job", more=more), "look at them: dibs jobs list --state failed")


def scheduled(schedules: Sequence[Listed]) -> list[Finding]:
    """Nothing where there are none: most stores have none."""
    findings = []
    for one in schedules:
        name = f"schedule {one.name}"
        if one.problem is not None:
            findings.append(warn(name, one.problem, "workers that can read it run it; see dibs schedules show"))
        elif one.late is not None:
            text = f"nobody enqueued its tick of {one.late:%Y-%m-%d %H:%M:%S} UTC"
            findings.append(fail(name, text, "start a worker: dibs work APP"))
    if schedules and not findings:
        paused = sum(one.paused for one in schedules)
        findings.append(ok("schedules", f"{many(len(schedules), 'schedule')}, {paused} paused"))
    return findings


def many(count: int, thing: str, *, more: bool = False) -> str:
    """``1 job``, ``2 jobs``; ``10,000+ jobs`` if there are more."""
    return f"{count:,}{'+' if more else ''} {thing}{'' if count == 1 and not more else 's'}"
