"""Queues, tasks and the whole, counted and measured. Pure, but for one walk through unfinished jobs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dibs.admin import Worker, health_of
from dibs.http.service import data, search
from dibs.job import NOT_STARTED, Filter, Order, QueueCounts, State
from dibs.redaction import safe_url
from dibs.schedules import Listed
from dibs.store import Store
from dibs.version import __version__

TALLIED = 10_000
"""How many unfinished jobs are looked at to count them by task."""
NOTHING = data.Percentiles(p50=None, p90=None, p99=None)


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What workers measured of one task, or of all."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    runtime: data.Percentiles = NOTHING
    latency: data.Percentiles = NOTHING


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What workers measured in some time."""

    seconds: float = 0.0
    tasks: Mapping[str, TaskFigures] = {}
    total: TaskFigures = TaskFigures()


async def tally(store: Store) -> tuple[dict[str, dict[State, int]], bool]:
    """Unfinished jobs by task and state, and whether these are all."""
    seen, looked = dict[str, dict[State, int]](), 0
    async for jobs, rest in search.walk(store, Filter(states=(*sorted(NOT_STARTED), State.RUNNING))):
        looked += len(jobs)
        for job in jobs:
            states = seen.setdefault(job.task, {})
            states[job.state] = states.get(job.state, 0) + 1
        if looked >= TALLIED:
            return seen, rest is None
    return seen, True


def task_shown(
    name: str,
    states: Mapping[State, int],
    workers: Iterable[Worker],
    *,
    complete: bool,
    measured: Measured,
    known: bool,
) -> data.TaskShown:
    figures = measured.tasks.get(name, TaskFigures())
    return data.TaskShown(
        name=name,
        known=known,
        workers=tuple(worker.name for worker in workers if worker.knows(name)),
        waiting=states.get(State.WAITING, 0),
        queued=states.get(State.QUEUED, 0),
        running=states.get(State.RUNNING, 0),
        complete=complete,
        **{field: getattr(figures, field) for field in TaskFigures.__struct_fields__},
    )


def with_served(counts: Sequence[QueueCounts], workers: Iterable[Worker]) -> list[QueueCounts]:
    """A queue that has nothing but a live worker is a queue, too."""
    known = {one.queue for one in counts}
    served = {queue for worker in workers if worker.live for queue in worker.queues or ()} - known
    return sorted([*counts, *(_empty(name) for name in served)], key=lambda one: one.queue)


def _empty(name: str) -> QueueCounts:
    none = dict.fromkeys(State, 0)
    return QueueCounts(queue=name, paused=False, order=Order.FIFO, states=none, scheduled=0, oldest_due=None)


def queue_shown(one: QueueCounts, workers: Iterable[Worker], limits: Iterable[data.LimitShown]) -> data.QueueShown:
    return data.QueueShown(
        name=one.queue,
        paused=one.paused,
        order=one.order,
        ageing=None if one.ageing is None else one.ageing.total_seconds(),
        states=one.states,
        due=one.states[State.QUEUED] - one.scheduled,
        scheduled=one.scheduled,
        oldest_due=one.oldest_due,
        workers=tuple(worker.name for worker in workers if worker.live and worker.serves(one.queue)),
        limits=tuple(limit for limit in limits if limit.queue == one.queue),
    )


def overview(
    *,
    now: datetime,
    counted_at: datetime,
    url: str,
    queues: Sequence[data.QueueShown],
    workers: Sequence[Worker],
    measured: Measured,
    findings: Sequence[data.Finding],
) -> data.Overview:
    states = {state: sum(queue.states[state] for queue in queues) for state in State}
    oldest = [queue.oldest_due for queue in queues if queue.oldest_due is not None]
    total = measured.total
    ended = total.succeeded + total.failed + total.cancelled
    return data.Overview(
        at=now,
        counted_at=counted_at,
        store=safe_url(url) if url else "",
        version=__version__,
        states=states,
        due=sum(queue.due for queue in queues),
        scheduled=sum(queue.scheduled for queue in queues),
        oldest_due=min(oldest, default=None),
        queues=tuple(queues),
        workers_live=sum(worker.live for worker in workers),
        workers_lost=sum(not worker.live and worker.running > 0 for worker in workers),
        throughput=ended / measured.seconds if measured.seconds else None,
        failing=total.failed / ended if ended else None,
        runtime=total.runtime,
        latency=total.latency,
        findings=tuple(findings),
    )


def findings(
    counts: Sequence[QueueCounts], workers: Sequence[Worker], schedules: Sequence[Listed], now: datetime
) -> list[data.Finding]:
    """What an operator should know, the worst first."""
    worst = {"fail": 0, "warn": 1, "ok": 2}
    found = [
        data.Finding(level=one.level.value, about=one.check, text=one.text, advice=one.fix)
        for one in health_of(counts, workers, schedules, now)
    ]
    return sorted(found, key=lambda one: worst[one.level])
