"""How long one claim takes: in an empty store, in a deep one, and behind many running jobs.

The three stand on the same server and are timed in turn, through handles that have not filled them.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from uuid import UUID

import msgspec

from bench.lib.arenas import Arena
from bench.lib.plan import Plan
from bench.lib.progress import say
from bench.lib.race import DiscrepancyError
from bench.lib.ways import CHUNK, LEASE, QUEUE, RESULT, DibsWay, Tally, enqueue
from dibs import Store
from dibs.outcome import Succeeded, Verdict

SITUATIONS = ("empty", "deep", "running")
_FUTURE_PRIORITY = -10
_LONG = timedelta(hours=24)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Claims of one limit in one situation, in milliseconds."""

    store: str
    situation: str
    limit: int
    samples: int
    median: float
    p95: float
    longest: float
    first: float
    """The first claim of a handle, which knows nothing of the queue yet."""
    of_empty: float


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a store took the jobs of one situation, in calls of 10,000."""

    store: str
    situation: str
    jobs: int
    rate: float


class Spot:
    """One situation of one store, and the jobs that a claim must not hand out there."""

    def __init__(self, situation: str, store: Store, others: frozenset[UUID], total: int) -> None:
        self.situation = situation
        self.store = store
        self._others = others
        self._total = total
        self._seen: set[UUID] = set()

    async def claim(self, limit: int) -> float:
        """Milliseconds for one claim; the jobs are settled behind it."""
        began = time.perf_counter()
        claims = await self.store.claim(QUEUE, "bench", limit, LEASE)
        took = (time.perf_counter() - began) * 1000
        ids = {claim.id for claim in claims}
        if len(ids) != limit or ids & self._seen or ids & self._others or any(claim.epoch != 1 for claim in claims):
            raise DiscrepancyError(f"{self.situation}: a claim of {limit} gave {len(ids)} jobs, or some twice")
        if any(claim.priority == _FUTURE_PRIORITY for claim in claims):
            raise DiscrepancyError(f"{self.situation}: a job was claimed before it was due")
        self._seen |= ids
        verdicts = await self.store.settle([claim.settled(Succeeded(RESULT)) for claim in claims])
        if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
            raise DiscrepancyError(f"{self.situation}: a settle was lost")
        return took

    async def verify(self) -> None:
        """The store has counted as we have."""
        running, done = len(self._others), len(self._seen)
        expected = Tally(self._total - running - done, running, done)
        if (found := await DibsWay(self.store).tally()) != expected:
            raise DiscrepancyError(f"{self.situation}: jobs by state: {found}, expected {expected}")


async def depth(arena: Arena, plan: Plan) -> tuple[list[Latency], list[Filling]]:
    """Fill three stores and time claims in them, one after the other."""
    spots: list[Spot] = []
    fillings: list[Filling] = []
    try:
        for situation in SITUATIONS:
            others, filling = await _fill(arena, plan, situation)
            fillings.append(filling)
            await arena.calm_place(situation)
            store = await arena.open_place(situation)
            spots.append(Spot(situation, store, others, filling.jobs))
            # Connects and prepares, and learns nothing of the queue that is measured.
            await store.claim("another", "bench", 1, LEASE)
        latencies = await _sample(arena.name, plan, spots)
        for spot in spots:
            await spot.verify()
        return latencies, fillings
    except DiscrepancyError as problem:
        raise DiscrepancyError(f"{arena.name}, {problem}") from None
    finally:
        for spot in spots:
            await spot.store.close()


async def _fill(arena: Arena, plan: Plan, situation: str) -> tuple[frozenset[UUID], Filling]:
    # Besides what makes the situation, the jobs that are going to be claimed; the deep one has plenty.
    wanted = sum((count + 1) * limit for limit, count in plan.samples.items())
    store = await arena.open_place(situation)
    others: list[UUID] = []
    began = time.perf_counter()
    try:
        if situation == "deep":
            later = datetime.now(UTC) + timedelta(days=30)
            total = plan.deep_future + max(plan.deep_queued, wanted)
            await enqueue(store, plan.deep_future, priority=_FUTURE_PRIORITY, run_at=later)
            await enqueue(store, max(plan.deep_queued, wanted))
        elif situation == "running":
            total = plan.running + wanted
            others = await enqueue(store, plan.running)
            await enqueue(store, wanted)
        else:
            total = wanted
            await enqueue(store, wanted)
        rate = total / (time.perf_counter() - began)
        await _hold(store, len(others))
    finally:
        await store.close()
    say(f"{arena.name}: {situation}: {total:,} jobs enqueued, {rate:,.0f}/s")
    return frozenset(others), Filling(store=arena.name, situation=situation, jobs=total, rate=rate)


async def _hold(store: Store, count: int) -> None:
    """Claim the head of the queue and keep it."""
    held = 0
    while held < count:
        claims = await store.claim(QUEUE, "somebody-else", min(count - held, CHUNK), _LONG)
        if not claims:
            raise DiscrepancyError(f"only {held} of {count} jobs could be claimed")
        held += len(claims)


async def _sample(name: str, plan: Plan, spots: Sequence[Spot]) -> list[Latency]:
    firsts = {spot.situation: await spot.claim(min(plan.samples)) for spot in spots}
    latencies: list[Latency] = []
    for limit, count in plan.samples.items():
        times: dict[str, list[float]] = {spot.situation: [] for spot in spots}
        for turn in range(count):
            start = turn % len(spots)
            for spot in (*spots[start:], *spots[:start]):
                times[spot.situation].append(await spot.claim(limit))
        usual = median(times["empty"])
        for situation, taken in times.items():
            latency = Latency(
                store=name,
                situation=situation,
                limit=limit,
                samples=count,
                median=median(taken),
                p95=quantiles(taken, n=20)[-1],
                longest=max(taken),
                first=firsts[situation],
                of_empty=median(taken) / usual,
            )
            latencies.append(latency)
            say(
                f"{name}: {situation}: a claim of {limit} takes {latency.median:.2f} ms, {latency.of_empty:.2f} x empty"
            )
    return latencies
