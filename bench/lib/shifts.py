"""A worker from the first claim to the last settle, beside bare claims and settles of the same store."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import msgspec

from bench.lib.arenas import Arena
from bench.lib.progress import say
from bench.lib.race import DiscrepancyError, race
from bench.lib.ways import QUEUE, TASK, DibsWay, Tally
from dibs import Store, open_store
from dibs.task import AsyncTask, Tasks
from dibs.telemetry.serving import MetricsServer
from dibs.worker import Worker

BULK = 200


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """One store. The ratio is the median of those within each round."""

    store: str
    jobs: int
    rates: list[float]
    rate: float
    bulk_rates: list[float]
    bulk: float
    of_bulk: float
    claims: float
    """Jobs that a claim brought, on average."""
    metrics_rates: list[float] = []
    """The same worker with metrics on, which somebody scrapes ten times a second."""
    with_metrics: float | None = None
    """What is left of its rate then: the median of the ratios within each round."""


async def shift(arena: Arena, jobs: int, rounds: int, concurrency: int, *, metrics: bool = False) -> Shift:
    """Measure all of them in turns."""
    rates, bulk_rates, metrics_rates, sizes = [], [], list[float](), []
    kinds = ("worker", "metrics", "bulk") if metrics else ("worker", "bulk")
    for turn in range(rounds):
        for what in reversed(kinds) if turn % 2 else kinds:
            if what == "bulk":
                bulk_rates.append(await _bulk(arena, jobs))
            elif what == "metrics":
                metrics_rates.append((await _worker(arena, jobs, concurrency, metrics=True))[0])
            else:
                rate, size = await _worker(arena, jobs, concurrency)
                rates.append(rate)
                sizes.append(size)
        say(f"{arena.name}: worker {rates[-1]:,.0f}/s, claim + settle of {BULK} {bulk_rates[-1]:,.0f}/s")
    return Shift(
        store=arena.name,
        jobs=jobs,
        rates=rates,
        rate=median(rates),
        bulk_rates=bulk_rates,
        bulk=median(bulk_rates),
        of_bulk=median(mine / other for mine, other in zip(rates, bulk_rates, strict=True)),
        claims=median(sizes),
        metrics_rates=metrics_rates,
        with_metrics=median(on / off for on, off in zip(metrics_rates, rates, strict=True)) if metrics else None,
    )


async def _bulk(arena: Arena, jobs: int) -> float:
    way = await arena.open("dibs", 1)
    try:
        return (await race(way, jobs, BULK, 1)).rate
    finally:
        await way.close()


async def _worker(arena: Arena, jobs: int, concurrency: int, *, metrics: bool = False) -> tuple[float, float]:
    way = await arena.open("dibs", 1)
    assert isinstance(way, DibsWay)
    try:
        await way.fill(jobs)
        await way.calm()
        ran: list[int] = []
        counted = Counted(arena, way.store)
        began: list[float] = []
        worker = Worker(tasks(ran, began), counted.open, queues=[QUEUE], concurrency=concurrency, until_empty=True)
        with _scraped(worker) if metrics else nullcontext():
            await worker.run()
            seconds = time.perf_counter() - began[0]
        verify(arena.name, ran, jobs, await way.tally())
        return jobs / seconds, jobs / counted.claims
    finally:
        await way.close()


@contextmanager
def _scraped(worker: Worker) -> Iterator[None]:
    """Serve the worker's metrics, and scrape them far more often than anybody would."""
    server, over = MetricsServer(worker, port=0), threading.Event()

    def scrape() -> None:
        while not over.wait(0.1):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
                page.read()

    scraper = threading.Thread(target=scrape)
    server.start()
    scraper.start()
    try:
        yield
    finally:
        over.set()
        scraper.join()
        server.stop()


def tasks(ran: list[int], began: list[float]) -> Tasks:
    """The one task, whose handler writes down what ran; and when the worker began."""

    async def send(to: str, template: str, retries: list[int], number: int) -> None:
        ran.append(number)

    known = Tasks()
    known.add(AsyncTask(send, name=TASK))
    # Nobody is measured while it connects.
    known.hooks["startup"] = [lambda: began.append(time.perf_counter())]
    return known


class Counted:
    """Opens the store that an arena has filled, and counts the claims that brought something."""

    def __init__(self, arena: Arena, filled: Store) -> None:
        self._url = arena.url
        self._filled = filled
        self.claims = 0

    def open(self) -> Store:
        store = self._filled if self._url is None else open_store(self._url)
        plain: Any = type(store).claim

        async def claim(*args: Any, **kwargs: Any) -> Any:
            claims = await plain(store, *args, **kwargs)
            self.claims += bool(claims)
            return claims

        store.claim = claim  # type: ignore[method-assign]
        return store


def verify(store: str, ran: list[int], jobs: int, tally: Tally) -> None:
    """Every job ran once, and the store says so, too."""
    if sorted(ran) != list(range(jobs)):
        raise DiscrepancyError(f"{store}: {len(ran)} runs of {len(set(ran))} jobs, expected each of {jobs} once")
    if tally != Tally(0, 0, jobs):
        raise DiscrepancyError(f"{store}: jobs by state: {tally}, expected all {jobs} succeeded")
