"""What FastAPI is told about endpoints that are jobs. FastAPI itself is not imported: it may not be there."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_type_hints

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.http import problems
from dibs.http.problems import MEDIA_TYPE, Problem
from dibs.http.request import read_json
from dibs.http.responses import Answer, JobView

REQUEST = "dibs_request"
"""The parameter through which FastAPI brings the request."""
_MARK = "__dibs_endpoint__"


class Marked(NamedTuple):
    """What the document tells of an endpoint that is a job."""

    handler: Callable[..., Any]
    headers: tuple[str, ...]
    """Those that the job gets to see."""


def mark(view: Callable[..., Any], handler: Callable[..., Any], headers: tuple[str, ...]) -> None:
    """Remember that this endpoint is a job."""
    setattr(view, _MARK, Marked(handler, headers))


def _marked(routes: Any) -> Iterator[Any]:
    for route in routes:
        if getattr(getattr(route, "endpoint", None), _MARK, None) is not None:
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
                marked: Marked = getattr(route.endpoint, _MARK)
                _as_job(operation, view, marked.headers, _answer(marked.handler, schemas))
    paths[f"{path}/{{id}}"] = _looking(view)
    paths[f"{path}/{{id}}/result"] = _fetching()


def _as_job(operation: dict[str, Any], view: Any, headers: tuple[str, ...], answer: dict[str, Any]) -> None:
    kept = {code: each for code, each in operation["responses"].items() if code not in ("200", "201", "422")}
    location = {"description": "where to look at the job", "schema": {"type": "string"}}
    of_body = {
        "400": _problem("The body is no JSON"),
        "413": _problem("The body is too large"),
        "415": _problem("The body is not application/json"),
    }
    unfit = operation["responses"].get("422", {"content": {}})
    reused = _problem("The arguments do not fit, or the Idempotency-Key was used for another request")
    operation["responses"] = {
        "202": {
            "description": "The request has become a job",
            "headers": {"Location": location, "Retry-After": _SECONDS},
            "content": {"application/json": {"schema": view}},
        },
        "200": {
            "description": "What the handler answered, if the client preferred to wait and it ended in time; with the "
            "status code that it chose",
            "headers": {"Content-Location": location, "Preference-Applied": _APPLIED},
            "content": {"application/json": {"schema": answer}},
        },
        **kept,
        **(of_body if "requestBody" in operation else {}),
        "422": {**reused, "content": {**unfit["content"], **reused["content"]}},
        "503": _problem("Jobs cannot be stored now"),
    }
    given = operation.setdefault("parameters", [])
    declared = {each["name"].lower() for each in given if each.get("in") == "header"}
    given += [_header(name) for name in headers if name not in declared]
    given += [_IDEMPOTENCY, _PREFER]


def _answer(handler: Callable[..., Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of what the handler says that it returns; of anything, if that is no type for JSON."""
    try:
        from pydantic import TypeAdapter  # it comes with FastAPI

        told = get_type_hints(handler)["return"]
        if isinstance(told, type) and issubclass(told, Answer | Response):
            return {}
        schema: dict[str, Any] = TypeAdapter(told).json_schema(ref_template="#/components/schemas/{model}")
    except Exception:  # whatever the type is: the document is made without it
        return {}
    for name, part in schema.pop("$defs", {}).items():
        schemas.setdefault(name, part)
    return schema


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


def _header(name: str) -> dict[str, Any]:
    about = "The job gets to see it."
    return {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
_APPLIED = {"description": "for how long it was waited", "schema": {"type": "string"}}
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
