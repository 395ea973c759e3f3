"""A way to claim and settle: dibs itself, the bare limit of its driver, or a rival."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from dibs import NewJob, State, Store
from dibs.outcome import Succeeded, Verdict

QUEUE = "bench"
TASK = "mail.send"
LEASE = timedelta(minutes=30)
CHUNK = 10_000
RESULT = {"sent": True, "server": "mx1.example.org"}
"""What every job answers. Each way encodes it for each job, as a worker would."""

_FOLDER = Path(__file__).parents[1]


@cache
def text_of(name: str) -> str:
    """A file of ``bench/sql`` or ``bench/lua``."""
    return (_FOLDER / name).read_text("utf-8")


def worker_of(number: int) -> str:
    """The name of a claimer."""
    return f"bench-{number}"


def arguments(number: int) -> dict[str, Any]:
    """What every job brings: about a hundred bytes of JSON."""
    return {"to": f"somebody-{number}@example.org", "template": "welcome", "retries": [1, 5, 30], "number": number}


def new_jobs(
    count: int, *, priority: int = 0, run_at: datetime | None = None, tenants: int = 0
) -> Iterator[list[NewJob]]:
    """Jobs to enqueue, in chunks as large as a call may be; with limit keys if there are tenants."""
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        yield [
            NewJob(
                task=TASK,
                args=arguments(number),
                queue=QUEUE,
                priority=priority,
                run_at=run_at,
                limit_key=f"tenant-{number % tenants}" if tenants else None,
            )
            for number in numbers
        ]


async def enqueue(
    store: Store, count: int, *, priority: int = 0, run_at: datetime | None = None, tenants: int = 0
) -> list[UUID]:
    """Fill a store."""
    ids: list[UUID] = []
    for chunk in new_jobs(count, priority=priority, run_at=run_at, tenants=tenants):
        ids += [answer.id for answer in await store.enqueue(chunk) if answer.created]
    return ids


class Tally(NamedTuple):
    """How many jobs a store has, by state."""

    queued: int
    running: int
    succeeded: int


class Way(ABC):
    """One contestant, open on an empty store. Claimers are numbered from 0."""

    name: str

    @abstractmethod
    async def fill(self, count: int) -> list[UUID]:
        """Enqueue so many jobs; not measured."""

    async def calm(self) -> None:  # noqa: B027 (most stores need nothing)
        """Called between filling and measuring: let the server finish what filling left to do."""

    @abstractmethod
    async def claim(self, claimer: int, limit: int) -> list[Any]:
        """Take jobs; what comes back can be run: arguments are decoded."""

    @abstractmethod
    def ids(self, claims: Sequence[Any]) -> list[bytes]:
        """The id of each claim, in 16 bytes."""

    @abstractmethod
    def epochs(self, claims: Sequence[Any]) -> list[int]:
        """The epoch of each claim."""

    @abstractmethod
    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        """Finish jobs as succeeded; answers how many were accepted."""

    @abstractmethod
    async def tally(self) -> Tally:
        """Count what is there now."""

    @abstractmethod
    async def close(self) -> None:
        """Give back connections and files."""


class DibsWay(Way):
    """A store of dibs, through the calls that a worker makes."""

    tenants = 0
    """Among how many limit keys the jobs are shared out; 0: they have none."""

    def __init__(self, store: Store, name: str = "dibs") -> None:
        self.name = name
        self.store = store

    async def fill(self, count: int) -> list[UUID]:
        return await enqueue(self.store, count, tenants=self.tenants)

    async def claim(self, claimer: int, limit: int) -> list[Any]:
        return await self.store.claim(QUEUE, worker_of(claimer), limit, LEASE)

    def ids(self, claims: Sequence[Any]) -> list[bytes]:
        return [claim.id.bytes for claim in claims]

    def epochs(self, claims: Sequence[Any]) -> list[int]:
        return [claim.epoch for claim in claims]

    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        verdicts = await self.store.settle([claim.settled(Succeeded(RESULT)) for claim in claims])
        return verdicts.count(Verdict.ACCEPTED)

    async def tally(self) -> Tally:
        states = next((each.states for each in await self.store.counts() if each.queue == QUEUE), {})
        return Tally(*(states.get(state, 0) for state in (State.QUEUED, State.RUNNING, State.SUCCEEDED)))

    async def close(self) -> None:
        await self.store.close()


class BareWay(Way):
    """A bare loop over a driver: its claims are tuples that begin with id and epoch."""

    name = "limit"
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder().decode

    def ids(self, claims: Sequence[Any]) -> list[bytes]:
        return [claim[0].bytes for claim in claims]

    def epochs(self, claims: Sequence[Any]) -> list[int]:
        return [claim[1] for claim in claims]

    def results(self, claims: Sequence[Any]) -> list[str]:
        """The result of each job as JSON text."""
        return [self.encode(RESULT).decode() for _ in claims]
