"""Endpoints as jobs, in a Starlette and in a FastAPI application, with a real worker behind them."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Query
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import dibs
from dibs.clock import system_clock
from dibs.http import Answer, Endpoints, JobRequest, JobView, Responses
from dibs.ids import derived_id
from dibs.job import Filter, Job, Report, State

BASE = "http://shop.example"


class Order(BaseModel):
    item: str
    count: int = 1


class Shop:
    """An app, its web application, and a client of it."""

    def __init__(self, **settings: Any) -> None:
        self.app = dibs.App("memory://")
        self.jobs = Endpoints(self.app, **settings)
        self.seen: list[JobRequest] = []

    def starlette(self) -> Starlette:
        @self.jobs.endpoint(headers=["X-Trace"])
        async def report(request: JobRequest) -> Any:
            self.seen.append(request)
            return {"year": request.path_params["year"], "body": request.body}

        return Starlette(routes=[Route("/reports/{year:int}", report, methods=["POST"]), *self.jobs.routes])

    def fastapi(self) -> FastAPI:
        web = FastAPI()
        self.jobs.install(web)

        @web.post("/orders/{shop}")
        @self.jobs.endpoint(queue="orders")
        async def order(
            shop: str, order: Order, rush: Annotated[bool, Query()] = False, seen: JobRequest | None = None
        ) -> Answer:
            assert seen is not None and seen.path == f"/orders/{shop}"
            if order.count > 100:
                raise HTTPException(409, "so many are not there")
            return Answer({"shop": shop, "item": order.item, "count": order.count, "rush": rush}, status=201)

        return web

    @asynccontextmanager
    async def client(self, web: Starlette) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url=BASE) as client:
            yield client

    async def stored(self) -> list[Job]:
        return list((await (await self.app.store()).find(Filter())).jobs)


async def until(condition: Callable[[], Any]) -> None:
    """Let the others on the loop go on until it holds."""
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        await asyncio.sleep(0)


# --- accepted -------------------------------------------------------------------------------------------------


async def test_a_request_becomes_a_job_and_is_answered_at_once() -> None:
    shop = Shop()
    async with shop.client(shop.starlette()) as client:
        answer = await client.post("/reports/2026?style=long&style=short", json={"rows": 3})
    assert answer.status_code == 202
    assert int(answer.headers["Retry-After"]) >= 1
    told = answer.json()
    assert told["state"] == "queued"
    assert answer.headers["Location"] == told["location"] == f"/jobs/{told['id']}"
    [job] = await shop.stored()
    assert str(job.id) == told["id"]
    assert job.task == "report"
    request = job.args["request"]
    assert request["method"] == "POST"
    assert request["path"] == "/reports/2026"
    assert request["path_params"] == {"year": 2026}
    assert request["query"] == [["style", "long"], ["style", "short"]]
    assert request["body"] == {"rows": 3}


async def test_the_job_keeps_the_headers_that_were_chosen_and_no_others() -> None:
    shop = Shop()
    secrets = {"Authorization": "Bearer s3cret", "Cookie": "session=s3cret", "X-Api-Key": "s3cret", "X-Trace": "abc"}
    async with shop.client(shop.starlette()) as client:
        await client.post("/reports/1", json={}, headers=secrets)
    [job] = await shop.stored()
    assert job.args["request"]["headers"] == {"x-trace": "abc"}
    assert "s3cret" not in json.dumps(job.args) + json.dumps(job.meta)


async def test_polling_gives_state_progress_and_at_the_end_the_result() -> None:
    shop = Shop()
    began, go_on = asyncio.Event(), asyncio.Event()

    @shop.jobs.endpoint
    async def slow(request: JobRequest) -> Any:
        dibs.current().progress(0.5, "half of it")
        began.set()
        await go_on.wait()
        return Answer({"done": True}, status=201, headers={"X-Made": "here"})

    web = Starlette(routes=[Route("/slow", slow, methods=["POST"]), *shop.jobs.routes])
    async with shop.client(web) as client:
        told = (await client.post("/slow")).json()
        working = asyncio.create_task(shop.app.drain())
        await began.wait()
        running = (await client.get(told["location"])).json()
        assert running["state"] == "running"
        early = await client.get(told["result_location"])
        assert early.status_code == 409
        assert early.headers["Content-Type"] == "application/problem+json"
        assert early.headers["Retry-After"]
        go_on.set()
        await working
        ended = (await client.get(told["location"])).json()
        assert ended["state"] == "succeeded"
        assert ended["result"]["body"] == {"done": True}
        result = await client.get(told["result_location"])
    assert result.status_code == 201
    assert result.json() == {"done": True}
    assert result.headers["X-Made"] == "here"


async def test_progress_is_shown_while_it_runs() -> None:
    shop = Shop()
    web = shop.starlette()
    async with shop.client(web) as client:
        told = (await client.post("/reports/1", json=1)).json()
        store = await shop.app.store()
        [claim] = await store.claim("default", "w", 1, timedelta(seconds=30))
        await store.heartbeat("w", [claim], timedelta(seconds=30), reports={claim.id: Report(0.25, "a quarter")})
        seen = (await client.get(told["location"])).json()
    assert (seen["progress"], seen["note"]) == (0.25, "a quarter")


# --- the same request again -----------------------------------------------------------------------------------


async def test_the_same_idempotency_key_means_the_same_job_also_when_it_has_ended() -> None:
    shop = Shop()
    once = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    async with shop.client(shop.starlette()) as client:
        first = await client.post("/reports/1", json={"a": 1}, headers=once)
        again = await client.post("/reports/1", json={"a": 1}, headers=once)
        await shop.app.drain()
        late = await client.post("/reports/1", json={"a": 1}, headers=once)
        other = await client.post("/reports/1", json={"a": 1}, headers={"Idempotency-Key": "another"})
    assert first.json()["id"] == again.json()["id"] == late.json()["id"] != other.json()["id"]
    assert late.status_code == 202
    assert late.json()["state"] == "succeeded"
    assert len(await shop.stored()) == 2


@pytest.mark.parametrize("second", [("/reports/1", {"a": 2}), ("/reports/2", {"a": 1})])
async def test_a_key_that_was_used_for_another_request_is_refused(second: tuple[str, Any]) -> None:
    shop = Shop()
    once = {"Idempotency-Key": "k"}
    async with shop.client(shop.starlette()) as client:
        await client.post("/reports/1", json={"a": 1}, headers=once)
        answer = await client.post(second[0], json=second[1], headers=once)
    assert answer.status_code == 422
    assert "another request" in answer.json()["detail"]
    assert len(await shop.stored()) == 1


# --- waiting --------------------------------------------------------------------------------------------------


async def test_prefer_wait_gives_the_result_itself() -> None:
    shop = Shop()
    async with shop.client(shop.fastapi()) as client:
        asked = asyncio.create_task(
            client.post("/orders/berlin?rush=true", json={"item": "tea"}, headers={"Prefer": "wait=30"})
        )
        await until(shop.stored)
        await shop.app.drain()
        answer = await asked
    assert answer.status_code == 201
    assert answer.json() == {"shop": "berlin", "item": "tea", "count": 1, "rush": True}
    assert answer.headers["Preference-Applied"] == "wait=30"
    [job] = await shop.stored()
    assert answer.headers["Content-Location"].endswith(str(job.id)), "where to find it again"


async def test_a_wait_that_ends_before_the_job_is_answered_202() -> None:
    shop = Shop(max_wait=0.01)
    async with shop.client(shop.fastapi()) as client:
        answer = await client.post("/orders/berlin", json={"item": "tea"}, headers={"Prefer": "wait=30"})
    assert answer.status_code == 202


async def test_a_thousand_pollers_share_one_look_at_the_store() -> None:
    shop = Shop()
    looks = 0
    store = await shop.app.store()
    find = store.find

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += 1
        return await find(*args, **kwargs)

    store.find = counted  # type: ignore[method-assign]
    async with shop.client(shop.starlette()) as client:
        told = [(await client.post("/reports/1", json=n)).json() for n in range(1000)]
        held = [asyncio.create_task(client.get(one["result_location"], headers={"Prefer": "wait=60"})) for one in told]
        await until(lambda: looks)
        await shop.app.drain()
        answers = await asyncio.gather(*held)
    assert sorted(answer.json()["body"] for answer in answers) == list(range(1000))
    assert looks < 200


# --- FastAPI --------------------------------------------------------------------------------------------------


async def test_fastapi_checks_what_it_always_checked() -> None:
    shop = Shop()
    async with shop.client(shop.fastapi()) as client:
        wrong = await client.post("/orders/berlin", json={"item": "tea", "count": "many"})
    assert wrong.status_code == 422
    assert await shop.stored() == []


async def test_an_http_exception_is_an_answer_not_a_failure() -> None:
    shop = Shop()
    async with shop.client(shop.fastapi()) as client:
        told = (await client.post("/orders/berlin", json={"item": "tea", "count": 101})).json()
        await shop.app.drain()
        result = await client.get(told["result_location"])
    assert result.status_code == 409
    assert result.json()["detail"] == "so many are not there"
    [job] = await shop.stored()
    assert (job.state, job.attempts) == (State.SUCCEEDED, 1)


async def test_the_openapi_document_shows_what_is_answered() -> None:
    shop = Shop()
    async with shop.client(shop.fastapi()) as client:
        document = (await client.get("/openapi.json")).json()
    order = document["paths"]["/orders/{shop}"]["post"]
    assert {"202", "200", "400", "413", "415", "422", "503"} <= order["responses"].keys()
    assert "preferred to wait" in order["responses"]["200"]["description"]
    assert order["responses"]["422"]["content"].keys() == {"application/json", "application/problem+json"}
    assert order["responses"]["202"]["headers"].keys() == {"Location", "Retry-After"}
    schema = order["responses"]["202"]["content"]["application/json"]["schema"]["$ref"]
    assert schema.rpartition("/")[2] in document["components"]["schemas"]
    assert {each["name"] for each in order["parameters"]} >= {"shop", "rush", "Idempotency-Key", "Prefer"}
    assert "dibs_request" not in json.dumps(document)
    assert {"/jobs/{id}", "/jobs/{id}/result"} <= document["paths"].keys()


async def test_the_openapi_document_shows_what_the_handler_returns_and_which_headers_it_sees() -> None:
    shop, web = Shop(), FastAPI()
    shop.jobs.install(web)

    @web.get("/orders/last")
    @shop.jobs.endpoint(headers=["X-Tenant"])
    async def last() -> list[Order]:
        return []

    async with shop.client(web) as client:
        document = (await client.get("/openapi.json")).json()
    told = document["paths"]["/orders/last"]["get"]
    answer = told["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer["items"] == {"$ref": "#/components/schemas/Order"}
    assert document["components"]["schemas"]["Order"]["required"] == ["item"]
    assert [each["name"] for each in told["parameters"]] == ["x-tenant", "Idempotency-Key", "Prefer"]
    assert not told["responses"].keys() & {"400", "413", "415"}, "it has no body"


async def test_dependencies_of_the_route_guard_it() -> None:
    shop = Shop()
    web = FastAPI()
    shop.jobs.install(web)

    def signed_in(request: Request) -> None:
        if request.headers.get("authorization") != "Bearer good":
            raise HTTPException(401)

    @web.post("/secret", dependencies=[Depends(signed_in)])
    @shop.jobs.endpoint
    async def secret() -> int:
        return 1

    async with shop.client(web) as client:
        assert (await client.post("/secret")).status_code == 401
        assert (await client.post("/secret", headers={"Authorization": "Bearer good"})).status_code == 202
    assert len(await shop.stored()) == 1


# --- refused --------------------------------------------------------------------------------------------------

BAD_BODIES = [
    (b"{", "application/json", 400),
    (b"\xff\xfe", "application/json", 400),
    (b"{}", "text/plain", 415),
    (b"{}", "", 415),
    (b'"' + b"x" * 2000 + b'"', "application/json", 413),
]


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
@pytest.mark.parametrize(("body", "kind", "status"), BAD_BODIES)
async def test_a_bad_body_is_refused_with_a_problem_document(
    framework: str, body: bytes, kind: str, status: int
) -> None:
    shop = Shop(max_bytes=1000)
    web, path = (shop.starlette(), "/reports/1") if framework == "starlette" else (shop.fastapi(), "/orders/b")
    async with shop.client(web) as client:
        answer = await client.post(path, content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert await shop.stored() == []


async def test_a_body_of_unknown_length_is_read_no_further_than_allowed() -> None:
    shop = Shop(max_bytes=1000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            yield b"x" * 100

    async with shop.client(shop.starlette()) as client:
        answer = await client.post("/reports/1", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert sent <= 1200


async def test_what_no_job_can_hold_is_refused() -> None:
    shop = Shop()
    deep = "[" * 100 + "]" * 100
    async with shop.client(shop.starlette()) as client:
        answer = await client.post("/reports/1", content=deep, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_bad_idempotency_key_is_refused(key: str) -> None:
    shop = Shop()
    async with shop.client(shop.starlette()) as client:
        answer = await client.post("/reports/1", json=1, headers={"Idempotency-Key": key})
    assert answer.status_code == 400


# --- whose job ------------------------------------------------------------------------------------------------


async def test_unknown_foreign_and_pruned_jobs_cannot_be_looked_at() -> None:
    shop = Shop()
    now = system_clock()

    @shop.app.task
    async def private() -> str:
        return "not for clients"

    async with shop.client(shop.starlette()) as client:
        other = await private.enqueue()
        await shop.app.drain()
        for text in ("nonsense", str(dibs.new_id()), str(UUID(int=4)), str(other.id)):
            for path in (f"/jobs/{text}", f"/jobs/{text}/result"):
                assert (await client.get(path)).status_code == 404, path
            assert (await client.delete(f"/jobs/{text}")).status_code == 404
        old = derived_id(now - timedelta(days=8), "x")
        assert (await client.get(f"/jobs/{old}")).status_code == 410
        assert (await client.get(f"/jobs/{old}/result")).status_code == 410


async def test_authorize_decides_who_sees_a_job() -> None:
    def own(request: Request, job: Job) -> bool:
        return bool(request.headers.get("x-user") == job.args["request"]["headers"].get("x-user"))

    shop = Shop(headers=["X-User"], authorize=own)

    @shop.jobs.endpoint
    async def mine(request: JobRequest) -> int:
        return 1

    web = Starlette(routes=[Route("/mine", mine, methods=["POST"]), *shop.jobs.routes])
    async with shop.client(web) as client:
        told = (await client.post("/mine", headers={"X-User": "ann"})).json()
        assert (await client.get(told["location"], headers={"X-User": "ann"})).status_code == 200
        assert (await client.get(told["location"], headers={"X-User": "bob"})).status_code == 404
        assert (await client.delete(told["location"], headers={"X-User": "bob"})).status_code == 404
    [job] = await shop.stored()
    assert job.state is State.QUEUED


# --- ends -----------------------------------------------------------------------------------------------------


async def test_a_failed_job_answers_500_and_keeps_its_error_to_itself() -> None:
    shop = Shop()

    @shop.jobs.endpoint(max_attempts=1)
    async def broken(request: JobRequest) -> int:
        raise RuntimeError("password=s3cret")

    web = Starlette(routes=[Route("/broken", broken, methods=["POST"]), *shop.jobs.routes])
    async with shop.client(web) as client:
        told = (await client.post("/broken")).json()
        await shop.app.drain()
        result = await client.get(told["result_location"])
        status = await client.get(told["location"])
    assert result.status_code == 500
    assert status.json()["state"] == "failed"
    assert "s3cret" not in result.text + status.text


async def test_a_job_can_be_cancelled_once() -> None:
    shop = Shop()
    async with shop.client(shop.starlette()) as client:
        told = (await client.post("/reports/1", json=1)).json()
        assert (await client.delete(told["location"])).json()["state"] == "cancelled"
        assert (await client.delete(told["location"])).status_code == 409
        assert (await client.get(told["result_location"])).status_code == 409


async def test_each_response_can_be_replaced() -> None:
    class Mine(Responses):
        def accepted(self, request: Request, job: Job, location: str) -> Response:
            return JSONResponse({"ticket": str(job.id)}, 201)

        def unknown(self, request: Request, id: str) -> Response:
            return JSONResponse({"sorry": id}, 404)

    shop = Shop(responses=Mine())
    async with shop.client(shop.starlette()) as client:
        answer = await client.post("/reports/1", json=1)
        missing = await client.get("/jobs/nonsense")
    assert answer.status_code == 201
    assert answer.json().keys() == {"ticket"}
    assert missing.json() == {"sorry": "nonsense"}


async def test_plain_functions_and_json_responses_are_handlers_too() -> None:
    shop = Shop()

    @shop.jobs.endpoint
    def plain(request) -> Response:  # type: ignore[no-untyped-def]
        return JSONResponse({"made": request.method}, 203, {"X-Plain": "yes"})

    web = Starlette(routes=[Route("/plain", plain, methods=["PUT"]), *shop.jobs.routes])
    async with shop.client(web) as client:
        told = (await client.put("/plain")).json()
        await shop.app.drain()
        result = await client.get(told["result_location"])
    assert (result.status_code, result.json(), result.headers["X-Plain"]) == (203, {"made": "PUT"}, "yes")


async def test_what_cannot_be_an_endpoint_is_said_when_it_is_declared() -> None:
    shop = Shop()

    async def raw(request: Request) -> None: ...
    async def starred(*args: int) -> None: ...
    async def twice(one: JobRequest, two: JobRequest) -> None: ...

    for wrong, why in ((raw, "JobRequest"), (starred, "args"), (twice, "one and two")):
        with pytest.raises(dibs.ConfigurationError, match=why):
            shop.jobs.endpoint(wrong)
    with pytest.raises(dibs.ConfigurationError, match="process"):
        shop.jobs.endpoint(executor="process")(lambda request: None)
    with pytest.raises(dibs.ConfigurationError, match="slash"):
        Endpoints(shop.app, path="jobs/")


async def test_what_clients_see_of_a_job_has_no_arguments_and_no_errors() -> None:
    assert not {"args", "errors", "worker", "meta"} & set(JobView.__struct_fields__)
