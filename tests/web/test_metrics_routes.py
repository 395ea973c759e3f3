"""Metrics of a server: what is in the store, counted now and then however often somebody asks."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from dibs.errors import StoreUnavailable
from dibs.job import NewJob
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.telemetry import metrics_routes
from dibs.telemetry.metrics import MOST, STORE_METRICS, store_families
from dibs.telemetry.web import FORGOTTEN, StoreFigures
from dibs.testing.clock import START, FakeClock

HOUR = timedelta(hours=1)


class Site:
    """A store, and a web application that shows its metrics."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.asked = 0
        self.away = False

    async def open(self) -> Store:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("away")
        return self.store

    def client(self) -> httpx.AsyncClient:
        web = Starlette(routes=metrics_routes(self.open))
        return httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop.example")


def values(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_a_scrape_says_what_is_in_the_store() -> None:
    site = Site()
    await site.store.enqueue([NewJob(task="a") for _ in range(3)])
    await site.store.enqueue([NewJob(task="a", run_at=START + HOUR), NewJob(task="a", queue="mail")])
    await site.store.pause("mail")
    await site.store.claim("default", "one", 1, HOUR)
    await site.store.heartbeat("one", [], HOUR, {})
    await site.store.heartbeat("two", [], HOUR, {"stopped_at": "…"})
    site.clock.advance(timedelta(seconds=30))
    async with site.client() as client:
        page = (await client.get("/metrics")).text
    found = values(page)
    assert found["dibs_queue_jobs", "queue=default", "state=queued"] == 3
    assert found["dibs_queue_jobs", "queue=default", "state=running"] == 1
    assert found["dibs_queue_due_jobs", "queue=default"] == 2
    assert found["dibs_queue_oldest_due_seconds", "queue=default"] == 30
    assert found["dibs_queue_paused", "queue=mail"] == 1
    assert found[("dibs_workers",)] == 1
    assert found[("dibs_store_up",)] == 1
    families = {each.name: each.type for each in text_string_to_metric_families(page) if each.name.startswith("dibs_")}
    assert families == {name: kind for name, (kind, _) in STORE_METRICS.items()}


async def test_a_hundred_scrapes_count_once() -> None:
    site = Site()
    async with site.client() as client:
        await asyncio.gather(*(client.get("/metrics") for _ in range(100)))
        await client.get("/readyz")
    assert site.asked == 1


async def test_figures_are_counted_again_when_they_are_old() -> None:
    site, now = Site(), [0.0]
    figures = StoreFigures(site.open, every=15, clock=lambda: now[0])
    for moment in (0.0, 14.0, 15.0, 16.0):
        now[0] = moment
        await figures.families()
    assert site.asked == 2


async def test_a_store_that_is_away_is_said_and_old_figures_are_shown_for_a_while() -> None:
    site, now = Site(), [0.0]
    await site.store.enqueue([NewJob(task="a")])
    figures = StoreFigures(site.open, every=15, clock=lambda: now[0])
    await figures.families()
    site.away = True
    now[0] = 20.0
    found = {each.name: each.samples for each in await figures.families()}
    assert found["dibs_store_up"][0][2] == 0
    assert found["dibs_counts_age_seconds"][0][2] == 20
    assert found["dibs_queue_due_jobs"][0][2] == 1
    now[0] = FORGOTTEN + 1
    assert not {each.name: each.samples for each in await figures.families()}["dibs_queue_due_jobs"]


async def test_a_server_is_alive_without_its_store_but_not_ready() -> None:
    site = Site()
    site.away = True
    async with site.client() as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/metrics")).status_code == 200


async def test_the_number_of_queues_that_are_named_is_bounded() -> None:
    site = Site()
    jobs: list[Any] = [NewJob(task="a", queue=f"q{number}") for number in range(MOST + 50)]
    await site.store.enqueue([*jobs, NewJob(task="a", queue="q240")])
    figures = StoreFigures(site.open)
    found = {each.name: each.samples for each in await figures.families()}["dibs_queue_due_jobs"]
    by_queue = {labels["queue"]: value for _, labels, value in found}
    assert len(by_queue) == MOST
    assert sum(by_queue.values()) == MOST + 51
    assert (by_queue["q240"], by_queue["(others)"]) == (2, 51)


def test_a_store_that_never_answered_has_no_figures() -> None:
    found = {each.name: each.samples for each in store_families(None, up=False, age=0)}
    assert [name for name, samples in found.items() if samples] == ["dibs_store_up"]
