"""Every operation of the API does what it says, on each store; the walk at the end sees that none was left out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import dibs
from dibs.http import Site
from dibs.http.api import OPERATIONS, document
from dibs.http.service import data
from dibs.job import Filter, NewStep, State
from dibs.outcome import Succeeded
from dibs.telemetry import slots
from dibs.telemetry.asks import asked_to_stop
from dibs.telemetry.tally import Figures
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS
from tests.web.filling import declare
from tests.web.serving import READER, client, site

SECRET = "4111-1111-1111"


class Office:
    """An app with a site, and an operator who uses it."""

    def __init__(self, app: dibs.App) -> None:
        self.app = app
        self.tasks = declare(app)
        self.site: Site = site(app)
        self.http = client(self.site)

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        answer = await self.http.request(method, path, json=body, params=query or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return await self.ask("GET", path, None, status, **query)

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return await self.ask("POST", path, body, status)

    async def add(self, **options: Any) -> str:
        return str((await self.tasks["add"].options(**options).enqueue(1)).id)

    async def fail(self, count: int = 1, amount: int = 7) -> list[str]:
        ids = [str((await self.tasks["pay"].enqueue(SECRET, amount + n)).id) for n in range(count)]
        await self.app.drain(["mail"])
        return ids

    async def state(self, id: str) -> State:
        job = await self.app.get(id)
        assert job is not None
        return job.state

    async def audit(self) -> list[tuple[str, str]]:
        return [(entry["actor"], entry["action"]) for entry in (await self.get("/api/audit"))["entries"]]


STORES = ("memory", "sqlite", *POSTGRES_LABELS[-1:], *REDIS_LABELS[-1:])


@pytest.fixture(params=STORES)
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Office]:
    app = dibs.App(_url(request, tmp_path))
    async with app:
        made = Office(app)
        yield made
        await made.site.close()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    store: str = request.param
    if store == "memory":
        return "memory://"
    if store == "sqlite":
        return f"sqlite:///{folder}/jobs.db?migrate=auto"
    make: Callable[[str], str] = request.getfixturevalue(f"{store.partition('-')[0]}_database")
    return make(store) + ("?migrate=auto" if store.startswith("postgres") else "")


# --- jobs ---------------------------------------------------------------------------------------------------------


async def test_a_job_is_enqueued_shown_and_explained(office: Office) -> None:
    sent = await office.post("/api/jobs", {"task": "add", "args": {"a": 4}, "priority": -5, "key": "k/1"}, 201)
    assert sent["created"] is True
    again = await office.post("/api/jobs", {"task": "add", "args": {"a": 4}, "key": "k/1"}, 201)
    assert again == {"id": sent["id"], "created": False}
    shown = await office.get(f"/api/jobs/{sent['id']}")
    assert shown["arguments"] == {"a": 4, "b": 1} and shown["priority"] == -5 and shown["state"] == "queued"
    assert shown["timeline"][0]["what"] == "created"
    why = await office.get(f"/api/jobs/{sent['id']}/why")
    assert why["reason"] == "no_worker" and why["sentence"] == "No live worker serves queue default."
    assert ("olga", "enqueue") in await office.audit()


async def test_a_task_checks_what_is_enqueued_for_it_and_an_unknown_one_takes_anything(office: Office) -> None:
    refused = await office.post("/api/jobs", {"task": "add", "args": {"a": "many"}}, 422)
    assert "add" in refused["detail"]
    await office.post("/api/jobs", {"task": "elsewhere", "args": {"x": [1]}, "queue": "far"}, 201)
    assert (await office.get("/api/queues/far"))["due"] == 1


async def test_jobs_are_found_by_every_field(office: Office) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    one = await office.add(queue="a", key="k1", run_at=later)
    two = await office.add(queue="b", key="k2")
    [failed] = await office.fail()

    async def found(**query: Any) -> set[str]:
        return {job["id"] for job in (await office.get("/api/jobs", **query))["jobs"]}

    assert await found() == {one, two, failed}
    assert await found(queue=["a", "b"]) == {one, two}
    assert await found(task="pay") == {failed}
    assert await found(state="failed") == {failed}
    assert await found(key="k2") == {two}
    assert await found(id=[one, failed]) == {one, failed}
    assert await found(created_before="2020-01-01T00:00:00Z") == set()
    assert await found(finished_since="2020-01-01T00:00:00Z") == {failed}
    assert await found(text="WAS REFUSED for 7") == {failed}
    assert await found(text='"a":1', queue="b") == {two}
    assert await found(text=SECRET) == set(), "what is hidden cannot be found"


async def test_pages_go_on_where_the_last_one_ended(office: Office) -> None:
    ids = [await office.add() for _ in range(7)]
    seen, after = list[str](), None
    while True:
        page = await office.get("/api/jobs", limit=3, **({"after": after} if after else {}))
        seen += [job["id"] for job in page["jobs"]]
        after = page["after"]
        if after is None:
            break
    assert seen == list(reversed(ids))
    first = await office.get("/api/jobs", text='"a"', limit=2)
    rest = await office.get("/api/jobs", text='"a"', limit=10, after=first["after"])
    assert [job["id"] for job in [*first["jobs"], *rest["jobs"]]] == list(reversed(ids))


async def test_a_job_is_changed_by_each_verb(office: Office) -> None:
    id = await office.add()
    soon = "2031-05-06T07:08:09Z"
    assert await office.post(f"/api/jobs/{id}/reschedule", {"run_at": soon}) == {"changed": 1}
    assert await office.post(f"/api/jobs/{id}/reprioritise", {"priority": 9, "reason": "not so urgent"}) == {
        "changed": 1
    }
    shown = await office.get(f"/api/jobs/{id}")
    assert (shown["run_at"], shown["priority"], shown["label"]) == (soon, 9, "scheduled")
    assert await office.post(f"/api/jobs/{id}/cancel") == {"changed": 1}
    assert await office.state(id) is State.CANCELLED
    assert await office.post(f"/api/jobs/{id}/cancel", {"force": True}) == {"changed": 0}
    assert await office.post(f"/api/jobs/{id}/requeue", {"reason": "again"}) == {"changed": 1}
    assert await office.state(id) is State.QUEUED
    assert await office.ask("DELETE", f"/api/jobs/{id}") == {"changed": 1}
    await office.get(f"/api/jobs/{id}", 404)
    done = [action for _, action in reversed(await office.audit())]
    assert done == ["reschedule", "reprioritise", "cancel", "cancel", "requeue", "delete"]


async def test_a_running_job_is_deleted_with_force_only(office: Office) -> None:
    id = await office.add()
    await (await office.app.store()).claim("default", "w", 1, timedelta(minutes=1))
    assert await office.ask("DELETE", f"/api/jobs/{id}") == {"changed": 0}
    assert await office.ask("DELETE", f"/api/jobs/{id}", force="true") == {"changed": 1}


@pytest.mark.parametrize("path", ["", "/why"])
async def test_what_is_not_there_is_not_found(office: Office, path: str) -> None:
    missing = await office.get(f"/api/jobs/{uuid4()}{path}", 404)
    assert missing["status"] == 404 and "there is no job" in missing["detail"]
    await office.get(f"/api/jobs/nonsense{path}", 404)


async def test_the_task_of_a_job_cannot_be_edited(office: Office) -> None:
    id = await office.add()
    for verb, body in (("reschedule", {"run_at": "2031-05-06T07:08:09Z"}), ("reprioritise", {"priority": 1})):
        answer = await office.post(f"/api/jobs/{id}/{verb}", {**body, "task": "pay"}, 400)
        assert "task" in answer["detail"]
    assert (await office.http.put(f"/api/jobs/{id}", json={"task": "pay"})).status_code == 405


# --- queues, limits, workers, tasks -------------------------------------------------------------------------------


async def test_a_queue_is_paused_resumed_and_ordered_whatever_it_is_called(office: Office) -> None:
    for name in ("mail", "a/b?c#d%2F", "mit Leerzeichen ü", "..."):
        path = f"/api/queues/{_quoted(name)}"
        assert await office.post(f"{path}/pause") == {"done": True}
        shown = await office.get(path)
        assert shown["name"] == name and shown["paused"] is True
        await office.post(f"{path}/resume")
        await office.ask("PUT", f"{path}/order", {"order": "lifo"})
        shown = await office.get(path)
        assert (shown["paused"], shown["order"]) == (False, "lifo")
        await office.ask("PUT", f"{path}/order", {"order": "fifo", "ageing": 2.5})
        assert (await office.get(path))["ageing"] == 2.5
    refused = await office.ask("PUT", "/api/queues/mail/order", {"order": "lifo", "ageing": 1}, 422)
    assert "lifo queue cannot age" in refused["detail"]
    await office.get("/api/queues/nobody", 404)
    assert {queue["name"] for queue in await office.get("/api/queues")} >= {"mail", "..."}


async def test_a_limit_is_set_shown_and_taken_away(office: Office) -> None:
    await office.ask("PUT", "/api/limits", {"queue": "mail", "concurrency": 2, "rate": {"count": 10, "per": 60}})
    await office.ask("PUT", "/api/limits", {"task": "add", "concurrency": 0})
    [queue, task] = await office.get("/api/limits")
    assert (queue["queue"], queue["concurrency"], queue["rate"]) == ("mail", 2, {"count": 10, "per": 60.0})
    assert (task["task"], task["concurrency"], task["running"], task["by"]) == ("add", 0, 0, "operator")
    await office.add(queue="mail")
    assert (await office.get("/api/queues/mail"))["limits"] == [queue]
    await office.ask("DELETE", "/api/limits", task="add")
    await office.ask("DELETE", "/api/limits", queue="mail")
    assert await office.get("/api/limits") == []
    await office.ask("PUT", "/api/limits", {"queue": "a", "task": "b", "concurrency": 1}, 422)


async def test_workers_show_what_they_run_and_are_asked_to_stop(office: Office) -> None:
    id = await office.add()
    store = await office.app.store()
    info = {"queues": ["default"], "tasks": ["add"], "concurrency": 3, "token": "s3cret", "url": "redis://:pw99@h"}
    await store.heartbeat("w/1", [], timedelta(minutes=1), info)
    await store.claim("default", "w/1", 1, timedelta(minutes=1))
    [worker] = await office.get("/api/workers")
    assert worker["live"] and worker["running"] == 1 and [job["id"] for job in worker["jobs"]] == [id]
    assert worker["info"]["token"] == "•••" and "pw99" not in worker["info"]["url"]
    await office.post("/api/workers/w%2F1/stop")
    assert (await office.get("/api/workers/w%2F1"))["stop_asked"] is not None
    assert (await asked_to_stop(store))["w/1"]["by"] == "olga"
    await office.post("/api/workers/nobody/stop", status=404)


async def test_tasks_are_counted(office: Office) -> None:
    first = await office.add()
    later = {"task": "add", "args": {"a": 1, "b": 2}, "run_at": "2999-01-01T00:00:00Z"}
    await office.post("/api/jobs", later, status=201)
    await office.fail(2)
    tasks = {task["name"]: task for task in await office.get("/api/tasks")}
    assert tasks["add"]["known"] is True and tasks["pay"]["queued"] == 0
    assert (tasks["add"]["queued"], tasks["add"]["scheduled"]) == (2, 1)
    assert tasks["add"]["oldest_due"] == (await office.get(f"/api/jobs/{first}"))["run_at"]
    assert tasks["pay"]["oldest_due"] is None


async def test_the_overview_counts_right_after_a_change(office: Office) -> None:
    ids = [await office.add() for _ in range(3)]
    seen = await office.get("/api/overview")
    assert seen["states"]["queued"] == seen["due"] == 3
    await office.post(f"/api/jobs/{ids[0]}/cancel")
    seen = await office.get("/api/overview")
    assert (seen["states"]["queued"], seen["states"]["cancelled"]) == (2, 1)
    assert any(finding["level"] == "fail" and "no live worker" in finding["text"] for finding in seen["findings"])


# --- schedules, flows, failures -----------------------------------------------------------------------------------


async def test_a_schedule_is_put_paused_run_and_removed(office: Office) -> None:
    path = f"/api/schedules/{_quoted('every/night')}"
    made = await office.ask("PUT", path, {"task": "add", "args": {"a": 1}, "cron": "0 3 * * *", "zone": "Europe/Paris"})
    assert made["rhythm"] == "0 3 * * * in Europe/Paris" and made["arguments"] == {"a": 1, "b": 1}
    await office.ask("PUT", path, {"task": "add", "args": {"a": 2}, "every": 3600})
    assert (await office.get(path, ticks=4))["every"] == 3600
    assert len((await office.get(path, ticks=4))["next"]) == 4
    await office.post(f"{path}/pause")
    assert [(one["name"], one["paused"], one["next"]) for one in await office.get("/api/schedules")] == [
        ("every/night", True, [])
    ]
    await office.post(f"{path}/resume")
    sent = await office.post(f"{path}/run", status=201)
    assert (await office.get(f"/api/jobs/{sent['id']}"))["task"] == "add"
    await office.ask("DELETE", path)
    await office.get(path, 404)
    await office.post(f"{path}/run", status=404)
    for wrong in ({"cron": "61 * * * *"}, {}, {"cron": "* * * * *", "every": 5}, {"every": 60, "zone": "Mars/X"}):
        await office.ask("PUT", path, {"task": "add", "args": {"a": 1}, **wrong}, 422)


async def test_a_flow_is_shown_with_its_steps_cancelled_and_retried(office: Office) -> None:
    plan = office.app.flow("sums", meta={"password": "hunter2"})
    plan.step("one", office.tasks["add"].job(1))
    plan.step("two", office.tasks["add"].job(2), needs=["one"])
    id = (await plan.start()).id
    assert [flow["id"] for flow in (await office.get("/api/flows", state="running"))["flows"]] == [str(id)]
    shown = await office.get(f"/api/flows/{id}")
    assert [(step["name"], step["state"], step["needs"]) for step in shown["graph"]] == [
        ("one", "queued", []),
        ("two", "waiting", ["one"]),
    ]
    assert shown["meta"] == {"password": "•••"}
    assert (await office.post(f"/api/flows/{id}/cancel"))["changed"] == 1
    assert (await office.get(f"/api/flows/{id}"))["state"] == "cancelled"
    assert (await office.post(f"/api/flows/{id}/retry"))["changed"] == 2
    await office.app.drain()
    assert (await office.get(f"/api/flows/{id}"))["progress"] == 1.0
    assert (await office.post(f"/api/flows/{id}/restart"))["changed"] == 2
    await office.post(f"/api/flows/{id}/restart", status=422)
    await office.get(f"/api/flows/{uuid4()}", 404)


async def test_a_step_is_not_shown_behind_another_that_has_the_name_of_its_need(office: Office) -> None:
    plan = office.app.flow("sums")
    for name, needs in {"one": [], "two": [], "three": ["one", "two"]}.items():
        plan.step(name, office.tasks["add"].job(1), needs=needs)
    flow = (await plan.start()).id
    store = await office.app.store()
    one, two = await store.claim("default", "w", 2, timedelta(minutes=1))
    await store.settle([one.settled(Succeeded(1))])
    await store.delete(Filter(ids=(one.id,)))
    new = NewStep(name="one", job=office.tasks["add"].job(3))
    added = new, NewStep(name="four", job=office.tasks["add"].job(4), needs=("one",))
    await store.settle([two.settled(Succeeded(2, added))])
    shown = (await office.get(f"/api/flows/{flow}"))["graph"]
    assert {step["name"]: (step["needs"], step["needs_there"]) for step in shown} == {
        "one": ([], []),
        "two": ([], []),
        "three": (["one", "two"], ["two"]),
        "four": (["one"], ["one"]),
    }


async def test_equal_failures_are_one_row_that_can_be_requeued(office: Office) -> None:
    ids = await office.fail(3)
    await office.add()
    failures = await office.get("/api/failures")
    [group] = failures["groups"]
    assert group["count"] == 3 and group["error"] == "ValueError: card ••• was refused for … EUR"
    found = await office.get("/api/jobs", group=group["group"])
    assert {job["id"] for job in found["jobs"]} == set(ids)
    batch = await office.post("/api/batches", {"verb": "requeue", "which": {"group": group["group"]}}, 202)
    await office.site.service.batch_runner.wait(UUID(batch["id"]))
    assert (await office.get(f"/api/batches/{batch['id']}"))["done"] == 3
    assert {await office.state(id) for id in ids} == {State.QUEUED}


# --- the rest -----------------------------------------------------------------------------------------------------


async def test_samples_of_workers_are_shown(office: Office) -> None:
    store = await office.app.store()
    figures = Figures(started=3, succeeded=1, failed=2)
    figures.ran.add_like((0.1, 0.2, 5.0), 3)
    slot = slots.begin((await store.kept(())).now)
    await store.keep(slots.sample(slot), {"w": slots.pack({("mail", "pay"): figures})})
    await store.keep(slots.depth(slot), {slots.name(slot): {"mail": {"due": 4, "scheduled": 2}}})
    samples = await office.get("/api/samples", hours=1)
    assert samples["slot_seconds"] == 300 and len(samples["slots"]) in (12, 13)
    last = samples["slots"][-1]
    assert last["total"]["failed"] == last["tasks"]["pay"]["failed"] == 2
    assert last["queues"] == {"mail": {"depth": 6, "due": 4}}
    pay = {task["name"]: task for task in await office.get("/api/tasks")}["pay"]
    assert pay["failed"] == 2 and pay["runtime"]["p50"] < 1 < pay["runtime"]["p99"]
    assert pay["throughput"] > 0
    seen = await office.get("/api/overview")
    assert seen["failing"] == 2 / 3 and seen["throughput"] > 0
    await office.add(queue="mail")
    mail = await office.get("/api/queues/mail")
    assert mail["throughput"] == seen["throughput"] and mail["runtime"]["p90"] > 1


async def test_metrics_are_for_readers_and_probes_for_everybody(office: Office) -> None:
    await office.add()
    stranger = client(office.site, None)
    assert [(await stranger.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]
    text = (await client(office.site, READER).get("/metrics")).text
    assert 'queue="default"' in text and "dibs_store_up 1.0" in text


async def test_who_is_asking_is_told(office: Office) -> None:
    assert await office.get("/api/me") == {"name": "olga", "role": "operator"}


async def test_events_tell_how_everything_is_and_then_what_changes(office: Office) -> None:
    id = await office.add()
    service = office.site.service
    service.news.every = 0.01
    events = service.events(job=UUID(id))
    seen: dict[str, Any] = {}
    draining: list[asyncio.Task[Any]] = []
    async for event in events:
        seen[event.name] = event.data
        if event.name == "job" and event.data.state is State.QUEUED:
            draining.append(asyncio.create_task(office.app.drain()))
        if "ended" in seen and seen["job"].state is State.SUCCEEDED:
            break
    assert [job["id"] for job in seen["ended"]["jobs"]] == [UUID(id)]
    assert {"counts", "workers"} <= seen.keys()
    await asyncio.gather(*draining)
    await events.aclose()  # type: ignore[attr-defined]


async def test_events_come_as_a_stream_that_ends_with_the_site(office: Office) -> None:
    await office.add()
    call = asyncio.create_task(office.http.get("/api/events"))  # this transport gives the whole answer at its end
    news = office.site.service.news
    async for _ in news.listen():  # once we hear something, so does whoever came before us
        break
    news.let_go()
    answer = await call
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: 3000\n\nevent: counts\ndata: {")


def test_the_document_names_every_operation_and_nothing_else() -> None:
    paths = document()["paths"]
    named = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert named == {(each.method, each.path) for each in OPERATIONS}
    ids = [each.name for each in OPERATIONS]
    assert len(ids) == len(set(ids))
    # Whoever adds an operation adds a test of it here, and to this number.
    assert len(OPERATIONS) == 43


async def test_the_document_is_served_where_the_site_is(office: Office) -> None:
    mounted = client(Starlette(routes=[Mount("/ops/jobs", office.site)]))
    answer = (await mounted.get("/ops/jobs/api/openapi.json")).json()
    assert answer["openapi"] == "3.1.0" and answer["servers"] == [{"url": "/ops/jobs"}]
    assert (await mounted.post("/ops/jobs/api/queues/a%2Fb/pause")).status_code == 200
    assert (await mounted.get("/ops/jobs/api/queues/a%2Fb")).json()["paused"] is True


def _quoted(name: str) -> str:
    return quote(name, safe="")


def test_values_in_the_document_are_those_of_the_service() -> None:
    """A schema of the document has the very fields of the struct that is answered."""
    schemas = document()["components"]["schemas"]
    for name in ("JobRow", "JobDetail", "Batch", "Overview", "WorkerShown", "FlowDetail", "ScheduleShown"):
        assert set(schemas[name]["properties"]) == set(getattr(data, name).__struct_fields__)
