"""Queues, tasks and the whole, counted and measured. Pure, but for one walk through unfinished jobs."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs import health
from dibs.http.service import data, search
from dibs.job import NOT_STARTED, Filter, Job, State
from dibs.limiting import SetLimit
from dibs.overview import Queue, Worker
from dibs.redaction import safe_url
from dibs.schedules import Listed
from dibs.store import Store
from dibs.telemetry.buckets import Times
from dibs.telemetry.series import Depth, Point, Series
from dibs.telemetry.slots import SLOT
from dibs.telemetry.tally import Figures
from dibs.version import __version__

TALLIED = 10_000
"""How many unfinished jobs are looked at to count them by task."""


class There(msgspec.Struct):
    """What is there of a task, as far as it was looked at."""

    states: Counter[State] = msgspec.field(default_factory=Counter)
    scheduled: int = 0
    """Of those that are queued: not due yet."""
    oldest_due: datetime | None = None

    def add(self, job: Job, now: datetime) -> None:
        self.states[job.state] += 1
        if job.state is not State.QUEUED:
            return
        if job.run_at > now:
            self.scheduled += 1
        elif self.oldest_due is None or job.run_at < self.oldest_due:
            self.oldest_due = job.run_at


async def tally(store: Store, now: datetime) -> tuple[dict[str, There], bool]:
    """Unfinished jobs by task, and whether these are all: as many as there is time for."""
    seen, looked, until = defaultdict[str, There](There), 0, time.monotonic() + search.SECONDS
    async for jobs, rest in search.walk(store, Filter(states=(*sorted(NOT_STARTED), State.RUNNING))):
        looked += len(jobs)
        for job in jobs:
            seen[job.task].add(job, now)
        if looked >= TALLIED or time.monotonic() > until:
            return seen, rest is None
    return seen, True


def task_shown(
    name: str,
    there: There,
    workers: Iterable[Worker],
    *,
    complete: bool,
    series: Series,
    known: bool,
) -> data.TaskShown:
    figures = series.tasks.get(name, Figures())
    return data.TaskShown(
        name=name,
        known=known,
        workers=tuple(worker.name for worker in workers if worker.knows(name)),
        waiting=there.states[State.WAITING],
        queued=there.states[State.QUEUED],
        scheduled=there.scheduled,
        running=there.states[State.RUNNING],
        oldest_due=there.oldest_due,
        complete=complete,
        throughput=_throughput(figures, series),
        **figured(figures),
    )


def queue_shown(one: Queue, limits: Iterable[data.LimitShown], series: Series) -> data.QueueShown:
    figures = series.queues.get(one.name, Figures())
    return data.QueueShown(
        name=one.name,
        paused=one.paused,
        order=one.order,
        ageing=None if one.ageing is None else one.ageing.total_seconds(),
        states=one.states,
        due=one.due,
        scheduled=one.scheduled,
        oldest_due=one.oldest_due,
        more=tuple(sorted(one.more)),
        workers=one.workers,
        limits=tuple(limit for limit in limits if limit.queue == one.name),
        throughput=_throughput(figures, series),
        runtime=percentiles(figures.ran),
        latency=percentiles(figures.waited),
    )


def overview(
    *,
    now: datetime,
    counted_at: datetime,
    url: str,
    queues: Sequence[data.QueueShown],
    workers: Sequence[Worker],
    series: Series,
    findings: Sequence[data.Finding],
) -> data.Overview:
    states = {state: sum(queue.states[state] for queue in queues) for state in State}
    oldest = [queue.oldest_due for queue in queues if queue.oldest_due is not None]
    total = series.total
    ended = _ended(total)
    return data.Overview(
        at=now,
        counted_at=counted_at,
        store=safe_url(url) if url else "",
        version=__version__,
        states=states,
        due=sum(queue.due for queue in queues),
        scheduled=sum(queue.scheduled for queue in queues),
        oldest_due=min(oldest, default=None),
        more=tuple(sorted({state for queue in queues for state in queue.more})),
        queues=tuple(queues),
        workers_live=sum(worker.live for worker in workers),
        workers_lost=sum(not worker.live and worker.running > 0 for worker in workers),
        throughput=_throughput(total, series),
        failing=total.failed / ended if ended else None,
        runtime=percentiles(total.ran),
        latency=percentiles(total.waited),
        findings=tuple(findings),
    )


def findings(
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    schedules: Sequence[Listed],
    limits: Iterable[SetLimit],
    now: datetime,
) -> list[data.Finding]:
    """What an operator should know, the worst first."""
    worst = {"fail": 0, "warn": 1, "ok": 2}
    limited = {limit.scope.queue or "" for limit in limits if _no_room(limit)}
    found = [
        data.Finding(level=one.level.value, about=one.check, text=one.text, advice=one.fix)
        for one in health.findings(queues, workers, schedules, limited, now)
    ]
    return sorted(found, key=lambda one: worst[one.level])


def _no_room(limit: SetLimit) -> bool:
    most = limit.limit.concurrency
    return limit.next_start is not None or (most is not None and limit.running is not None and limit.running >= most)


# --- what workers measured --------------------------------------------------------------------------------------


def percentiles(times: Times) -> data.Percentiles:
    return data.Percentiles(p50=times.quantile(0.5), p90=times.quantile(0.9), p99=times.quantile(0.99))


def _ended(figures: Figures) -> int:
    return figures.succeeded + figures.failed + figures.cancelled


def _throughput(figures: Figures, series: Series) -> float | None:
    """Jobs that ended, a second; None where workers told nothing."""
    seconds = (series.until - series.since).total_seconds()
    return _ended(figures) / seconds if figures.started and seconds else None


def figured(figures: Figures) -> dict[str, Any]:
    counts = {name: getattr(figures, name) for name in ("started", "succeeded", "failed", "retried", "cancelled")}
    return {**counts, "runtime": percentiles(figures.ran), "latency": percentiles(figures.waited)}


def samples_shown(series: Series) -> data.Samples:
    """A slot for each point; of its minutes the last one says how full the queues were."""
    depths: dict[datetime, Depth] = {}
    for depth in series.depths:  # in the order of time
        for point in series.points:
            if point.at <= depth.at < point.at + SLOT:
                depths[point.at] = depth
                break
    slots = tuple(_slot(point, depths.get(point.at)) for point in series.points)
    return data.Samples(slots=slots, slot_seconds=SLOT.total_seconds())


def _slot(point: Point, depth: Depth | None) -> data.Slot:
    queues = {} if depth is None else depth.queues
    return data.Slot(
        at=point.at,
        tasks={name: data.SampleTask(**figured(figures)) for name, figures in point.tasks.items()},
        total=data.SampleTask(**figured(point.total)),
        queues={name: data.SampleQueue(**_depth(each)) for name, each in queues.items()},
    )


def _depth(each: Mapping[str, float]) -> dict[str, Any]:
    due = int(each.get("due", 0))
    return {"depth": due + int(each.get("scheduled", 0)) + int(each.get("waiting", 0)), "due": due}
