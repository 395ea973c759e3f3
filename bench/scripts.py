"""Measure the longest script of each verb in a Redis that has a million jobs: nobody else is served meanwhile.

    python bench/scripts.py
    python bench/scripts.py --jobs 1000000

The server's own slow log tells how long each command took there, without the network and without waiting. At the end
the store must have just the jobs that it should; otherwise the exit status is 2, and there are no figures.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import arena  # noqa: E402
from bench.lib.program import keep  # noqa: E402
from bench.lib.progress import say  # noqa: E402
from bench.lib.race import DiscrepancyError  # noqa: E402
from bench.lib.ways import LEASE, QUEUE, TASK, DibsWay, Tally  # noqa: E402
from dibs import Store  # noqa: E402
from dibs.clock import system_clock  # noqa: E402
from dibs.job import Filter, Retention, State  # noqa: E402
from dibs.outcome import Released, Succeeded  # noqa: E402
from dibs.scope import Limit, Scope  # noqa: E402

EACH = Scope(queue=QUEUE, each_key=True)
SECOND = timedelta(seconds=1)
T = TypeVar("T")


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One verb: how many commands it took, and how long the longest of them."""

    verb: str
    commands: int
    longest_ms: float


class Watch:
    """Reads the slow log around a verb."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.spans: list[Span] = []

    async def of(self, verb: str, call: Awaitable[T]) -> T:
        """Await the call, and keep what it took."""
        await self._client.slowlog_reset()
        answer = await call
        log: list[dict[str, Any]] = await self._client.slowlog_get(100_000)
        scripts = [entry for entry in log if entry["command"].startswith((b"EVALSHA", b"EVAL", b"FCALL"))]
        longest = max((entry["duration"] for entry in scripts), default=0)
        self.spans.append(Span(verb=verb, commands=len(scripts), longest_ms=longest / 1000))
        return answer


@click.command(help="Measure the longest script of each verb in a deep Redis.")
@click.option("--jobs", type=click.IntRange(min=50_000), default=1_000_000, show_default=True)
@click.option("--tenants", type=click.IntRange(min=1), default=100, show_default=True, help="How many limit keys.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/scripts.json")
def main(*, jobs: int, tenants: int, json_path: Path) -> None:
    try:
        spans, versions = asyncio.run(measure(jobs, tenants))
    except DiscrepancyError as problem:
        click.echo(f"no figures, because jobs went wrong: {problem}", err=True)
        sys.exit(2)
    table = Table(title=f"Scripts in a Redis of {jobs:,} jobs")
    for column in ("verb", "scripts", "longest, ms"):
        table.add_column(column, justify="left" if column == "verb" else "right")
    for span in spans:
        table.add_row(span.verb, str(span.commands), f"{span.longest_ms:.1f}")
    Console().print(table)
    keep(json_path, versions, jobs=jobs, scripts=spans)


@asynccontextmanager
async def filled(jobs: int, tenants: int) -> AsyncIterator[tuple[DibsWay, Watch, dict[str, str]]]:
    """A store with so many jobs, on a server that writes every command down."""
    ground = arena("redis")
    try:
        await ground.start()
        way = await ground.open("dibs", 1)
        assert isinstance(way, DibsWay)
        assert ground.url is not None
        client = Redis.from_url(ground.url)
        try:
            await client.config_set("slowlog-max-len", 100_000)
            await client.config_set("slowlog-log-slower-than", 0)
            way.tenants = tenants
            watch = Watch(client)
            await watch.of("enqueue, 10,000 at a time", way.fill(jobs))
            say(f"{jobs:,} jobs")
            yield way, watch, ground.versions()
        finally:
            await client.aclose()
            await way.close()
    finally:
        await ground.stop()


async def measure(jobs: int, tenants: int) -> tuple[list[Span], dict[str, str]]:
    async with filled(jobs, tenants) as (way, watch, versions):
        done = await work(way.store, watch)
        kept = await operate(way.store, watch)
        expected = Tally(jobs - done, 0, done - kept)
        if (found := await way.tally()) != expected:
            raise DiscrepancyError(f"jobs by state: {found}, expected {expected}")
        return watch.spans, versions


async def work(store: Store, watch: Watch) -> int:
    """What workers do, without and under limits; answers how many jobs are done."""
    done = 0
    for name, limit in (("", None), (", under a limit of each key", Limit(concurrency=1_000_000))):
        if limit is not None:
            await watch.of("limit set", store.limit(EACH, limit))
        for size in (1, 200, 1_000):
            claims = await watch.of(f"claim {size:,}{name}", store.claim(QUEUE, "w", size, LEASE))
            await watch.of(f"heartbeat {size:,}{name}", store.heartbeat("w", claims, LEASE))
            settled = [claim.settled(Succeeded()) for claim in claims]
            await watch.of(f"settle {size:,}{name}", store.settle(settled))
            done += len(claims)
    await watch.of("limit lowered", store.limit(EACH, Limit(concurrency=3)))
    held = await watch.of("claim 1,000, few of each key let in", store.claim(QUEUE, "w", 1_000, LEASE))
    for number in (1, 2, 3):
        in_vain = await watch.of(f"claim 1,000, each key full, {number}", store.claim(QUEUE, "w", 1_000, LEASE))
        if in_vain:
            raise DiscrepancyError(f"{len(in_vain)} jobs over the limit")
    await store.settle([claim.settled(Succeeded()) for claim in held])
    await watch.of("claim 1,000 and release, room again", _back(store))
    done += len(held)
    await watch.of("limit taken away", store.limit(EACH, None))
    return done


async def _back(store: Store) -> None:
    claims = await store.claim(QUEUE, "w", 1_000, LEASE)
    await store.settle([claim.settled(Released()) for claim in claims])


async def operate(store: Store, watch: Watch) -> int:
    """What operators and sweeps do; answers how many finished jobs are gone."""
    queued = Filter(queues=(QUEUE,), states=(State.QUEUED,))
    await watch.of("counts", store.counts())
    await watch.of("find 100", store.find(queued))
    await watch.of("find 100 of a task that has none", store.find(Filter(tasks=("nothing",))))
    await watch.of("cancel, dry run", store.cancel(queued, dry_run=True))
    await watch.of("reprioritise 1,000", store.reprioritise(queued, 5, limit=1_000))
    await watch.of("reschedule 1,000", store.reschedule(queued, system_clock(), limit=1_000))
    await watch.of("ageing on", store.configure(QUEUE, ageing=SECOND))
    claims = await watch.of("claim 200, ageing", store.claim(QUEUE, "w", 200, LEASE, [TASK]))
    await watch.of("release 200, ageing", store.settle([claim.settled(Released()) for claim in claims]))
    await watch.of("ageing off", store.configure(QUEUE))
    await watch.of("sweep", store.sweep())
    return await watch.of("prune", store.prune(Retention(succeeded=timedelta(0))))


if __name__ == "__main__":
    main()
