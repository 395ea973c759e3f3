"""One measured run: claimers empty a queue together, and it is proved that each job was claimed once."""

import asyncio
import gc
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bench.lib.ways import Tally, Way
from dibs.worker.until_signal import collect_less_often

STALL = 60.0
"""Seconds without a claim after which a run is given up."""


class DiscrepancyError(Exception):
    """Jobs were lost, claimed twice or not settled: there is no figure to print."""


@dataclass
class Run:
    """What happened, as the claimers saw it."""

    total: int
    claimed: int = 0
    accepted: int = 0
    ids: bytearray = field(default_factory=bytearray)
    """Of all that was claimed, 16 bytes each: objects that are kept would slow down whoever makes new ones."""
    epochs: "array[int]" = field(default_factory=lambda: array("q"))
    marks: list[tuple[float, int]] = field(default_factory=list)
    """After each settle: seconds since the start, jobs settled."""
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of processor time, by the clock that the race was given."""

    @property
    def rate(self) -> float:
        """Jobs claimed and settled in a second."""
        return self.total / self.seconds


async def warm_up(way: Way, claimers: int) -> None:
    """Claim and settle one job on every connection: nobody is measured while it connects and prepares."""
    ids = await way.fill(claimers)
    claims = await asyncio.gather(*(way.claim(number, 1) for number in range(claimers)))
    held = [(number, batch) for number, batch in enumerate(claims) if batch]
    await asyncio.gather(*(way.settle(number, batch) for number, batch in held))
    # Those that a claimer passed because another was about to take them.
    for _ in range(claimers - len(held)):
        if batch := await way.claim(0, 1):
            await way.settle(0, batch)
    _agree(way.name, "succeeded after warming up", (await way.tally()).succeeded, len(ids))


async def race(
    way: Way, jobs: int, batch: int, claimers: int, *, held: int = 0, cpu: Callable[[], float] = time.process_time
) -> Run:
    """Fill, measure, verify. A claimer goes on claiming while it holds so many jobs, and settles its oldest ones."""
    await warm_up(way, claimers)
    ids = await way.fill(jobs)
    _agree(way.name, "enqueued", len(ids), jobs)
    await way.calm()
    run = Run(total=jobs)
    with _memory_set_aside():
        cpu_began, began = cpu(), time.perf_counter()
        await asyncio.gather(*(_claimer(way, run, number, (batch, held), began) for number in range(claimers)))
        run.seconds, run.cpu = time.perf_counter() - began, cpu() - cpu_began
    _verify(way, run, ids)
    # The warm-up's jobs are in the history too.
    _agree(way.name, "jobs by state", await way.tally(), Tally(0, 0, jobs + claimers))
    return run


@contextmanager
def _memory_set_aside() -> Iterator[None]:
    """Let nobody pay for what this program remembers: the collector would go through all of it, for up to 60 ms.

    What is left to collect is looked for as seldom as in a worker's process.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    collect_less_often()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _claimer(way: Way, run: Run, number: int, sizes: tuple[int, int], began: float) -> None:
    batch, most = sizes
    moved = began
    held: deque[list[Any]] = deque()
    holds = 0
    while run.claimed < run.total:
        claims = await way.claim(number, batch)
        if not claims:
            if time.perf_counter() - moved > STALL:
                return
            await asyncio.sleep(0.001)
            continue
        run.claimed += len(claims)
        run.ids += b"".join(way.ids(claims))
        run.epochs.extend(way.epochs(claims))
        held.append(claims)
        holds += len(claims)
        while held and (holds > most or run.claimed >= run.total):
            done = held.popleft()
            holds -= len(done)
            # Not in one statement: that would read the sum before it waits, and lose what others add meanwhile.
            accepted = await way.settle(number, done)
            run.accepted += accepted
            moved = time.perf_counter()
            run.marks.append((moved - began, run.accepted))
    for done in held:  # another claimer took the last ones
        accepted = await way.settle(number, done)
        run.accepted += accepted


def _verify(way: Way, run: Run, ids: Sequence[UUID]) -> None:
    times = Counter(UUID(bytes=bytes(run.ids[at : at + 16])) for at in range(0, len(run.ids), 16))
    expected = set(ids)
    twice = sum(count > 1 for count in times.values())
    _agree(way.name, "jobs claimed more than once", twice, 0)
    _agree(way.name, "jobs never claimed", len(expected - times.keys()), 0)
    _agree(way.name, "claims of jobs that nobody enqueued", len(times.keys() - expected), 0)
    _agree(way.name, "epochs other than 1", sum(epoch != 1 for epoch in run.epochs), 0)
    _agree(way.name, "settles accepted", run.accepted, run.total)


def _agree(way: str, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise DiscrepancyError(f"{way}: {what}: {found}, expected {expected}")
