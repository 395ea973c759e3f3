"""Reading requests: paths, queries, bodies. What does not fit the document is a problem, with what is wrong with it."""

from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from dibs.http.api.operations import Operation
from dibs.http.problems import Problem
from dibs.http.security import inner_path
from dibs.limits import NAME_LENGTH

FIELDS = 2_500
"""So many parameters a query has, at most: a little more than the document lets it have."""


def segments(scope: Scope) -> tuple[str, ...]:
    """The parts of the path. From what was sent, not from what a server made of it: a name may hold a slash."""
    path = inner_path(scope)
    raw = scope.get("raw_path")
    if not raw:
        return tuple(path.strip("/").split("/"))
    wanted = path.count("/")
    parts = raw.partition(b"?")[0].split(b"/")
    try:
        decoded = [unquote_to_bytes(part).decode("utf-8") for part in parts]
    except UnicodeDecodeError:
        raise Problem(404, "There is no such page", "the path is no UTF-8") from None
    # Without what the application is mounted below.
    below = str(scope.get("root_path", "")).count("/")
    found = tuple(decoded[1 + below :]) if wanted else ("",)
    return found[:-1] if len(found) > 1 and found[-1] == "" else found


def path_of(operation: Operation, parts: tuple[str, ...]) -> dict[str, str] | None:
    """What stands in the places of a path; None if it is another path."""
    wanted = operation.segments
    if len(parts) != len(wanted):
        return None
    found = {}
    for want, part in zip(wanted, parts, strict=True):
        if want.startswith("{"):
            found[want.strip("{}")] = part
        elif want != part:
            return None
    return found


def check_path(found: dict[str, str]) -> dict[str, str]:
    """Ids are UUIDs, names are not endless: anything else is nowhere."""
    if "id" in found:
        try:
            UUID(found["id"])
        except ValueError:
            raise Problem(404, "There is no such thing", "an id is a UUID") from None
    if not 1 <= len(found.get("name", "-")) <= NAME_LENGTH:
        raise Problem(404, "There is no such thing", f"a name has 1 to {NAME_LENGTH} characters")
    return found


def query_of(kind: type[msgspec.Struct] | None, query: bytes) -> Any:
    """The parameters, each of the type that the document says; an unknown one is refused."""
    try:
        pairs = parse_qsl(query.decode("ascii"), True, encoding="utf-8", errors="strict", max_num_fields=FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "The query cannot be read", f"at most {FIELDS} parameters, in UTF-8") from None
    if kind is None:
        if pairs:
            raise Problem(400, "There is no such parameter", f"{pairs[0][0][:50]!r} means nothing here")
        return None
    types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in types and _is_list(types[name]):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Problem(400, "A parameter comes twice", f"{name[:50]!r} has one value")
        elif name in types and types[name] is bool:
            given[name] = {"true": True, "false": False}.get(value, value)
        else:
            given[name] = int(value) if name in types and _is_int(types[name]) and _whole(value) else value
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as problem:
        raise Problem(400, "The query does not fit", str(problem)[:300]) from None


def _is_list(kind: Any) -> bool:
    bare = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    return get_origin(bare) is tuple


def _is_int(kind: Any) -> bool:
    return (get_args(kind)[0] if hasattr(kind, "__metadata__") else kind) is int


def _whole(value: str) -> bool:
    return len(value) <= 18 and value.isascii() and value.removeprefix("-").isdigit()


async def body_of(operation: Operation, request: Request) -> Any:
    """The body, of the type that the document says."""
    body = await request.body()
    if operation.body is None:
        if body.strip() not in (b"", b"{}"):
            raise Problem(400, "There is nothing to say here", "send no body")
        return None
    if not body and operation.body_optional:
        return None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Problem(415, "The body is no JSON", "send it with Content-Type: application/json")
    try:
        return msgspec.json.decode(body, type=operation.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as problem:
        said = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)[:300]
        # To JSON Schema 7.0 is an integer, so it fits the document. It is refused all the same.
        status = 422 if said.startswith("Expected `int") and "got `float`" in said else 400
        raise Problem(status, "The body does not fit", said) from None
