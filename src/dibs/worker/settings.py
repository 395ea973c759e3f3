"""What a worker is told, checked once."""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from secrets import token_hex

import msgspec

from dibs import limits
from dibs.errors import ConfigurationError, Refused
from dibs.job import Retention


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Worker`` for what each is about."""

    queues: Sequence[str] | Mapping[str, int] = ("default",)
    concurrency: int = 100
    processes: int = os.cpu_count() or 1
    name: str
    lease: timedelta = timedelta(seconds=30)
    grace: timedelta = timedelta(seconds=30)
    prefetch: int | None = None
    retention: Retention | None = Retention()
    until_empty: bool = False
    samples: bool = True

    def __post_init__(self) -> None:
        try:
            limits.name(self.name, "the worker's name")
            limits.lease(self.lease)
            for queue in self.queues:
                limits.name(queue, "queue")
        except Refused as problem:
            raise ConfigurationError(str(problem)) from None
        _require(not isinstance(self.queues, str), "queues must be a list of names, or a mapping of names to weights")
        _require(len(self.queues) > 0, "a worker needs at least one queue")
        if isinstance(self.queues, Mapping):
            for queue, weight in self.queues.items():
                _require(
                    _whole(weight, 1), f"the weight of queue {queue} must be a whole number from 1, not {weight!r}"
                )
        _require(_whole(self.concurrency, 1), f"concurrency must be a whole number from 1, not {self.concurrency!r}")
        _require(_whole(self.processes, 1), f"processes must be a whole number from 1, not {self.processes!r}")
        _require(
            self.prefetch is None or (_whole(self.prefetch, 0) and self.prefetch <= limits.BULK // 2),
            f"prefetch must be a whole number from 0 to {limits.BULK // 2}, not {self.prefetch!r}",
        )
        _require(self.grace >= timedelta(0), f"grace must not be negative: {self.grace}")


def _require(met: bool, otherwise: str) -> None:
    if not met:
        raise ConfigurationError(otherwise)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def default_name() -> str:
    """A name that no other worker has: two that shared one would take each other's calls for their own."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{token_hex(3)}"
