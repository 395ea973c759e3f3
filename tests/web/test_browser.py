"""The dashboard in a real browser: every page in light, dark and at a phone's width, every way to act, live updates."""

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.async_api import Browser, Page, Route, async_playwright

import dibs
from dibs.http import admin_app
from dibs.job import Filter, State
from tests.web.shop import HOSTILE, fill, new_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOOKS = {"light": (1240, "light"), "dark": (1240, "dark"), "phone": (360, "light")}
LIVE = ".live[data-on=yes]"
SHOTS = os.environ.get("DIBS_SHOTS")
"""Where to put pictures of the pages, for the documentation."""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium found"),
    pytest.mark.xdist_group("browser"),
]


class Server:
    """A dashboard on a port of this machine, in a thread with a loop of its own."""

    def __init__(self, app: dibs.App) -> None:
        self.app = app
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        site = admin_app(app, local=True, rate=10_000)
        site.service.news.every = 0.05
        self._uvicorn = uvicorn.Server(uvicorn.Config(site, log_level="warning", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._uvicorn.run, kwargs={"sockets": [self._socket]})

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(new_app()) as running:
        yield running


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield opened
        finally:
            await opened.close()


@asynccontextmanager
async def page(opened: Browser, look: str = "light") -> AsyncIterator[Page]:
    """A page that may not complain: whatever the browser logs as an error fails the test."""
    width, scheme = LOOKS[look]
    context = await opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    shown = await context.new_page()
    complaints: list[str] = []
    shown.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    yield shown
    await context.close()
    assert complaints == []


async def paths(app: dibs.App) -> dict[str, str]:
    store = await app.store()
    found = {"overview": "/", "failures": "/failures", "flows": "/flows", "queues": "/queues", "workers": "/workers"}
    found |= {"jobs": "/jobs", "schedules": "/schedules", "audit": "/audit"}
    for state in State:
        jobs = (await store.find(Filter(states=(state,)), limit=1)).jobs
        found |= {f"job-{state}": f"/jobs/{job.id}" for job in jobs}
    [flow] = (await store.flows()).flows
    return found | {"flow": f"/flows/{flow.id}"}


# --- every page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["quiet", HOSTILE], ids=["quiet", "hostile"])
@pytest.mark.parametrize("look", LOOKS)
async def test_every_page_shows_without_a_complaint_and_fits(server: Server, look: str, word: str) -> None:
    await fill(server.app, word)
    async with browser() as opened, page(opened, look) as shown:
        for name, path in (await paths(server.app)).items():
            answer = await shown.goto(server.url + path)
            assert answer is not None and answer.status == 200, name
            await shown.wait_for_selector(LIVE)
            assert await shown.evaluate("document.documentElement.scrollWidth") <= LOOKS[look][0], name
            if SHOTS and word == "quiet":
                await shown.screenshot(path=Path(SHOTS) / f"{name}-{look}.png", full_page=True)


async def test_a_keyboard_gets_everywhere(server: Server) -> None:
    await fill(server.app)
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/failures")
        await shown.keyboard.press("Tab")
        assert await shown.evaluate("document.activeElement.className") == "skip"
        seen = set()
        for _ in range(40):
            await shown.keyboard.press("Tab")
            seen.add(await shown.evaluate("document.activeElement.textContent.trim()"))
        assert {"Jobs", "Requeue all", "Delete all", "these jobs"} <= seen


async def test_the_theme_is_remembered(server: Server) -> None:
    async with browser() as opened, page(opened) as shown:
        await shown.goto(server.url)
        paper = await shown.evaluate("getComputedStyle(document.querySelector('.top')).backgroundColor")
        await shown.click("[data-action=theme]")
        await shown.goto(f"{server.url}/jobs")
        dark = await shown.evaluate("getComputedStyle(document.querySelector('.top')).backgroundColor")
        assert (paper, dark) == ("rgb(255, 255, 255)", "rgb(23, 26, 32)")


# --- acting ---------------------------------------------------------------------------------------------------


async def test_a_hundred_equal_failures_are_requeued_with_three_clicks(server: Server) -> None:
    await fill(server.app)
    store = await server.app.store()
    async with browser() as opened, page(opened, "phone") as shown:
        await shown.goto(server.url)
        await shown.click("nav >> text=Failures")
        await shown.click("text=Requeue all")
        assert "Requeue 3 jobs?" in await shown.inner_text("h1")
        await shown.click("text=Requeue them")
        await shown.wait_for_selector("text=Requeue: 3 of 3")
    assert (await store.find(Filter(states=(State.FAILED,)))).jobs == ()


async def test_chosen_jobs_are_cancelled(server: Server) -> None:
    await fill(server.app)
    store = await server.app.store()
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/jobs?queue=mail&state=queued")
        boxes = shown.locator('input[name="id"]')
        assert await boxes.count() == 3
        await boxes.nth(0).check()
        await boxes.nth(2).check()
        await shown.click("summary")
        await shown.click("button[value=cancel]")
        await shown.click("text=Cancel them")
        await shown.wait_for_selector("text=Cancel: 2 of 2")
    assert len((await store.find(Filter(queues=("mail",), states=(State.CANCELLED,)))).jobs) == 2


async def test_one_job_is_moved_cancelled_and_run_again(server: Server) -> None:
    store = await server.app.store()
    [sent] = await store.enqueue([dibs.NewJob(task="t")])
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/jobs/{sent.id}")
        await shown.fill("[name=priority]", "-5")
        await shown.click("text=Reprioritise")
        await shown.fill("[name=run_at]", "2h")
        await shown.click("button:has-text('Reschedule')")
        await shown.wait_for_selector("text=not due until")
        await shown.click("button:has-text('Cancel')")
        await shown.wait_for_selector("h1 .badge.cancelled")
        await shown.click("button:has-text('Requeue')")
        await shown.wait_for_selector("h1 .badge.queued")
    job = await store.get(sent.id)
    assert job is not None
    assert (job.priority, job.state) == (-5, State.QUEUED)


async def test_queues_limits_workers_schedules_and_flows_are_changed(server: Server) -> None:
    await fill(server.app)
    store = await server.app.store()
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/queues")
        await shown.locator("section", has_text="mail").get_by_role("button", name="Pause").click()
        await shown.wait_for_selector(".badge.paused")
        await shown.fill("[name=task]:visible", "charge")
        await shown.fill("[name=concurrency]", "3")
        await shown.click("button:has-text('Set')")
        await shown.wait_for_selector("td:has-text('task charge')")
        await shown.goto(f"{server.url}/workers")
        await shown.click("text=Ask to stop")
        await shown.wait_for_selector(".badge:has-text('asked to stop')")
        await shown.goto(f"{server.url}/schedules")
        await shown.locator("section", has_text="stored quiet").get_by_role("button", name="Pause").click()
        await shown.wait_for_selector(".badge.paused")
        await shown.goto(f"{server.url}/flows")
        await shown.click("td a")
        await shown.click("button:has-text('Cancel')")
        await shown.wait_for_selector("h1 .badge.cancelled")
        await shown.goto(f"{server.url}/audit")
        trail = await shown.inner_text("#audit")
    for action in ("pause", "limit", "ask to stop", "pause schedule", "cancel flow"):
        assert action in trail
    assert {each.queue: each.paused for each in await store.counts()}["mail"]


# --- live -----------------------------------------------------------------------------------------------------


async def test_a_page_follows_the_store(server: Server) -> None:
    store = await server.app.store()
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/jobs")
        await shown.wait_for_selector(LIVE)
        assert "There are none." in await shown.inner_text("#found")
        await store.enqueue([dibs.NewJob(task="fresh", queue="new")])
        await shown.wait_for_selector("#found >> text=fresh")


async def test_what_somebody_reads_is_not_taken_away(server: Server) -> None:
    await fill(server.app)
    store = await server.app.store()
    async with browser() as opened, page(opened) as shown:
        await shown.goto(f"{server.url}/jobs")
        await shown.wait_for_selector(LIVE)
        await shown.locator('input[name="id"]').first.check()
        await _listen(shown)
        await store.enqueue([dibs.NewJob(task="fresh", queue="new")])
        await shown.wait_for_selector("html[data-told]", state="attached")
        assert await shown.locator('input[name="id"]').first.is_checked()
        assert "fresh" not in await shown.inner_text("#found")
        await shown.locator('input[name="id"]').first.uncheck()
        await store.enqueue([dibs.NewJob(task="fresher", queue="new")])
        await shown.wait_for_selector("#found >> text=fresher")


async def test_nor_is_it_by_an_answer_that_was_on_its_way(server: Server) -> None:
    await fill(server.app)
    store = await server.app.store()
    asked, ticked = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if "x-dibs-live" in route.request.headers:
            asked.set()
            await ticked.wait()
        await route.continue_()

    async with browser() as opened, page(opened) as shown:
        await shown.route("**/jobs", hold)
        await shown.goto(f"{server.url}/jobs")
        await shown.wait_for_selector(LIVE)
        await store.enqueue([dibs.NewJob(task="fresh", queue="new")])
        await asyncio.wait_for(asked.wait(), 20)
        await shown.locator('input[name="id"]').first.check()
        async with shown.expect_response("**/jobs"):
            ticked.set()
        await shown.wait_for_function("() => !asking")
        assert await shown.locator('input[name="id"]').first.is_checked()
        assert "fresh" not in await shown.inner_text("#found")


async def _listen(shown: Page) -> None:
    """Have an attribute say when the page has heard of something new, and had the time to act on it."""
    await shown.evaluate(
        """() => new Promise((greeted) => {
            const source = new EventSource("/api/events");
            source.addEventListener("counts", () => {
                greeted();
                source.addEventListener("counts", () => {
                    source.close();
                    const told = () => { document.documentElement.dataset.told = ""; };
                    requestAnimationFrame(() => requestAnimationFrame(told));
                }, { once: true });
            }, { once: true });
        })"""
    )


async def test_a_text_is_copied(server: Server) -> None:
    await fill(server.app)
    async with browser() as opened, page(opened) as shown:
        [job, *_] = (await (await server.app.store()).find(Filter(states=(State.FAILED,)))).jobs
        await shown.goto(f"{server.url}/jobs/{job.id}")
        await shown.click("[data-action=copy] >> nth=0")
        await shown.wait_for_selector("[data-action=copy]:text-matches('copied|selected')")


async def test_without_scripts_every_page_can_be_read_and_every_form_works(server: Server) -> None:
    await fill(server.app)
    async with browser() as opened:
        context = await opened.new_context(java_script_enabled=False)
        shown = await context.new_page()
        await shown.goto(f"{server.url}/failures")
        await shown.click("text=Requeue all")
        await shown.click("text=Requeue them")
        await asyncio.wait_for(_until(shown, server), 30)
        await context.close()


async def _until(shown: Page, server: Server) -> None:
    store = await server.app.store()
    while (await store.find(Filter(states=(State.FAILED,)))).jobs:
        await shown.reload()
