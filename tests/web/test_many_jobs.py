"""Where there are too many jobs to look at in the time that somebody waits: pages show some, and say so."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import dibs
from dibs.job import NewJob
from dibs.outcome import Failed
from tests.web.serving import client, site
from tests.web.shop import LEASE


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[dibs.App]:
    app = dibs.App(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        yield app


async def add(app: dibs.App, count: int, **fields: object) -> None:
    await (await app.store()).enqueue([NewJob(**{"task": "send", **fields}) for _ in range(count)])  # type: ignore[arg-type]


async def fail(app: dibs.App, count: int) -> None:
    store = await app.store()
    claims = await store.claim("default", "worker-1", count, LEASE)
    await store.settle([claim.settled(Failed(f"order {number} is gone")) for number, claim in enumerate(claims)])


async def test_numbers_have_a_plus_until_all_jobs_are_counted(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.http.service.core.COUNTED", 3)
    monkeypatch.setattr("dibs.http.service.service.PATIENCE", 0)  # nobody waits
    await add(app, 12)
    await add(app, 2, queue="quiet")
    await fail(app, 4)
    first, second, third = site(app), site(app), site(app)  # each has counted nothing yet
    async with client(first) as http:
        page = (await http.get("/")).text
        assert "A plus means that there are more" in page
        assert "3+ due jobs" in page
    async with client(second) as http:
        quiet = (await http.get("/api/queues/quiet")).json()
        assert (quiet["states"]["queued"], quiet["more"]) == (2, ["failed"]), "2 of 3 is all there is"
    monkeypatch.setattr("dibs.http.service.service.PATIENCE", 30)
    async with client(third) as http:
        chips = (await http.get("/jobs")).text
        assert 'queued <span class="soft">10<' in chips and 'failed <span class="soft">4<' in chips
        seen = (await http.get("/api/overview")).json()
        assert (seen["more"], seen["states"]["queued"]) == ([], 10)
    for each in (first, second, third):
        await each.close()


async def test_what_few_jobs_match_is_found_by_going_on(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.http.service.search.EXAMINED", 5)
    monkeypatch.setattr("dibs.http.service.search.SECONDS", 0)
    await add(app, 1, task="rare")
    await add(app, 12)
    here, steps, path = site(app), 0, "/jobs?task=rare"
    async with client(here) as http:
        while ">rare</a>" not in (page := (await http.get(path)).text):
            assert "None of those that were looked through; there are older ones." in page
            assert "5 jobs were looked through" in page
            path, steps = "/jobs" + re.findall(r'rel="next" href="([^"]+)"', page)[0].replace("&amp;", "&"), steps + 1
    assert steps == 2
    await here.close()


async def test_failures_that_nobody_had_time_to_group_are_owned_up_to(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.http.service.search.STEP", 3)
    monkeypatch.setattr("dibs.http.service.search.SECONDS", 0)
    await add(app, 8)
    await fail(app, 8)
    here = site(app)
    async with client(here) as http:
        assert "Only the newest 3 failed jobs were looked at." in (await http.get("/failures")).text
        answer = (await http.get("/api/failures")).json()
        assert (answer["looked_at"], answer["complete"], answer["groups"][0]["count"]) == (3, False, 3)
    await here.close()
