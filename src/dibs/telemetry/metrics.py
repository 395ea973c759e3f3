"""The metrics of a worker and of a store, as plain values: names by Prometheus' conventions, labels from bounded sets.

Labels are queues, tasks, outcomes and states; never jobs, keys or workers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from dibs.job import UNFINISHED, QueueCounts, State, WorkerInfo
from dibs.telemetry.buckets import coarse
from dibs.telemetry.health import Vitals
from dibs.telemetry.tally import OUTCOMES, SIZES, Place, Tally
from dibs.version import __version__

MOST = 200
"""How many queues of a store are named; those with the fewest unfinished jobs are added up as ``(others)``."""
SILENT = timedelta(seconds=60)
"""A worker that was not seen for so long is not counted."""

Sample = tuple[str, dict[str, str], float]
"""Name, labels, value."""


class Family(msgspec.Struct):
    """All series of one metric."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = msgspec.field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        self.samples.append((self.name + suffix, labels, float(value)))

    def add_histogram(self, buckets: Sequence[tuple[str, float]], total: float, **labels: str) -> None:
        for bound, count in buckets:
            self.add(count, "_bucket", **labels, le=bound)
        self.add(buckets[-1][1], "_count", **labels)
        self.add(total, "_sum", **labels)


WORKER_METRICS = {
    "dibs_jobs_started": ("counter", "Attempts that were started."),
    "dibs_jobs_ended": ("counter", "Attempts that ended, by outcome, as the store has it."),
    "dibs_job_duration_seconds": ("histogram", "How long attempts took."),
    "dibs_job_wait_seconds": ("histogram", "How long jobs waited from when they were due until they were started."),
    "dibs_jobs_running": ("gauge", "Attempts that run now."),
    "dibs_worker_slots": ("gauge", "How many attempts can run at once."),
    "dibs_worker_loop_lag_seconds": ("gauge", "How late the worker's event loop is: more when handlers block it."),
    "dibs_worker_store_up": ("gauge", "1 if the worker reaches its store, 0 if not."),
    "dibs_settle_batch_size": ("histogram", "How many outcomes went to the store in one call."),
    "dibs_build_info": ("gauge", "The version of dibs; always 1."),
}
STORE_METRICS = {
    "dibs_queue_jobs": ("gauge", "Jobs in the store, by state."),
    "dibs_queue_due_jobs": ("gauge", "Queued jobs that are due."),
    "dibs_queue_oldest_due_seconds": ("gauge", "For how long the oldest due job has been due; 0 if none is."),
    "dibs_queue_paused": ("gauge", "1 if the queue is paused."),
    "dibs_workers": ("gauge", "Workers that were seen in the last minute and have not stopped."),
    "dibs_store_up": ("gauge", "1 if the store answered when it was last asked, 0 if not."),
    "dibs_counts_age_seconds": (
        "gauge",
        "How old the figures of the queues are: they are not counted at every scrape.",
    ),
}


class Watched(Protocol):
    """What is to be known of a worker."""

    @property
    def slots(self) -> int: ...
    @property
    def tally(self) -> Tally: ...
    @property
    def vitals(self) -> Vitals: ...
    def running(self) -> Counter[Place]: ...


def worker_families(worker: Watched) -> list[Family]:
    """What a worker has counted so far. Asks nobody, so it can be asked from any thread, at any time."""
    found = _families(WORKER_METRICS)
    places, running = worker.tally.places(), worker.running()
    for (queue, task), figures in sorted(places.items()):
        labels = {"queue": queue, "task": task}
        found["dibs_jobs_started"].add(figures.started, "_total", **labels)
        for outcome in OUTCOMES:
            found["dibs_jobs_ended"].add(getattr(figures, outcome), "_total", **labels, outcome=outcome)
        found["dibs_job_duration_seconds"].add_histogram(coarse(figures.ran), figures.ran.seconds, **labels)
        found["dibs_job_wait_seconds"].add_histogram(coarse(figures.waited), figures.waited.seconds, **labels)
    for queue, task in sorted({*places, *running}):
        found["dibs_jobs_running"].add(running[queue, task], queue=queue, task=task)
    found["dibs_worker_slots"].add(worker.slots)
    found["dibs_worker_loop_lag_seconds"].add(worker.vitals.loop_lag)
    found["dibs_worker_store_up"].add(not worker.vitals.store_away())
    found["dibs_build_info"].add(1, version=__version__)
    sizes = zip([*map(str, SIZES), "+Inf"], map(float, accumulate(worker.tally.settles)), strict=True)
    found["dibs_settle_batch_size"].add_histogram(list(sizes), worker.tally.settled)
    return list(found.values())


