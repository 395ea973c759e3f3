"""The OpenAPI 3.1 document, made of the operations and of the very types that they take and answer."""

from functools import cache
from typing import Any

import msgspec

from dibs.http import problems
from dibs.http.api.operations import Operation
from dibs.http.api.table import OPERATIONS
from dibs.http.problems import MEDIA_TYPE
from dibs.version import __version__

REFERENCE = "#/components/schemas/{name}"
PROBLEM = problems.schema(count={"type": "integer", "description": "With 409: how many jobs it would change."})
MEANING = {
    400: "The request does not fit this document.",
    401: "There is no token with it, or an unknown one.",
    403: "A reader may not change anything; or another site sent it; or it does not come from this machine.",
    404: "There is no such thing.",
    405: "Not with this method.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "It is refused: the detail says why.",
    429: "Too many requests: wait for Retry-After seconds.",
    503: "The store cannot be reached.",
}


def document(root: str = "") -> dict[str, Any]:
    """The document, for the API below ``root``."""
    return {**_document(), "servers": [{"url": root or "/"}]}


@cache
def _document() -> dict[str, Any]:
    bodies = [kind for each in OPERATIONS for kind in (each.answer, each.body) if kind is not None]
    queries = [each.query for each in OPERATIONS if each.query is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template=REFERENCE)
    _, asked = msgspec.json.schema_components(queries, ref_template=REFERENCE)
    of = {str(kind): schema for kind, schema in zip(bodies, schemas, strict=True)}
    asked_for = {kind.__name__: asked[kind.__name__] for kind in queries}
    shared = {name: schema for name, schema in asked.items() if name not in asked_for}
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, of, asked_for)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dibs",
            "version": __version__,
            "description": "Look at jobs, queues, workers, schedules and flows, and change them.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**shared, **components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Operation, of: dict[str, Any], asked_for: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.segments[1]],
        "parameters": [*_places(each), *_parameters(each, asked_for)],
        "responses": _responses(each, of),
    }
    if each.body is not None:
        content = {"application/json": {"schema": of[str(each.body)]}}
        made["requestBody"] = {"required": not each.body_optional, "content": content}
    return {name: value for name, value in made.items() if value != []}


def _places(each: Operation) -> list[dict[str, Any]]:
    schemas = {"id": {"type": "string", "format": "uuid"}, "name": {"type": "string", "minLength": 1, "maxLength": 200}}
    names = [part.strip("{}") for part in each.segments if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names]


def _parameters(each: Operation, asked_for: dict[str, Any]) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    schema = asked_for[each.query.__name__]
    return [{"name": name, "in": "query", "schema": kind} for name, kind in schema["properties"].items()]


def _responses(each: Operation, of: dict[str, Any]) -> dict[str, Any]:
    media = "text/event-stream" if each.stream else "application/json"
    schema = {"type": "string"} if each.stream else of[str(each.answer)]
    good = {each.status: each.summary, **each.also}
    made: dict[str, Any] = {
        str(status): {"description": meaning, "content": {media: {"schema": schema}}}
        for status, meaning in good.items()
    }
    problem = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}}}
    meanings = {status: meaning for status, meaning in MEANING.items() if status in _statuses(each)}
    if each.conflicts:
        meanings[409] = each.conflicts
    for status, meaning in sorted(meanings.items()):
        made[str(status)] = {"description": meaning, "content": problem}
    return made


def _statuses(each: Operation) -> set[int]:
    always = {400, 401, 403, 422, 429, 503}
    there = {404} if "{" in each.path else set()
    return always | there | ({413, 415} if each.changes else set())
