"""PostgreSQL with one old snapshot held open: does claiming slow down as dead rows pile up?"""

import msgspec

from bench.lib.plan import Plan
from bench.lib.postgres import PostgresArena
from bench.lib.progress import say
from bench.lib.race import Run, race

BATCH = 200
PARTS = 8


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of each eighth of a run."""

    way: str
    jobs: int
    eighths: list[float]
    last_of_first: float


async def snapshot(arena: PostgresArena, plan: Plan) -> list[Slope]:
    """The textbook layout on fewer jobs: it is as slow as it gets long before."""
    sizes = {"dibs": plan.snapshot_jobs, "textbook": plan.textbook_snapshot_jobs}
    return [await _slope(arena, way, jobs) for way, jobs in sizes.items()]


async def _slope(arena: PostgresArena, way: str, jobs: int) -> Slope:
    contestant = await arena.open(way, 1)
    try:
        async with arena.old_snapshot():
            run = await race(contestant, jobs, BATCH, 1)
    finally:
        await contestant.close()
    eighths = eighth_rates(run)
    say(f"old snapshot: {way}: {eighths[0]:,.0f}/s in the first eighth, {eighths[-1]:,.0f}/s in the last")
    return Slope(way=way, jobs=jobs, eighths=eighths, last_of_first=eighths[-1] / eighths[0])


def eighth_rates(run: Run) -> list[float]:
    """Jobs per second in each eighth of the jobs, cut where the first settle reaches it."""
    rates, before = [], (0.0, 0)
    for part in range(1, PARTS + 1):
        end = next(mark for mark in run.marks if mark[1] * PARTS >= run.total * part)
        rates.append((end[1] - before[1]) / (end[0] - before[0]))
        before = end
    return rates