class Counted(msgspec.Struct, frozen=True):
    """What a store answered, and what its clock showed."""

    now: datetime
    queues: Sequence[QueueCounts]
    workers: Sequence[WorkerInfo]


def store_families(counted: Counted | None, *, up: bool, age: float) -> list[Family]:
    """What is in a store; of one that has never answered, only that."""
    found = _families(STORE_METRICS)
    found["dibs_store_up"].add(up)
    if counted is not None:
        found["dibs_counts_age_seconds"].add(age)
        found["dibs_workers"].add(sum(_is_there(each, counted.now) for each in counted.workers))
        for each in _few(counted.queues):
            _add_queue(found, each, counted.now)
    return list(found.values())


def _add_queue(found: Mapping[str, Family], each: QueueCounts, now: datetime) -> None:
    for state in State:
        found["dibs_queue_jobs"].add(each.states.get(state, 0), queue=each.queue, state=state.value)
    found["dibs_queue_due_jobs"].add(each.states.get(State.QUEUED, 0) - each.scheduled, queue=each.queue)
    oldest = 0.0 if each.oldest_due is None else max(0.0, (now - each.oldest_due).total_seconds())
    found["dibs_queue_oldest_due_seconds"].add(oldest, queue=each.queue)
    found["dibs_queue_paused"].add(each.paused, queue=each.queue)


def _few(queues: Sequence[QueueCounts]) -> list[QueueCounts]:
    if len(queues) <= MOST:
        return list(queues)
    fullest = sorted(queues, key=lambda each: -sum(each.states.get(state, 0) for state in UNFINISHED))
    rest = fullest[MOST - 1 :]
    others = QueueCounts(
        queue="(others)",
        paused=False,
        order=rest[0].order,
        states={state: sum(each.states.get(state, 0) for each in rest) for state in State},
        scheduled=sum(each.scheduled for each in rest),
        oldest_due=min((each.oldest_due for each in rest if each.oldest_due is not None), default=None),
    )
    return [*sorted(fullest[: MOST - 1], key=lambda each: each.queue), others]


def _is_there(worker: WorkerInfo, now: datetime) -> bool:
    return worker.seen_at is not None and worker.seen_at > now - SILENT and "stopped_at" not in worker.info


def _families(catalogue: Mapping[str, tuple[str, str]]) -> dict[str, Family]:
    return {name: Family(name, kind, help) for name, (kind, help) in catalogue.items()}


# --- of several processes -----------------------------------------------------------------------------------


def together(processes: Mapping[str, Sequence[Family]]) -> list[Family]:
    """The families of several processes, told apart by the label ``process``.

    They are not added up: a process that is started again counts from 0, and a sum would fall with it.
    """
    found: dict[str, Family] = {}
    for process, families in processes.items():
        for each in families:
            there = found.setdefault(each.name, Family(each.name, each.kind, each.help))
            there.samples += [(name, {**labels, "process": process}, value) for name, labels, value in each.samples]
    return list(found.values())


def pack(families: Sequence[Family]) -> bytes:
    """For another process to read."""
    return msgspec.json.encode([_plain(each) for each in families])


def _plain(family: Family) -> dict[str, Any]:
    # JSON knows no NaN and no infinity; somebody's own metric may be one.
    samples = [[name, labels, repr(value)] for name, labels, value in family.samples]
    return {"name": family.name, "kind": family.kind, "help": family.help, "samples": samples}


def unpack(packed: bytes) -> list[Family]:
    return [
        Family(each["name"], each["kind"], each["help"], [(n, labels, float(v)) for n, labels, v in each["samples"]])
        for each in msgspec.json.decode(packed)
    ]
