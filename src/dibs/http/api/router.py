"""Requests in, answers out: finds the operation, lets it be done, and answers in JSON, problems too."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dibs.errors import DibsError, FlowUnknown, JobUnknown, Refused, ScheduleUnknown, StoreUnavailable
from dibs.http.api import reading
from dibs.http.api.document import document
from dibs.http.api.operations import Call, Operation
from dibs.http.api.sse import stream
from dibs.http.api.table import OPERATIONS, batch_status
from dibs.http.problems import Problem
from dibs.http.security import identity
from dibs.http.service import NotFound, Service
from dibs.http.service.batches import TooMany, Unconfirmed
from dibs.http.service.data import Batch
from dibs.redaction import text_without_secrets

log = logging.getLogger("dibs.http")

DOCUMENT = ("api", "openapi.json")
JSON = "application/json"


class API:
    """The API as an ASGI application, below ``/api``. To be put behind a ``Guard``."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Problem as problem:
            response = problem.response()
        except DibsError as problem:
            response = _problem(problem).response()
        except Exception:
            log.exception("%s %s", request.method, request.url.path)
            response = Problem(500, "Something is wrong here", "the log of the server says what").response()
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        who, parts = identity(request.scope), reading.segments(request.scope)
        if parts == DOCUMENT:
            if request.method != "GET":
                raise _not_allowed({"GET"})
            root = str(request.scope.get("root_path", ""))
            return Response(msgspec.json.encode(document(root)), media_type=JSON)
        operation, path = _find(request.method, parts)
        call = Call(
            self.service,
            who,
            reading.check_path(path),
            reading.query_of(operation.query, request.scope.get("query_string", b"")),
            await reading.body_of(operation, request) if operation.changes else None,
        )
        answer = await operation.handler(call)
        if operation.stream:
            return await _streamed(answer)
        status = batch_status(answer) if operation.also and isinstance(answer, Batch) else operation.status
        return Response(msgspec.json.encode(answer), status, _headers(answer, status, request), JSON)


def _find(method: str, parts: tuple[str, ...]) -> tuple[Operation, dict[str, str]]:
    allowed = set()
    for operation in OPERATIONS:
        path = reading.path_of(operation, parts)
        if path is not None:
            if operation.method == method:
                return operation, path
            allowed.add(operation.method)
    if allowed:
        raise _not_allowed(allowed)
    raise Problem(404, "There is no such page", "/api/openapi.json says what there is")


def _not_allowed(allowed: set[str]) -> Problem:
    methods = ", ".join(sorted(allowed))
    return Problem(405, "Not like that", f"this takes {methods}", {"Allow": methods})


def _headers(answer: Any, status: int, request: Request) -> dict[str, str]:
    if status == 202 and isinstance(answer, Batch):
        return {"Location": f"{request.scope.get('root_path', '')}/api/batches/{answer.id}"}
    return {}


async def _streamed(events: AsyncIterator[Any]) -> Response:
    first = await anext(events)  # before anything is sent: a refusal is a problem document, not a broken stream
    return StreamingResponse(stream(first, events), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _problem(error: DibsError) -> Problem:
    said = text_without_secrets(str(error))
    match error:
        case Unconfirmed():
            return Problem(409, "So many have to be confirmed", said, more={"count": error.count})
        case NotFound() | ScheduleUnknown() | FlowUnknown() | JobUnknown():
            return Problem(404, "There is no such thing", said)
        case TooMany():
            return Problem(429, "Too much at once", said, {"Retry-After": "5"})
        case Refused():
            return Problem(422, "This is refused", said)
        case StoreUnavailable():
            # What it says names hosts and users: it is for the log.
            return Problem(503, "The store cannot be reached", "try again later", {"Retry-After": "5"})
    return Problem(500, "This cannot be done", type(error).__name__)
