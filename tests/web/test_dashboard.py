"""The dashboard without a browser: every page is there, says what it should, and changes nothing by being looked at."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID

import httpx
import pytest

import dibs
from dibs.http import Site, Token, admin_app
from dibs.http.dashboard import actions
from dibs.http.service.data import Role
from dibs.http.tokens import new_token
from dibs.job import Filter, State
from tests.web.shop import HOSTILE, fill, new_app

BASE = "http://127.0.0.1:8642"
SITE = {"Origin": BASE}
PAGES = ("/", "/jobs", "/failures", "/flows", "/queues", "/workers", "/schedules", "/audit")


@asynccontextmanager
async def dashboard(
    app: dibs.App | None = None, **settings: object
) -> AsyncIterator[tuple[httpx.AsyncClient, dibs.App]]:
    app = app or new_app()
    site = admin_app(app, **{"local": True, "rate": 1e6, **settings})  # type: ignore[arg-type]
    transport = httpx.ASGITransport(site, client=("127.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        try:
            yield client, app
        finally:
            await site.close()


async def jobs(app: dibs.App, **which: object) -> list[dibs.Job]:
    return list((await (await app.store()).find(Filter(**which))).jobs)  # type: ignore[arg-type]


async def every_page(app: dibs.App) -> list[str]:
    store = await app.store()
    found = [f"/jobs/{job.id}" for job in await jobs(app)]
    flows = [f"/flows/{flow.id}" for flow in (await store.flows()).flows]
    return [*PAGES, *found, *flows, "/jobs?state=failed&text=order", "/flows?state=running"]


# --- looking --------------------------------------------------------------------------------------------------


async def test_every_page_of_an_empty_store_says_that_there_is_nothing() -> None:
    async with dashboard() as (client, _):
        for path in PAGES:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-type"].startswith("text/html")


async def test_every_page_of_a_full_store_is_there_and_changes_nothing() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        before = await jobs(app)
        for path in await every_page(app):
            answer = await client.get(path)
            assert answer.status_code == 200, path
        assert await jobs(app) == before


async def test_a_job_shows_why_what_it_carries_and_how_it_failed() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        [job, *_] = await jobs(app, states=(State.FAILED,))
        page = (await client.get(f"/jobs/{job.id}")).text
    assert "It failed" in page
    assert "ValueError: order" in page
    assert "Traceback (most recent call last)" in page
    assert "<svg" in page
    assert "Requeue" in page


async def test_the_overview_says_first_what_is_wrong() -> None:
    async with dashboard() as (client, app):
        store = await fill(app)
        await store.pause("mail")
        page = (await client.get("/")).text
    assert re.search(r"<h1>[^<]*(paused|failed)", page)
    assert '<a href="/queues"><b>queue mail</b></a>' in page, "and leads to where it can be put right"


async def test_filters_live_in_the_address() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        page = (await client.get("/jobs?state=failed&queue=default")).text
        assert page.count('name="id"') == 3
        assert 'name="queue" value="default"' in page
        none = (await client.get("/jobs?state=failed&queue=mail")).text
        assert "There are none." in none
        text = (await client.get("/jobs?text=ORDER+2")).text
        assert text.count('name="id"') == 1


async def test_a_filter_that_nobody_knows_is_refused_and_times_are_as_in_the_api() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        answer = await client.get("/jobs?sta=failed")
        assert answer.status_code == 400
        assert "no filter is called" in answer.text
        for name in ("created_since", "finished_since", "since"):
            assert "There are none" in (await client.get(f"/jobs?{name}=2999-01-01T00:00:00Z")).text


async def test_pages_of_jobs_lead_from_one_to_the_next() -> None:
    async with dashboard() as (client, app):
        await (await app.store()).enqueue([dibs.NewJob(task="t", args={"n": n}) for n in range(120)])
        seen, path = list[str](), "/jobs"
        while path:
            page = (await client.get(path)).text
            seen += re.findall(r'name="id" value="([0-9a-f-]{36})"', page)
            older = re.search(r'rel="next" href="([^"]+)"', page)
            path = f"/jobs{older[1]}".replace("&amp;", "&") if older else ""
    assert len(seen) == len(set(seen)) == 120


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/jobs/nonsense", 404),
        ("/jobs/01a1e0c7-5a1b-701f-9a72-3ec2978bd200", 404),
        ("/flows/01a1e0c7-5a1b-701f-9a72-3ec2978bd200", 404),
        ("/batches/01a1e0c7-5a1b-701f-9a72-3ec2978bd200", 404),
        ("/jobs?state=asleep", 400),
        ("/jobs?since=soon", 400),
        ("/jobs?after=x", 400),
        ("/jobs?flow=x", 400),
        ("/flows?state=x", 400),
        ("/jobs?queue=" + "x" * 300, 400),
    ],
)
async def test_what_makes_no_sense_is_said_on_a_page(path: str, status: int) -> None:
    async with dashboard() as (client, _):
        answer = await client.get(path)
    assert answer.status_code == status
    assert "<h1>" in answer.text


async def test_secrets_are_on_no_page() -> None:
    app = dibs.App("memory://")

    @app.task(redact=["card"])
    async def pay(card: str, password: str, note: str) -> None:
        raise ValueError(f"card {card} refused")

    async with dashboard(app) as (client, _):
        await pay.options(max_attempts=1).enqueue("4111-1111", "hunter2", "hello")
        await app.drain()
        for path in await every_page(app):
            page = (await client.get(path)).text
            assert "4111" not in page, path
            assert "hunter2" not in page, path


# --- hostile names --------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


async def test_hostile_names_and_arguments_are_text_on_every_page() -> None:
    async with dashboard() as (client, app):
        await fill(app, HOSTILE)
        for path in await every_page(app):
            tags = Tags()
            tags.feed((await client.get(path)).text)
            scripts = [attributes for tag, attributes in tags.found if tag == "script"]
            assert [script.get("src") for script in scripts] == ["/static/dibs.js"], path
            for tag, attributes in tags.found:
                assert tag != "img", path
                assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag)
                for name in ("href", "action", "src"):
                    assert (attributes.get(name) or "/").startswith(("/", "?", "#")), (path, tag, attributes)


# --- doing ----------------------------------------------------------------------------------------------------


async def post(client: httpx.AsyncClient, path: str, form: Mapping[str, object] | None = None) -> httpx.Response:
    return await client.post(path, data=form or {}, headers=SITE, follow_redirects=True)


async def done(client: httpx.AsyncClient, form: Mapping[str, object]) -> str:
    """Begin a batch, and come back to its page when it has ended."""
    begun = await post(client, "/batches", form)
    assert begun.url.path.startswith("/batches/")
    site: Site = client._transport.app  # type: ignore[attr-defined]
    await site.service.batch_runner.wait(UUID(begun.url.path.rpartition("/")[2]))
    return (await client.get(begun.url.path)).text


async def test_one_job_can_be_cancelled_requeued_moved_and_deleted() -> None:
    async with dashboard() as (client, app):
        store = await app.store()
        [sent] = await store.enqueue([dibs.NewJob(task="t")])
        path = f"/jobs/{sent.id}"

        async def now() -> dibs.Job | None:
            return await store.get(sent.id)

        assert "Reprioritised" in (await post(client, f"{path}/reprioritise", {"priority": -7})).text
        assert (await now()).priority == -7  # type: ignore[union-attr]
        assert "Rescheduled" in (await post(client, f"{path}/reschedule", {"run_at": "2h"})).text
        assert (await now()).run_at > (await now()).created_at  # type: ignore[union-attr]
        assert "Cancelled" in (await post(client, f"{path}/cancel")).text
        assert (await now()).state is State.CANCELLED  # type: ignore[union-attr]
        assert "Nothing changed" in (await post(client, f"{path}/cancel")).text
        assert "Requeued" in (await post(client, f"{path}/requeue")).text
        assert (await now()).state is State.QUEUED  # type: ignore[union-attr]
        assert "Deleted" in (await post(client, f"{path}/delete")).text
        assert await now() is None


async def test_many_jobs_are_changed_after_a_page_that_says_how_many() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        asked = await post(
            client, "/choose", {"what": "all", "state": "failed", "verb": "requeue", "back": "/jobs?state=failed"}
        )
        assert "Requeue 3 jobs?" in asked.text
        assert 'href="/jobs?state=failed"' in asked.text
        assert len(await jobs(app, states=(State.FAILED,))) == 3
        assert 'name="reason"' in asked.text
        begun = await done(client, {"verb": "requeue", "state": "failed", "confirm": 3, "reason": " paid by hand "})
        assert "Requeue: 3 of 3" in begun
        audit = (await client.get("/audit")).text
        assert "requeue" in audit
        assert ">paid by hand<" in audit
        assert "local" in audit
        assert await jobs(app, states=(State.FAILED,)) == []


async def test_where_there_are_too_many_to_count_the_pages_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "COUNTED", 100)
    shop = dibs.App(f"sqlite:///{tmp_path}/jobs.db?migrate=auto")
    async with shop, dashboard(shop) as (client, app):
        await (await app.store()).enqueue([dibs.NewJob(task="t", args={"n": n}) for n in range(250)])
        asked = await post(client, "/choose", {"what": "all", "state": "queued", "verb": "cancel"})
        assert "Cancel 100 jobs or more?" in asked.text
        assert "not counted to the end" in asked.text
        refused = await post(client, "/batches", {"verb": "cancel", "state": "queued"})
        assert refused.status_code == 400
        assert len(await jobs(app, states=(State.QUEUED,))) == 100, "a page of them"
        begun = await done(client, {"verb": "cancel", "state": "queued", "confirm": 100})
        assert "Cancel: 250<" in begun, "it does not say of how many"
        assert await jobs(app, states=(State.QUEUED,)) == []


async def test_chosen_jobs_alone_are_changed() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        [one, *_] = await jobs(app, states=(State.FAILED,))
        form = {"what": "chosen", "id": str(one.id), "verb": "delete", "state": "failed"}
        assert "Delete 1 job?" in (await post(client, "/choose", form)).text
        await done(client, {"verb": "delete", "id": str(one.id), "confirm": 1})
        assert len(await jobs(app, states=(State.FAILED,))) == 2
        nothing = await post(client, "/choose", {"what": "chosen", "verb": "delete"})
        assert nothing.status_code == 400
        assert "no job is chosen" in nothing.text


async def test_equal_failures_are_one_row_and_requeued_together() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        page = (await client.get("/failures")).text
        assert "3 jobs" in page
        [group] = set(re.findall(r'name="group" value="([^"]+)"', page))
        form = {"what": "all", "group": group, "verb": "requeue"}
        asked = (await post(client, "/choose", form)).text
        assert "Requeue 3 jobs?" in asked
        assert re.search(r"group \w+: .+, ValueError", asked), "it says which failures"
        await done(client, {"verb": "requeue", "group": group, "confirm": 3})
        assert await jobs(app, states=(State.FAILED,)) == []


async def test_queues_limits_workers_and_schedules_can_be_changed() -> None:
    async with dashboard() as (client, app):
        store = await fill(app)
        await post(client, "/queues/pause", {"queue": "mail"})
        assert {each.queue: each.paused for each in await store.counts()}["mail"]
        await post(client, "/queues/resume", {"queue": "mail"})
        assert not {each.queue: each.paused for each in await store.counts()}["mail"]
        await post(client, "/limits", {"task": "charge", "concurrency": "3", "count": "10", "per": "60"})
        [use] = [each for each in await store.limits() if each.scope.task == "charge"]
        assert (use.limit.concurrency, use.rank) == (3, 1)
        assert (await post(client, "/limits", {"task": "charge"})).status_code == 400, "a form without a number"
        await post(client, "/limits", {"task": "charge", "away": "yes"})
        assert [each for each in await store.limits() if each.scope.task == "charge"] == []
        assert "Asked to stop" in (await post(client, "/workers/stop", {"worker": "worker-1"})).text
        assert "asked to stop" in (await client.get("/workers")).text
        await post(client, "/schedules/pause", {"schedule": "stored quiet"})
        assert "paused" in (await client.get("/schedules")).text
        assert (await post(client, "/schedules/run", {"schedule": "stored quiet"})).url.path.startswith("/jobs/")


async def test_flows_can_be_cancelled_and_run_again() -> None:
    async with dashboard() as (client, app):
        store = await fill(app)
        [flow] = (await store.flows()).flows
        assert "<svg" in (await client.get(f"/flows/{flow.id}")).text
        await post(client, f"/flows/{flow.id}/cancel")
        assert (await store.flow(flow.id)).state == "cancelled"  # type: ignore[union-attr]
        await post(client, f"/flows/{flow.id}/retry")
        assert (await store.flow(flow.id)).state == "running"  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["/choose", "/batches", "/queues/pause", "/limits", "/workers/stop", "/schedules/run"])
async def test_a_form_that_makes_no_sense_is_refused_on_a_page(path: str) -> None:
    async with dashboard() as (client, app):
        await fill(app)
        before = await jobs(app)
        answer = await post(client, path, {"priority": "high"})
        assert 400 <= answer.status_code < 500
        assert "<h1>" in answer.text
        assert await jobs(app) == before


# --- who may ----------------------------------------------------------------------------------------------------


def routes_that_act() -> list[str]:
    from starlette.routing import Route

    from dibs.http.dashboard.site import _routes
    from dibs.http.service import Service

    found = [route for route in _routes(Service(new_app())) if isinstance(route, Route)]
    return [route.path for route in found if "POST" in (route.methods or ())]


async def test_a_reader_sees_everything_and_can_change_nothing() -> None:
    secret, token = new_token("ann", Role.READER)
    async with dashboard(local=False, tokens=[token]) as (client, app):
        await fill(app)
        before = await jobs(app)
        client.headers["Authorization"] = f"Bearer {secret}"
        for path in await every_page(app):
            assert (await client.get(path)).status_code == 200, path
        id = str(before[0].id)
        acting = routes_that_act()
        assert len(acting) >= 15
        for path in acting:
            answer = await post(client, path.replace("{id}", id), {"queue": "mail", "verb": "cancel", "what": "all"})
            assert answer.status_code == 403, path
        assert await jobs(app) == before


async def test_who_has_no_token_is_asked_for_one_and_let_in_with_it() -> None:
    secret, token = new_token("ann", Role.OPERATOR)
    async with dashboard(local=False, tokens=[token]) as (client, app):
        await fill(app)
        turned = await client.get("/jobs", follow_redirects=True)
        assert turned.url.path == "/login"
        assert "welcome" not in turned.text
        wrong = await post(client, "/login", {"token": "wrong", "next": "/jobs"})
        assert "not known" in wrong.text
        right = await post(client, "/login", {"token": secret, "next": "/jobs"})
        assert right.url.path == "/jobs"
        assert "you are ann" in right.text
        await post(client, "/logout")
        assert (await client.get("/jobs", follow_redirects=True)).url.path == "/login"


async def test_another_website_cannot_make_a_browser_change_anything() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        before = await jobs(app)
        for origin in ("https://evil.example", "null"):
            answer = await client.post("/queues/pause", data={"queue": "mail"}, headers={"Origin": origin})
            assert answer.status_code == 403
        assert await jobs(app) == before


async def test_a_form_cannot_lead_elsewhere() -> None:
    async with dashboard() as (client, app):
        await fill(app)
        for back in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"):
            form = {"what": "all", "state": "failed", "verb": "requeue", "back": back}
            page = (await post(client, "/choose", form)).text
            assert "evil" not in page
            assert "javascript:" not in page


async def test_every_answer_forbids_scripts_of_others() -> None:
    async with dashboard() as (client, _):
        for path in (*PAGES, "/static/dibs.js", "/static/dibs.css", "/nothing"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy


def test_tokens_are_read_as_they_are_printed() -> None:
    _, token = new_token("ann", Role.READER)
    assert Token.read(token.line()) == token
