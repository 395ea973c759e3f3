"""What workers measured, and what is told live."""

from datetime import datetime
from typing import Any, Literal

from dibs.http.service.data.base import Role, Value
from dibs.http.service.data.queues import Percentiles


class SampleTask(Value, frozen=True, kw_only=True):
    """What workers counted of one task in one slot."""

    started: int
    succeeded: int
    failed: int
    retried: int
    cancelled: int
    runtime: Percentiles
    latency: Percentiles


class SampleQueue(Value, frozen=True, kw_only=True):
    """How full a queue was."""

    depth: int
    due: int


class Slot(Value, frozen=True, kw_only=True):
    """Five minutes."""

    at: datetime
    tasks: dict[str, SampleTask]
    total: SampleTask
    queues: dict[str, SampleQueue]


class Samples(Value, frozen=True, kw_only=True):
    """What workers recorded, the oldest slot first; slots in which nothing happened are there, too, and empty."""

    slots: tuple[Slot, ...]
    slot_seconds: float


class Event(Value, frozen=True, kw_only=True):
    """Something that changed."""

    name: Literal["counts", "workers", "ended", "batch", "job", "flow"]
    data: Any


class Outcome(Value, frozen=True, kw_only=True):
    """How many it changed."""

    changed: int


class Identity(Value, frozen=True, kw_only=True):
    """Who is asking."""

    name: str
    role: Role

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR
