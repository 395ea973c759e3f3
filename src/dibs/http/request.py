"""What a job keeps of the request that made it."""

import hashlib
from collections.abc import Collection
from typing import Any

import msgspec
from starlette.requests import Request

from dibs.http.problems import Problem

_JSON_SCALARS = (str, int, float, bool, type(None))


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as it is kept in a job: for a handler that wants to see it."""

    method: str
    path: str
    path_params: dict[str, Any] = {}
    query: tuple[tuple[str, str], ...] = ()
    """As it was sent: a name may come several times."""
    headers: dict[str, str] = {}
    """Those that the endpoint chose, in lower case."""
    body: Any = None
    """The JSON that was sent; None if there was none."""

    @property
    def query_params(self) -> dict[str, str]:
        """The query by name; of a name that came several times the last."""
        return dict(self.query)


async def read_json(request: Request, most: int) -> Any:
    """The body as JSON, None if there is none; Problem if it is no JSON or has more bytes than allowed."""
    text = await _read(request, most)
    if not text:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Problem(415, "Send JSON", f"the body must be application/json, not {kind or 'of no stated type'}")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Problem(400, "The body is no JSON", str(problem)) from None


async def _read(request: Request, most: int) -> bytes:
    """The body, read no further than it may be long."""
    too_large = Problem(413, "The body is too large", f"this endpoint takes at most {most:,} bytes")
    if int(request.headers.get("content-length") or 0) > most:
        raise too_large
    if hasattr(request, "_body"):  # read before, by a framework that has checked it
        return await request.body()
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def capture(request: Request, body: Any, chosen: Collection[str]) -> JobRequest:
    """The request with the headers that were chosen."""
    params = request.path_params.items()
    return JobRequest(
        method=request.method,
        path=request.url.path,
        path_params={name: value if isinstance(value, _JSON_SCALARS) else str(value) for name, value in params},
        query=tuple(request.query_params.multi_items()),
        headers={name: request.headers[name] for name in chosen if name in request.headers},
        body=body,
    )


def idempotency_key(request: Request, task: str) -> str | None:
    """The key of the job for a request that may come again; None for one that says nothing of it."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    if not 1 <= len(given) <= 255:
        raise Problem(400, "Idempotency-Key is too long or empty", "send 1 to 255 characters, a UUID for example")
    digest = hashlib.sha256("\0".join((task, given)).encode()).hexdigest()
    return f"http:{digest}"


def fingerprint(request: Request, args: Any) -> str:
    """Tells two requests apart that come with the same Idempotency-Key."""
    told = msgspec.json.encode((request.method, request.url.path, request.url.query, args), order="sorted")
    return hashlib.sha256(told).hexdigest()


def patience(request: Request, longest: float) -> float:
    """How many seconds ``Prefer: wait=10`` asks to wait, as far as that is allowed; 0 if it does not."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.strip().lower() == "wait" and value.strip().strip('"').isdigit():
            return min(float(value.strip().strip('"')), longest)
    return 0.0
