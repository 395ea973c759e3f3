"""Claim + settle per second: every way in turn, several rounds, so that what disturbs one disturbs all."""

from statistics import median

import msgspec

from bench.lib.arenas import Arena
from bench.lib.plan import Plan
from bench.lib.progress import say
from bench.lib.race import DiscrepancyError, race


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. Ratios are medians of those within each round."""

    store: str
    way: str
    batch: int
    claimers: int
    jobs: int
    rates: list[float]
    rate: float
    limit_rates: list[float] | None
    limit: float | None
    of_limit: float | None
    of_textbook: float | None


async def throughput(arena: Arena, plan: Plan) -> list[Cell]:
    """Measure every combination of batch and claimers."""
    cells: list[Cell] = []
    for batch in plan.batches:
        for claimers in plan.claimers:
            cells += await _cells(arena, plan, batch, claimers)
    return cells


async def _cells(arena: Arena, plan: Plan, batch: int, claimers: int) -> list[Cell]:
    jobs = plan.jobs_for(batch, claimers)
    rates: dict[str, list[float]] = {way: [] for way in arena.ways}
    for turn in range(plan.rounds_for(batch)):
        # Everybody is first once: the first after a pause finds a calmer machine.
        start = turn % len(arena.ways)
        for way in arena.ways[start:] + arena.ways[:start]:
            rates[way].append(await _rate(arena, way, jobs, batch, claimers))
    told = ", ".join(f"{way} {median(measured):,.0f}/s" for way, measured in rates.items())
    say(f"{arena.name}: batch {batch}, {claimers} claimers: {told}")
    limits = rates.get("limit")
    return [
        Cell(
            store=arena.name,
            way=way,
            batch=batch,
            claimers=claimers,
            jobs=jobs,
            rates=measured,
            rate=median(measured),
            limit_rates=limits,
            limit=median(limits) if limits else None,
            of_limit=_ratio(measured, limits),
            of_textbook=_ratio(measured, rates.get("textbook")),
        )
        for way, measured in rates.items()
        if way != "limit"
    ]


async def _rate(arena: Arena, way: str, jobs: int, batch: int, claimers: int) -> float:
    contestant = await arena.open(way, claimers)
    try:
        return (await race(contestant, jobs, batch, claimers)).rate
    except DiscrepancyError as problem:
        raise DiscrepancyError(f"{arena.name}, batch {batch}, {claimers} claimers: {problem}") from None
    finally:
        await contestant.close()


def _ratio(measured: list[float], others: list[float] | None) -> float | None:
    return median(mine / other for mine, other in zip(measured, others, strict=True)) if others else None
