"""Queues, limits, workers, tasks, and all of it at a glance."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from dibs.http.service.data.base import Given, Name, Value
from dibs.job import Order, State


class RateShown(Value, frozen=True, kw_only=True):
    """So many starts in so many seconds."""

    count: int
    per: float


class LimitShown(Value, frozen=True, kw_only=True):
    """A limit, and how far it is used."""

    queue: str | None
    task: str | None
    each_key: bool
    concurrency: int | None
    rate: RateShown | None
    running: int | None
    """Null where each key has its own."""
    next_start: datetime | None
    by: Literal["code", "operator"]
    """Who set it: what an operator sets stays, whatever the code says."""


class RateGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many starts in so many seconds."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    per: Annotated[float, Meta(ge=0.001, le=86_400)]


class LimitGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit to set: for a queue or for a task."""

    queue: Name | None = None
    task: Name | None = None
    each_key: bool = False
    concurrency: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    rate: RateGiven | None = None


class Percentiles(Value, frozen=True, kw_only=True):
    """In seconds; null if nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None


class QueueShown(Value, frozen=True, kw_only=True):
    """A queue, counted."""

    name: str
    paused: bool
    order: Order
    ageing: float | None
    states: dict[State, int]
    due: int
    scheduled: int
    oldest_due: datetime | None
    more: tuple[State, ...]
    """States of which there are at least so many: they are being counted."""
    workers: tuple[str, ...]
    """The live workers that serve it."""
    limits: tuple[LimitShown, ...]
    throughput: float | None
    """Jobs ended per second, over the last minutes; null if no worker told."""
    runtime: Percentiles
    latency: Percentiles
    """How long jobs were due before they were started."""


class OrderGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which order a queue hands out its jobs."""

    order: Order = Order.FIFO
    ageing: Annotated[float, Meta(ge=0.001, le=86_400)] | None = None


class RunningJob(Value, frozen=True, kw_only=True):
    """A job that a worker holds."""

    id: UUID
    task: str
    queue: str
    attempt: int
    started_at: datetime | None
    locked_until: datetime | None
    expired: bool
    progress: float | None
    note: str
    cancel_asked: bool


class WorkerShown(Value, frozen=True, kw_only=True):
    """A worker, and what it runs."""

    name: str
    live: bool
    seen_at: datetime | None
    running: int
    concurrency: int | None
    queues: tuple[str, ...] | None
    """Null if it never said."""
    tasks: tuple[str, ...] | None
    stop_asked: datetime | None
    info: dict[str, Any]
    jobs: tuple[RunningJob, ...]
    """Those that it holds, longest first, the first fifty."""


class TaskShown(Value, frozen=True, kw_only=True):
    """A task: what is there of it now, and what workers measured."""

    name: str
    known: bool
    """Whether this program has its code."""
    workers: tuple[str, ...]
    """The live workers that know it."""
    waiting: int
    queued: int
    scheduled: int
    """Of those that are queued: not due yet."""
    running: int
    oldest_due: datetime | None
    """Since when the first of them waits."""
    complete: bool
    """False: there are more jobs than were looked at to count these."""
    started: int
    """This and those below: what workers did in the last hour."""
    succeeded: int
    failed: int
    retried: int
    cancelled: int
    throughput: float | None
    """Jobs ended per second, over the last hour."""
    runtime: Percentiles
    latency: Percentiles
    """How long jobs were due before they were started."""


class Overview(Value, frozen=True, kw_only=True):
    """Everything at a glance."""

    at: datetime
    counted_at: datetime
    """Counting millions takes a while: these numbers may be some seconds old."""
    store: str
    """The store's URL, without its secrets."""
    version: str
    states: dict[State, int]
    due: int
    scheduled: int
    oldest_due: datetime | None
    more: tuple[State, ...]
    """States of which there are at least so many: they are being counted."""
    queues: tuple[QueueShown, ...]
    workers_live: int
    workers_lost: int
    """Gone, and still holding jobs."""
    throughput: float | None
    """Jobs ended per second, over the last minutes; null if no worker told."""
    failing: float | None
    """The share of them that failed."""
    runtime: Percentiles
    latency: Percentiles
    findings: tuple["Finding", ...]


class Finding(Value, frozen=True, kw_only=True):
    """Something that an operator should know, with what to do."""

    level: Literal["ok", "warn", "fail"]
    about: str
    text: str
    advice: str
