"""Queues and workers as operators see them, made of what a store says."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dibs.job import Order, QueueCounts, State, WorkerInfo

LIVE = timedelta(seconds=35)
"""A worker shows itself every ten seconds: one that missed three of them is gone."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as operators see it: what it serves, and whether it is alive."""

    name: str
    live: bool
    seen_at: datetime | None
    running: int
    queues: tuple[str, ...] | None
    """None if it never said."""
    tasks: tuple[str, ...] | None
    concurrency: int | None
    info: dict[str, Any]

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs of the queue, as far as anybody knows."""
        return self.queues is None or queue in self.queues

    def knows(self, task: str) -> bool:
        """Whether it can run the task, as far as anybody knows."""
        return self.tasks is None or task in self.tasks

    @property
    def full(self) -> bool:
        """Whether it runs as many jobs as it can at once."""
        return self.concurrency is not None and self.running >= self.concurrency


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as operators see it."""

    name: str
    paused: bool
    order: Order
    ageing: timedelta | None = None
    """How long a due job waits to be worth one priority more; None: for ever."""
    states: dict[State, int]
    due: int
    scheduled: int
    oldest_due: datetime | None
    workers: tuple[str, ...]
    """The live workers that serve it."""
    more: frozenset[State] = frozenset()
    """States of which there are at least so many: nobody counted to the end."""


def worker_of(one: WorkerInfo, now: datetime) -> Worker:
    """A worker, of what the store knows and of what it says of itself."""
    info = one.info
    patience = max(LIVE, timedelta(seconds=_number(info.get("lease")) or 0))
    seen = one.seen_at
    live = one.running > 0 if seen is None else now - seen <= patience and not info.get("stopped_at")
    concurrency = _number(info.get("concurrency"))
    return Worker(
        name=one.name,
        live=live,
        seen_at=seen,
        running=one.running,
        queues=_names(info.get("queues")),
        tasks=_names(info.get("tasks")),
        concurrency=None if concurrency is None else int(concurrency),
        info=info,
    )


def _names(value: Any) -> tuple[str, ...] | None:
    # What a worker says of itself is any JSON: a list, or queues with their weights.
    return tuple(str(name) for name in value) if isinstance(value, list | dict) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def queues_of(counts: Iterable[QueueCounts], workers: Sequence[Worker]) -> list[Queue]:
    """Every queue that has jobs or settings, or a live worker, by name."""
    known = {one.queue: one for one in counts}
    served = {queue for worker in workers if worker.live for queue in worker.queues or ()}
    return [_queue(name, known.get(name), workers) for name in sorted({*known, *served})]


def _queue(name: str, counted: QueueCounts | None, workers: Sequence[Worker]) -> Queue:
    states = dict.fromkeys(State, 0) if counted is None else counted.states
    scheduled = 0 if counted is None else counted.scheduled
    return Queue(
        name=name,
        paused=counted is not None and counted.paused,
        order=Order.FIFO if counted is None else counted.order,
        ageing=None if counted is None else counted.ageing,
        states=states,
        due=states[State.QUEUED] - scheduled,
        scheduled=scheduled,
        oldest_due=None if counted is None else counted.oldest_due,
        workers=tuple(worker.name for worker in workers if worker.live and worker.serves(name)),
        more=frozenset() if counted is None else counted.more,
    )


def total(queues: Iterable[Queue], state: State) -> int:
    """How many jobs of all these queues are in that state."""
    return sum(queue.states[state] for queue in queues)
