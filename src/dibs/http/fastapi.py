"""What FastAPI is told about endpoints that are jobs. FastAPI itself is not imported: it may not be there."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.http import problems
from dibs.http.problems import MEDIA_TYPE, Problem
from dibs.http.request import read_json
from dibs.http.responses import JobView

REQUEST = "dibs_request"
"""The parameter through which FastAPI brings the request."""
_MARK = "__dibs_endpoint__"


def mark(view: Callable[..., Any]) -> None:
    """Remember that this endpoint is a job."""
    setattr(view, _MARK, True)


def _marked(routes: Any) -> Iterator[Any]:
    for route in routes:
        if getattr(getattr(route, "endpoint", None), _MARK, False):
            yield route
        yield from _marked(getattr(route, "routes", None) or ())


# --- bodies ---------------------------------------------------------------------------------------------------


def guard(web: Starlette, most: int) -> None:
    """Have bodies checked before FastAPI reads them: how long they are, and that they are JSON."""
    web.add_middleware(_Guard, web=web, most=most)


class _Guard:
    """Wraps the marked routes when the first request comes: by then they are all there."""

    def __init__(self, app: ASGIApp, web: Starlette, most: int) -> None:
        self._app = app
        self._web = web
        self._most = most
        self._wrapped: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in _marked(self._web.routes):
                if id(route) not in self._wrapped:
                    self._wrapped.add(id(route))
                    route.app = _checked(route.app, self._most)
        await self._app(scope, receive, send)


def _checked(app: ASGIApp, most: int) -> ASGIApp:
    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[Message] = []

        async def record() -> Message:
            message = await receive()
            parts.append(message)
            return message

        try:
            await read_json(Request(scope, record), most)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        again = iter(parts)

        async def replay() -> Message:
            return next(again, None) or await receive()

        await app(scope, replay, send)

    return checked


# --- the OpenAPI document -------------------------------------------------------------------------------------


def describe(web: Any, path: str) -> None:
    """Have the application's OpenAPI document say what marked routes answer, and where jobs are looked at."""
    original = web.openapi

    def openapi() -> dict[str, Any]:
        fresh = web.openapi_schema is None
        document: dict[str, Any] = original()
        if fresh:
            _extend(document, web, path)
        return document

    web.openapi = openapi


def _extend(document: dict[str, Any], web: Any, path: str) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    (view,), parts = msgspec.json.schema_components([JobView], ref_template="#/components/schemas/{name}")
    schemas |= {**parts, "Problem": problems.schema()}
    paths = document.setdefault("paths", {})
    for route in _marked(web.routes):
        for method in route.methods:
            operation = paths.get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _as_job(operation, view)
    paths[f"{path}/{{id}}"] = _looking(view)
    paths[f"{path}/{{id}}/result"] = _fetching()


def _as_job(operation: dict[str, Any], view: Any) -> None:
    kept = {code: answer for code, answer in operation["responses"].items() if code not in ("200", "201")}
    location = {"description": "where to look at the job", "schema": {"type": "string"}}
    operation["responses"] = {
        "202": {
            "description": "The request has become a job",
            "headers": {"Location": location, "Retry-After": _SECONDS},
            "content": {"application/json": {"schema": view}},
        },
        **kept,
        "400": _problem("The body is no JSON"),
        "413": _problem("The body is too large"),
        "415": _problem("The body is not application/json"),
        "503": _problem("Jobs cannot be stored now"),
    }
    operation.setdefault("parameters", []).extend([_IDEMPOTENCY, _PREFER])


def _looking(view: Any) -> dict[str, Any]:
    found = {"description": "The job as it is", "content": {"application/json": {"schema": view}}}
    missing = {"404": _problem("There is no such job"), "410": _problem("It is not kept any more")}
    return {
        "parameters": [_ID],
        "get": {
            "summary": "How a job is",
            "operationId": "dibs_job",
            "tags": ["jobs"],
            "parameters": [_PREFER],
            "responses": {"200": found, **missing},
        },
        "delete": {
            "summary": "Cancel a job",
            "operationId": "dibs_job_cancel",
            "tags": ["jobs"],
            "responses": {"200": found, **missing, "409": _problem("It has ended")},
        },
    }


def _fetching() -> dict[str, Any]:
    return {
        "parameters": [_ID],
        "get": {
            "summary": "The result of a job, with the status code that its handler chose",
            "operationId": "dibs_job_result",
            "tags": ["jobs"],
            "parameters": [_PREFER],
            "responses": {
                "200": {"description": "What the handler answered", "content": {"application/json": {"schema": {}}}},
                "404": _problem("There is no such job"),
                "409": _problem("It has not ended, or was cancelled"),
                "410": _problem("It is not kept any more"),
                "500": _problem("The job failed"),
            },
        },
    }


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
_SECONDS = {"description": "seconds after which to look again", "schema": {"type": "integer"}}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key again means the same job.",
    "schema": {"type": "string", "maxLength": 255},
}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "wait=10 waits up to ten seconds for the end of the job.",
    "schema": {"type": "string"},
}
