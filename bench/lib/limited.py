"""The same jobs with no limit and under limits that are never reached: in turns, bare and through a worker."""

import time
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from bench.lib.arenas import Arena
from bench.lib.progress import say
from bench.lib.race import race
from bench.lib.shifts import tasks, verify
from bench.lib.ways import QUEUE, TASK, DibsWay
from dibs import open_store
from dibs.scope import Limit, Scope
from dibs.worker import Worker

BULK = 200
NEVER_REACHED = Limit(concurrency=1_000_000)
LIMITS: Mapping[str, Scope | None] = {
    "none": None,
    "queue": Scope(queue=QUEUE),
    "task": Scope(task=TASK),
    "each key": Scope(queue=QUEUE, each_key=True),
}
HELD = 6_000
HOW = ("bare", "held", "worker")
"""Claims and settles of 200; the same while 6,000 others are running; a worker."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast it went once."""

    rate: float
    """Jobs per second."""
    cpu: float
    """Microseconds of processor time a job, of this process and of the server; with a worker of this process alone:
    what served it at the server ends with it."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit leaves of the throughput without one: medians of the ratios within each round."""

    store: str
    how: str
    limit: str
    jobs: int
    paces: list[Pace]
    rate: float
    cpu: float
    of_rate: float
    of_cpu: float
    """Less than 1: so much of the work that a given processor time did without a limit."""


async def shares(arena: Arena, jobs: int, rounds: int, tenants: int, how: Sequence[str] = HOW) -> list[Share]:
    """Measure all limits in turns; everybody is first once."""
    found = {(kind, limit): list[Pace]() for kind in how for limit in LIMITS}
    turns = list(found)
    for turn in range(rounds):
        start = turn % len(turns)
        for kind, limit in turns[start:] + turns[:start]:
            found[kind, limit].append(await _pace(arena, kind, limit, jobs, tenants))
        told = (
            f"{kind}, {limit}: {paces[-1].rate:,.0f}/s, {paces[-1].cpu:.1f} µs"
            for (kind, limit), paces in found.items()
        )
        say(f"{arena.name}: {'; '.join(told)}")
    return [_share(arena.name, kind, jobs, paces, found[kind[0], "none"]) for kind, paces in found.items()]


def _share(store: str, kind: tuple[str, str], jobs: int, paces: list[Pace], free: list[Pace]) -> Share:
    pairs = list(zip(paces, free, strict=True))
    return Share(
        store=store,
        how=kind[0],
        limit=kind[1],
        jobs=jobs,
        paces=paces,
        rate=median(pace.rate for pace in paces),
        cpu=median(pace.cpu for pace in paces),
        of_rate=median(pace.rate / other.rate for pace, other in pairs),
        of_cpu=median(other.cpu / pace.cpu for pace, other in pairs),
    )


async def _pace(arena: Arena, how: str, limit: str, jobs: int, tenants: int) -> Pace:
    way = await arena.open("dibs", 1)
    assert isinstance(way, DibsWay)
    try:
        way.tenants = tenants
        if scope := LIMITS[limit]:
            await way.store.limit(scope, NEVER_REACHED)
        if how == "worker":
            return await _worker(arena, way, jobs)
        run = await race(way, jobs, BULK, 1, held=HELD if how == "held" else 0, cpu=arena.cpu)
        return Pace(rate=run.rate, cpu=run.cpu / jobs * 1e6)
    finally:
        await way.close()


async def _worker(arena: Arena, way: DibsWay, jobs: int) -> Pace:
    """A worker with default settings, from its start to its end."""
    await way.fill(jobs)
    await way.calm()
    ran: list[int] = []
    began: list[float] = []
    url = arena.url
    worker = Worker(
        tasks(ran, began),
        (lambda: way.store) if url is None else (lambda: open_store(url)),
        queues=[QUEUE],
        until_empty=True,
    )
    cpu_began = time.process_time()
    await worker.run()
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - cpu_began
    verify(arena.name, ran, jobs, await way.tally())
    return Pace(rate=jobs / seconds, cpu=cpu / jobs * 1e6)
