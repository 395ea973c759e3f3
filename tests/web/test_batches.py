"""Changes of many jobs: counted, confirmed, done in steps, stopped, told."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

import dibs
from bench.admin import measure
from dibs.errors import StoreUnavailable
from dibs.http import Site
from dibs.http.service import Service, batches
from dibs.http.service.data import BatchState
from dibs.http.service.pace import Pace
from dibs.job import NewJob
from tests.web.serving import client, site


class Desk:
    """An operator with a store of many jobs."""

    def __init__(self, app: dibs.App) -> None:
        self.app = app
        self.site: Site = site(app)
        self.service: Service = self.site.service
        self.http: httpx.AsyncClient = client(self.site)

    async def fill(self, count: int, **fields: Any) -> None:
        jobs = [NewJob(task="t", args={"n": n}, **fields) for n in range(count)]
        await (await self.app.store()).enqueue(jobs)

    async def post(self, status: int, **body: Any) -> Any:
        answer = await self.http.post("/api/batches", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def done(self, batch: Any) -> Any:
        await self.service.batch_runner.wait(UUID(batch["id"]))
        return (await self.http.get(f"/api/batches/{batch['id']}")).json()

    async def states(self) -> dict[str, int]:
        return {
            state: count for state, count in (await self.http.get("/api/overview")).json()["states"].items() if count
        }

    async def audit(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = (await self.http.get("/api/audit")).json()["entries"]
        return list(reversed(entries))


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db?migrate=auto"
    async with dibs.App(url) as app:
        made = Desk(app)
        yield made
        await made.site.close()


async def test_a_dry_run_counts_and_changes_nothing(desk: Desk) -> None:
    await desk.fill(300)
    counted = await desk.post(200, verb="cancel", which={"queue": ["default"]}, dry_run=True)
    assert (counted["state"], counted["count"], counted["complete"], counted["done"]) == ("counted", 300, True, 0)
    assert await desk.states() == {"queued": 300} and await desk.audit() == []
    assert (await desk.http.get("/api/batches")).json() == []


async def test_more_than_a_hundred_have_to_be_confirmed_with_about_the_right_number(desk: Desk) -> None:
    await desk.fill(300)
    which = {"queue": ["default"]}
    for confirm in ({}, {"confirm": 3}, {"confirm": 269}, {"confirm": 331}):
        refused = await desk.post(409, verb="cancel", which=which, **confirm)
        assert refused["count"] == 300 and refused["title"] == "So many have to be confirmed"
    assert await desk.states() == {"queued": 300}
    begun = await desk.post(202, verb="cancel", which=which, confirm=290, reason="wrong import")
    assert begun["state"] == "running"
    ended = await desk.done(begun)
    assert (ended["state"], ended["done"]) == ("done", 300)
    assert await desk.states() == {"cancelled": 300}


async def test_the_trail_says_who_did_what_to_which_and_how_many(desk: Desk) -> None:
    await desk.fill(3, queue="mail")
    batch = await desk.done(await desk.post(202, verb="delete", which={"queue": ["mail"]}, reason="gdpr 7"))
    begin, end = await desk.audit()
    assert (begin["actor"], begin["action"], begin["target"], begin["count"]) == (
        "olga",
        "begin delete",
        "queue mail",
        3,
    )
    assert (end["actor"], end["action"], end["count"], end["reason"]) == ("olga", "done delete", 3, "gdpr 7")
    assert begin["batch"] == end["batch"] == batch["id"]


async def test_an_empty_filter_means_nothing_unless_everything_is_said(desk: Desk) -> None:
    await desk.fill(5)
    assert "everything" in (await desk.post(422, verb="cancel"))["detail"]
    assert (await desk.done(await desk.post(202, verb="cancel", everything=True)))["done"] == 5


async def test_each_verb_wants_what_belongs_to_it_and_nothing_else(desk: Desk) -> None:
    await desk.fill(2)
    which, at = {"task": ["t"]}, "2031-01-01T00:00:00Z"
    await desk.post(422, verb="reschedule", which=which)
    await desk.post(422, verb="reprioritise", which=which)
    await desk.post(422, verb="cancel", which=which, run_at=at)
    await desk.post(422, verb="cancel", which=which, priority=1)
    await desk.post(422, verb="requeue", which=which, force=True)
    await desk.post(400, verb="cancel", which={"sate": ["queued"]})
    assert (await desk.done(await desk.post(202, verb="reschedule", which=which, run_at=at)))["done"] == 2
    assert (await desk.done(await desk.post(202, verb="reprioritise", which=which, priority=4)))["done"] == 2
    page = (await desk.http.get("/api/jobs")).json()["jobs"]
    assert {(job["run_at"], job["priority"]) for job in page} == {(at, 4)}
    assert (await desk.done(await desk.post(202, verb="cancel", which={"text": '"n":1}'})))["done"] == 1
    assert await desk.states() == {"queued": 1, "cancelled": 1}


async def test_what_is_created_while_it_runs_is_left_alone(desk: Desk) -> None:
    await desk.fill(600)
    desk.service.news.every = 0.001
    begun = await desk.post(202, verb="cancel", which={"queue": ["default"]}, confirm=600)
    async for event in desk.service.events():
        if event.name == "batch" and event.data.done:
            break
    await desk.fill(50)
    ended = await desk.done(begun)
    assert ended["done"] == 600 and await desk.states() == {"queued": 50, "cancelled": 600}


async def test_progress_is_told_and_a_batch_can_be_stopped(desk: Desk) -> None:
    await desk.fill(2_000)
    service = desk.service
    begun = await desk.post(202, verb="cancel", which={"queue": ["default"]}, confirm=2_000)
    service.news.every = 0.001
    async for event in service.events():
        if event.name == "batch" and event.data.done:
            stopped = await desk.http.post(f"/api/batches/{begun['id']}/stop")
            assert stopped.status_code == 200
            break
    ended = await desk.done(begun)
    assert ended["state"] == "stopped" and 0 < ended["done"] < 2_000
    assert await desk.states() == {"queued": 2_000 - ended["done"], "cancelled": ended["done"]}
    assert [entry["action"] for entry in await desk.audit()] == ["begin cancel", "stop batch", "stopped cancel"]
    assert (await desk.http.post(f"/api/batches/{begun['id']}/stop")).json()["state"] == "stopped"
    assert (await desk.http.post(f"/api/batches/{uuid4()}/stop")).status_code == 404


async def test_another_server_on_the_same_store_sees_it_and_can_stop_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "TOLD_EVERY", 0.0)
    await desk.fill(2_000)
    begun = await desk.post(202, verb="cancel", which={"queue": ["default"]}, confirm=2_000)
    other = Service(store=await desk.app.store())
    seen = await other.batch(UUID(begun["id"]))
    assert seen.state is BatchState.RUNNING and seen.actor == "olga"
    await other.stop_batch(seen.id, "rita")
    ended = await desk.done(begun)
    assert ended["state"] == "stopped" and ended["done"] < 2_000
    assert (await other.batch(seen.id)).done == ended["done"]


async def test_a_batch_whose_server_is_gone_is_lost(desk: Desk) -> None:
    await desk.fill(2_000)
    begun = await desk.post(202, verb="cancel", which={"queue": ["default"]}, confirm=2_000)
    store = await desk.app.store()
    old = {**begun, "updated_at": (datetime.now(UTC) - timedelta(minutes=5)).isoformat(), "id": str(uuid4())}
    await store.keep("batch", {old["id"]: old, "nonsense": {"x": 1}})
    assert (await desk.http.get(f"/api/batches/{old['id']}")).json()["state"] == "lost"
    assert (await desk.http.get(f"/api/batches/{begun['id']}")).json()["state"] == "running"
    await desk.site.close()
    assert (await Service(store=store).batch(UUID(begun["id"]))).state is BatchState.STOPPED, "it ended in good order"


async def test_too_many_at_once_are_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 1)
    await desk.fill(2_000)
    begun = await desk.post(202, verb="cancel", which={"queue": ["default"]}, confirm=2_000)
    answer = await desk.post(429, verb="cancel", which={"text": "nothing"})
    assert answer["detail"].startswith("1 batches are running")
    await desk.http.post(f"/api/batches/{begun['id']}/stop")


async def test_a_batch_waits_for_a_store_that_is_away_and_gives_up_in_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.fill(20)
    store = await desk.app.store()
    failing, left = store.cancel, [2]

    async def cancel(*args: Any, **options: Any) -> Any:
        if not options.get("dry_run") and left[0]:
            left[0] -= 1
            raise StoreUnavailable("gone: postgresql://u:pA55@h")
        return await failing(*args, **options)

    monkeypatch.setattr(store, "cancel", cancel)
    assert (await desk.done(await desk.post(202, verb="cancel", everything=True)))["state"] == "done"
    left[0] = 1_000
    monkeypatch.setattr(batches, "PATIENCE", 0.0)
    await desk.fill(20)
    ended = await desk.done(await desk.post(202, verb="cancel", everything=True))
    assert ended["state"] == "failed" and "pA55" not in str(ended)


async def test_a_hundred_entries_more_than_are_kept_are_forgotten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.http.service.audit.KEPT", 20)
    for number in range(60):
        await desk.service.audit_trail.write("ada", "test", f"thing {number}")
    entries = await desk.audit()
    assert len(entries) == 30 and entries[-1]["target"] == "thing 59", "trimmed at the fiftieth"


def paced(fixed: float, each: float) -> int:
    """The size of a step that is found where one costs that much, and each job in it so much."""
    pace = Pace()
    for _ in range(30):
        pace.learn(pace.chunk, fixed + each * pace.chunk)
    return pace.chunk


def test_steps_grow_where_that_saves_work_and_stay_small_where_it_does_not() -> None:
    assert paced(fixed=0.0, each=0.00004) == 250, "Redis: a step costs what its jobs cost"
    assert paced(fixed=0.001, each=0.00004) == 250
    assert paced(fixed=0.09, each=0.00003) == 4_000, "PostgreSQL: looking for them costs most"
    assert paced(fixed=0.3, each=0.0003) == 500, "no step takes longer than half a second"


@pytest.mark.parametrize("store", ["sqlite"])
async def test_claims_go_on_while_many_are_cancelled_and_memory_is_bounded(store: str, tmp_path: Path) -> None:
    """The small one; ``bench/admin.py`` does it with 100,000 and judges the rate of claims, too."""
    result = await measure(f"sqlite:///{tmp_path}/jobs.db?migrate=auto", jobs=3_000, window=0.2)
    assert result.done == result.cancelled == 3_000 and result.left == 0
    assert result.claimed_meanwhile > 0 and result.grown < 50 * 2**20
