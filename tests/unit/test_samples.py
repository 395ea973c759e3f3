"""Samples: what workers write for charts, what is read back, what is forgotten; and being asked to stop."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import ConfigurationError
from dibs.job import NewJob
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore
from dibs.telemetry import ask_to_stop, asked_to_stop, slots
from dibs.telemetry.sampler import Sampler, tidy
from dibs.telemetry.series import samples
from dibs.telemetry.tally import Tally
from dibs.testing.clock import START, FakeClock
from tests.unit.working import Shop, until

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Counted(Tally):
    """A tally to which a test adds."""

    def add(self, queue: str, task: str, **more: int) -> None:
        figures = self.place(queue, task)
        for name, number in more.items():
            setattr(figures, name, getattr(figures, name) + number)
        if "succeeded" in more:
            figures.ran.add_like([0.3], more["succeeded"])


class Site:
    """A store with a clock of our own, and workers' samplers on it."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.stopped: list[str] = []

    def sampler(self, name: str) -> tuple[Sampler, Counted]:
        tally = Counted()
        return Sampler(name, self.store, tally, lambda: self.stopped.append(name)), tally

    async def all(self) -> dict[str, dict[str, Any]]:
        """All that is kept of samples, in the hours around now."""
        first = slots.begin(self.clock.now) - 50 * HOUR
        kinds = [kind(first + 5 * MINUTE * n) for n in range(52 * 12) for kind in (slots.sample, slots.depth)]
        kept = (await self.store.kept(["samples", *kinds])).values
        return {kind: values for kind, values in kept.items() if values}


@pytest.fixture(params=["memory", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    clock = FakeClock()
    made: Store = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(tmp_path / "a.db", clock=clock)
    await made.setup()
    yield Site(made, clock)
    await made.close()


async def test_what_several_workers_did_is_added_up_by_slot_task_and_queue(site: Site) -> None:
    (one, did), (two, done) = site.sampler("one"), site.sampler("two")
    did.add("default", "send", started=3, succeeded=2, retried=1)
    done.add("default", "send", started=1, succeeded=1)
    done.add("mail", "post", started=1, failed=1)
    await one.look()
    await two.look()
    site.clock.advance(5 * MINUTE)
    did.add("default", "send", started=10, succeeded=10)
    await one.look()
    found = await samples(site.store, HOUR)
    assert len(found.points) == 13
    assert [point.total.succeeded for point in found.points[-2:]] == [3, 10]
    assert found.tasks["send"].succeeded == 13
    assert found.tasks["post"].failed == found.queues["mail"].failed == 1
    assert found.tasks["send"].ran.quantile(0.5) == pytest.approx(0.3, rel=0.5)
    only = await samples(site.store, HOUR, task="post")
    assert (only.total.started, list(only.tasks)) == (1, ["post"])


async def test_the_slot_grows_as_the_worker_works_and_an_idle_worker_writes_nothing(site: Site) -> None:
    sampler, did = site.sampler("one")
    await sampler.look()
    site.clock.advance(MINUTE)
    await sampler.look()
    assert await site.all() == {}
    did.add("default", "send", started=1)
    await sampler.look()
    before = await site.all()
    await sampler.look()
    assert await site.all() == before
    did.add("default", "send", succeeded=1)
    await sampler.look()
    [point] = (await samples(site.store, timedelta(0))).points
    assert (point.total.started, point.total.succeeded) == (1, 1)


async def test_a_worker_writes_its_last_figures_when_it_leaves(site: Site) -> None:
    sampler, did = site.sampler("one")
    did.add("default", "send", started=4, succeeded=4)
    await sampler.leave()
    assert (await samples(site.store, HOUR)).total.succeeded == 4


async def test_depths_are_measured_once_a_minute_by_whoever_comes_first(site: Site) -> None:
    await site.store.enqueue([NewJob(task="send") for _ in range(5)])
    await site.store.enqueue([NewJob(task="send", run_at=START + 24 * HOUR)])
    (one, did), (two, _) = site.sampler("one"), site.sampler("two")
    await one.look()  # learns what time it is
    await two.look()
    counted = []
    plain = site.store.counts

    async def counts(*, most: int | None = None) -> Any:
        counted.append(site.clock.now)
        return await plain()

    site.store.counts = counts  # type: ignore[method-assign]
    for _ in range(2):
        site.clock.advance(MINUTE)
        did.add("default", "send", started=1)
        for sampler in (one, two, one, two):
            await sampler.look()
    assert len(counted) == 2
    depths = (await samples(site.store, HOUR)).depths
    assert [depth.total("due") for depth in depths] == [5, 5]
    assert depths[0].queues["default"] == {"due": 5, "scheduled": 1, "oldest": 60.0}


async def test_the_last_depth_says_that_the_queues_are_empty(site: Site) -> None:
    sent = await site.store.enqueue([NewJob(task="send")])
    sampler, did = site.sampler("one")
    await sampler.look()
    did.add("default", "send", started=1)
    await sampler.look()
    [claim] = await site.store.claim("default", "one", 1, MINUTE)
    await site.store.settle([claim.settled(Succeeded())])
    assert sent[0].id == claim.id
    did.add("default", "send", succeeded=1)
    for _ in range(4):
        site.clock.advance(MINUTE)
        await sampler.look()
    depths = (await samples(site.store, HOUR)).depths
    assert [depth.total("due") for depth in depths] == [1, 0]


async def test_a_worker_that_may_not_count_writes_its_samples_all_the_same(site: Site) -> None:
    await site.store.enqueue([NewJob(task="send")])
    refused = []

    async def counts(*, most: int | None = None) -> Any:
        refused.append(1)
        raise ConfigurationError("permission denied for function counts")

    site.store.counts = counts  # type: ignore[method-assign]
    sampler, did = site.sampler("one")
    await sampler.look()
    for _ in range(4):
        site.clock.advance(MINUTE)
        did.add("default", "send", started=1)
        await sampler.look()
    found = await samples(site.store, HOUR)
    assert (found.total.started, found.depths, len(refused)) == (4, [], 1)


async def test_slots_that_are_over_become_one_and_lose_nothing(site: Site) -> None:
    for name in ("one", "two", "three"):
        sampler, did = site.sampler(name)
        did.add("default", "send", started=2, succeeded=2)
        await sampler.look()
    kind = slots.sample(START)
    assert set((await site.all())[kind]) == {"one", "two", "three"}
    site.clock.advance(10 * MINUTE)
    await asyncio.gather(tidy(site.store, site.clock.now), tidy(site.store, site.clock.now))
    assert len((await site.all())[kind]) == 1
    assert (await samples(site.store, HOUR)).total.succeeded == 6


async def test_samples_are_forgotten_after_two_days_also_by_a_worker_that_comes_later(site: Site) -> None:
    await site.store.enqueue([NewJob(task="send")])
    sampler, did = site.sampler("one")
    for _ in range(3):
        did.add("default", "send", started=1)
        await sampler.look()
        await sampler.look()
        site.clock.advance(5 * MINUTE)
    assert await site.all()
    site.clock.advance(48 * HOUR)
    later, _ = site.sampler("two")
    await later.look()
    assert (await site.store.kept(["samples"])).values["samples"] == {}
    old = [kind(START + 5 * MINUTE * n) for n in range(4) for kind in (slots.sample, slots.depth)]
    assert not any((await site.store.kept(old)).values.values())
    assert (await samples(site.store, timedelta(days=30))).total.started == 0


async def test_a_sample_names_only_so_many_tasks(site: Site) -> None:
    sampler, did = site.sampler("one")
    for number in range(slots.TASKS + 100):
        did.add("default", f"task-{number}", started=1 + number)
    await sampler.look()
    found = await samples(site.store, HOUR)
    assert len(found.tasks) == slots.TASKS
    assert found.total.started == sum(1 + number for number in range(slots.TASKS + 100))
    assert f"task-{slots.TASKS + 99}" in found.tasks


async def test_what_somebody_else_wrote_there_does_no_harm(site: Site) -> None:
    await site.store.keep(slots.sample(START), {"odd": {"default": 7, "mail": {"send": 3, "post": {"started": 1}}}})
    await site.store.keep(slots.depth(START), {"odd": {"default": {"due": 1}}})
    await site.store.keep("samples", {"no slot": {}})
    found = await samples(site.store, HOUR)
    assert (found.total.started, found.depths) == (1, [])
    await tidy(site.store, site.clock.now)
    assert (await site.store.kept(["samples"])).values["samples"] == {}


# --- asked to stop ------------------------------------------------------------------------------------------


async def test_a_worker_that_is_asked_to_stop_does_and_forgets_the_ask(site: Site) -> None:
    (one, _), (two, _) = site.sampler("one"), site.sampler("two")
    await ask_to_stop(site.store, "one", by="anna")
    assert (await asked_to_stop(site.store))["one"]["by"] == "anna"
    await two.look()
    assert site.stopped == []
    await one.look()
    assert site.stopped == ["one"]
    assert await asked_to_stop(site.store) == {}
    await one.look()
    assert site.stopped == ["one"]


async def test_an_ask_from_before_a_worker_began_is_not_for_it(site: Site) -> None:
    await ask_to_stop(site.store, "one")
    await ask_to_stop(site.store, "gone")
    site.clock.advance(HOUR)
    sampler, _ = site.sampler("one")
    await sampler.look()
    assert site.stopped == []
    assert set(await asked_to_stop(site.store)) == {"gone"}
    site.clock.advance(24 * HOUR)
    await sampler.look()
    assert await asked_to_stop(site.store) == {}


async def test_an_ask_that_makes_no_sense_stops_nobody(site: Site) -> None:
    await site.store.keep("ask", {"one": {"stop": "now"}})
    sampler, _ = site.sampler("one")
    await sampler.look()
    assert site.stopped == []


async def test_a_real_worker_hears_the_ask_ends_gracefully_and_leaves_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.telemetry.sampler.EVERY", 0.05)
    shop, begun, gate = Shop(), asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await gate.wait()
        return "done"

    job = await shop.enqueue(shop.task(work))
    worker = shop.worker(name="one")
    going = asyncio.create_task(worker.run())
    await begun.wait()
    await ask_to_stop(shop.store, "one")
    await until(lambda: worker.vitals.phase == "stopping")
    gate.set()
    await asyncio.wait_for(going, 20)
    assert (await shop.job(job)).result == "done"
    assert (await samples(shop.store, HOUR)).tasks["work"].succeeded == 1
    assert await asked_to_stop(shop.store) == {}


async def test_a_store_that_refuses_samples_does_not_make_a_worker_unready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dibs.telemetry.sampler.EVERY", 0.02)
    shop, asked = Shop(), list[int]()
    plain = shop.store.kept

    async def kept(kinds: Any) -> Any:
        if "ask" not in kinds:
            return await plain(kinds)
        asked.append(1)
        raise ConfigurationError("not for you")

    shop.store.kept = kept  # type: ignore[method-assign]
    async with shop.working() as worker:
        await until(lambda: len(asked) > 3)
        assert worker.vitals.health().ready
    assert [line for line in caplog.messages if "samples" in line] == ["no samples can be written: not for you"]


async def test_a_worker_without_samples_writes_none() -> None:
    shop = Shop()

    async def work() -> None: ...

    await shop.enqueue(shop.task(work))
    await shop.drain(samples=False)
    assert (await shop.store.kept(["samples"])).values["samples"] == {}
    await shop.enqueue(shop.tasks.by_name["work"])
    await shop.drain()
    assert (await samples(shop.store, HOUR)).total.succeeded == 1
