"""Endpoints as jobs: a request that takes minutes is answered at once, with where to look for its result."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Unpack, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dibs import limits
from dibs.app import App
from dibs.clock import system_clock
from dibs.declaring import Declared
from dibs.errors import ConfigurationError, Refused, StoreUnavailable
from dibs.http import fastapi
from dibs.http.problems import Problem
from dibs.http.request import capture, fingerprint, idempotency_key, patience, read_json
from dibs.http.responses import Responses
from dibs.http.shape import Shape
from dibs.http.waiters import Waiters
from dibs.ids import made_at
from dibs.job import FINISHED, Job, NewJob, State
from dibs.signals import Delay, span
from dibs.task import Task

MARK = "endpoint"
"""In the meta of a job: which endpoint made it. Only such jobs can be looked at by clients."""
FINGERPRINT = "fingerprint"

Authorize = Callable[[Request, Job], bool | Awaitable[bool]]
"""Whether this client may see that job, and cancel it."""
View = Callable[..., Awaitable[Response]]


class Endpoints:
    """Marks endpoints of a Starlette or FastAPI application whose requests become jobs of an app.

    ``path``: where clients look at their jobs. ``headers``: the names of those that jobs keep; credentials and cookies
    only if they are named here. ``max_bytes``: the largest body. ``max_wait``: the longest that ``Prefer: wait=…`` is
    granted. ``idempotent_for``: for how long the same ``Idempotency-Key`` means the same job. ``authorize`` is asked
    before anybody is shown a job. ``responses``: to answer otherwise.
    """

    def __init__(
        self,
        app: App,
        *,
        path: str = "/jobs",
        headers: Sequence[str] = (),
        max_bytes: int = limits.DEFAULT.max_bytes,
        max_wait: Delay = 60,
        idempotent_for: Delay = timedelta(days=1),
        authorize: Authorize | None = None,
        responses: Responses | None = None,
    ) -> None:
        if not path.startswith("/") or path.endswith("/"):
            raise ConfigurationError(f"path must begin with a slash and not end with one, like /jobs, not {path!r}")
        self.app = app
        self.responses = responses or Responses()
        self._path = path
        self._headers = tuple(name.lower() for name in headers)
        self._max_bytes = max_bytes
        self._max_wait = span(max_wait).total_seconds()
        self._idempotent_for = span(idempotent_for)
        self._authorize = authorize
        self._waiters: WeakKeyDictionary[asyncio.AbstractEventLoop, Waiters] = WeakKeyDictionary()

    # --- for whoever writes the application -----------------------------------------------------------------

    @overload
    def endpoint(self, function: Callable[..., Any], /) -> View: ...
    @overload
    def endpoint(
        self, *, headers: Sequence[str] | None = None, **options: Unpack[Declared]
    ) -> Callable[[Callable[..., Any]], View]: ...
    def endpoint(  # type: ignore[misc]
        self, function: Callable[..., Any] | None = None, /, *, headers: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """Make a task of a handler, and an endpoint that enqueues it: ``@jobs.endpoint``, under the route's decorator.

        In Starlette the handler takes a ``JobRequest``; in FastAPI it has the parameters that it always had, and may
        have a ``JobRequest`` as well. What it returns is the body of the result; an ``Answer``, a JSON response or an
        HTTPException chooses the status code, too. ``options`` are those of ``@app.task``.
        """
        chosen = self._headers if headers is None else tuple(name.lower() for name in headers)

        def mark(function: Callable[..., Any]) -> View:
            return self._mark(function, chosen, options)

        return mark if function is None else mark(function)

    @property
    def routes(self) -> list[BaseRoute]:
        """Where clients look at their jobs: to be added to the routes of a Starlette application."""
        one = f"{self._path}/{{id}}"
        return [
            Route(one, self._status, methods=["GET"], name="dibs-job"),
            Route(one, self._cancel, methods=["DELETE"], name="dibs-job-cancel"),
            Route(f"{one}/result", self._result, methods=["GET"], name="dibs-job-result"),
        ]

    def install(self, web: Starlette) -> None:
        """Add the routes to an application; of FastAPI's also what its OpenAPI document says of them."""
        web.router.routes.extend(self.routes)
        if hasattr(web, "openapi"):
            fastapi.describe(web, self._path)
            fastapi.guard(web, self._max_bytes)

    # --- a request becomes a job ----------------------------------------------------------------------------

    def _mark(self, function: Callable[..., Any], headers: tuple[str, ...], options: dict[str, Any]) -> View:
        shape = Shape.of(function)
        if options.get("executor") == "process":
            raise ConfigurationError(
                f"{shape.name}: an endpoint cannot run in a process: let it enqueue a task that does"
            )
        task = self.app.task(**{"name": shape.name, **options})(shape.handler())

        @functools.wraps(function)
        async def view(*given: Request, **values: Any) -> Response:
            request: Request = given[0] if given else values.pop(fastapi.REQUEST)
            try:
                return await self._accept(request, task, shape, headers, values if not given else None)
            except Problem as problem:
                return self.responses.refused(request, problem)

        view.__signature__ = shape.outside(fastapi.REQUEST)  # type: ignore[attr-defined]
        view.task = task  # type: ignore[attr-defined]
        fastapi.mark(view, function, headers)
        return view

    async def _accept(
        self,
        request: Request,
        task: Task[..., Any],
        shape: Shape,
        headers: tuple[str, ...],
        values: dict[str, Any] | None,
    ) -> Response:
        body = await read_json(request, self._max_bytes)
        if shape.wants_request is not None:
            values = {**(values or {}), shape.wants_request: capture(request, body, headers)}
        try:
            job = self._job(request, task.job(**(values or {})))
            [sent] = await self.app.enqueue([job])
            stored = _as_stored(job) if sent.created else await self.app.get(sent.id)
        except Refused as problem:
            raise Problem(422, "The request cannot become a job", str(problem)) from None
        except StoreUnavailable:
            raise Problem(503, "Jobs cannot be stored now", "try again later", {"Retry-After": "5"}) from None
        if stored is None:  # it was there a moment ago
            return self.responses.gone(request, str(sent.id))
        if not sent.created and stored.meta.get(FINGERPRINT) != job.meta[FINGERPRINT]:
            raise Problem(422, "Another request", "this Idempotency-Key was used for another request: send a new one")
        return await self._answer(request, stored)

    def _job(self, request: Request, job: NewJob) -> NewJob:
        print_ = fingerprint(request, job.args)
        job = replace(job, meta={**job.meta, MARK: job.task, FINGERPRINT: print_})
        key = idempotency_key(request, job.task)
        return job if key is None else replace(job, key=key, unique_for=self._idempotent_for)

    async def _answer(self, request: Request, job: Job) -> Response:
        """202, or, if the client prefers to wait and it ends in time, its result."""
        wait = patience(request, self._max_wait)
        if wait:
            ended = await self._ended(job, wait)
            if ended is not None:
                answer = _applied(self._outcome(request, ended), wait)
                answer.headers.setdefault("Content-Location", self._location(request, job))
                return answer
            job = await self.app.get(job.id) or job  # it may run by now
        return self.responses.accepted(request, job, self._location(request, job))

    async def _ended(self, job: Job, seconds: float) -> Job | None:
        if job.state in FINISHED:
            return job
        loop = asyncio.get_running_loop()
        waiters = self._waiters.get(loop)
        if waiters is None:
            waiters = self._waiters[loop] = Waiters(self.app.store)
        return await waiters.ended(job.id, seconds)

    def _location(self, request: Request, job: Job) -> str:
        return f"{request.scope.get('root_path', '')}{self._path}/{job.id}"

    # --- looking at it --------------------------------------------------------------------------------------

    async def _status(self, request: Request) -> Response:
        found = await self._found(request)
        if isinstance(found, Response):
            return found
        wait = patience(request, self._max_wait)
        if wait and found.state not in FINISHED:
            found = await self._ended(found, wait) or await self.app.get(found.id) or found
        return _applied(self.responses.status(request, found, self._location(request, found)), wait)

    async def _result(self, request: Request) -> Response:
        found = await self._found(request)
        if isinstance(found, Response):
            return found
        wait = patience(request, self._max_wait)
        if wait and found.state not in FINISHED:
            found = await self._ended(found, wait) or found
        return _applied(self._outcome(request, found), wait)

    async def _cancel(self, request: Request) -> Response:
        found = await self._found(request)
        if isinstance(found, Response):
            return found
        if not await self.app.handle(found.id).cancel():
            return Problem(409, "The job has ended", f"it is {found.state}: there is nothing to cancel").response()
        now = await self.app.get(found.id) or found
        return self.responses.status(request, now, self._location(request, now))

    def _outcome(self, request: Request, job: Job) -> Response:
        match job.state:
            case State.SUCCEEDED:
                return self.responses.result(request, job)
            case State.FAILED:
                return self.responses.failed(request, job)
            case State.CANCELLED:
                return self.responses.cancelled(request, job)
        return self.responses.unfinished(request, job)

    async def _found(self, request: Request) -> Job | Response:
        """The job that the client asks for, if it is one of an endpoint and this client may see it."""
        text = request.path_params["id"]
        try:
            id = UUID(text)
        except ValueError:
            return self.responses.unknown(request, text)
        try:
            job = await self.app.get(id)
        except StoreUnavailable:
            return Problem(503, "Jobs cannot be read now", "try again later", {"Retry-After": "5"}).response()
        if job is None:
            return self.responses.gone(request, text) if self._too_old(id) else self.responses.unknown(request, text)
        if MARK not in job.meta or not await self._may_see(request, job):
            return self.responses.unknown(request, text)
        return job

    async def _may_see(self, request: Request, job: Job) -> bool:
        if self._authorize is None:
            return True
        allowed = self._authorize(request, job)
        return await allowed if inspect.isawaitable(allowed) else bool(allowed)

    def _too_old(self, id: UUID) -> bool:
        """Whether a job of this id would not be kept any more: an id tells when it was made."""
        kept, made = self.app.retention, made_at(id)
        if kept is None or made is None:
            return False
        spans = [each for each in (kept.succeeded, kept.failed, kept.cancelled) if each is not None]
        return bool(spans) and system_clock() - made >= min(spans)


def _as_stored(job: NewJob) -> Job:
    """A job as the store has it that was told of it just now; asking would cost another call."""
    now = system_clock()
    return Job(
        id=job.id,
        queue=job.queue,
        task=job.task,
        args=job.args,
        state=State.QUEUED,
        priority=job.priority,
        run_at=job.run_at or now,
        created_at=now,
        attempts=0,
        max_attempts=job.max_attempts,
        epoch=0,
        key=job.key,
        meta=job.meta,
    )


def _applied(response: Response, wait: float) -> Response:
    if wait:
        response.headers["Preference-Applied"] = f"wait={wait:g}"
    return response
