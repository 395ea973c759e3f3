"""The dashboard's routes, and what is answered when something is wrong."""

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from dibs.errors import DibsError, Refused, ScheduleUnknown, StoreUnavailable
from dibs.http.dashboard.actions import Actions
from dibs.http.dashboard.pages import Pages
from dibs.http.problems import Problem
from dibs.http.service.batches import TooMany
from dibs.http.service.service import NotFound, Service

View = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> list[BaseRoute]:
    """All of them. Whoever mounts them finds out who asks: ``request.state.identity`` and ``request.state.csrf``."""
    pages = Pages(service)
    actions = Actions(pages)

    def look(path: str, view: View) -> Route:
        return Route(path, _guarded(pages, view), methods=["GET"])

    def act(path: str, view: View) -> Route:
        return Route(path, _guarded(pages, view), methods=["POST"])

    return [
        look("/", pages.overview),
        look("/jobs", pages.jobs),
        look("/jobs/{id}", pages.job),
        look("/failures", pages.failures),
        look("/flows", pages.flows),
        look("/flows/{id}", pages.flow),
        look("/queues", pages.queues),
        look("/workers", pages.workers),
        look("/schedules", pages.schedules),
        look("/audit", pages.audit),
        look("/batches/{id}", pages.batch),
        act("/choose", actions.choose),
        act("/batches", actions.begin),
        act("/batches/{id}/stop", actions.stop_batch),
        act("/jobs/{id}/{verb}", actions.change),
        act("/flows/{id}/{verb:str}", actions.flow),
        act("/queues/{verb}", actions.queue),
        act("/limits", actions.limit),
        act("/workers/stop", actions.worker),
        act("/schedules/{verb}", actions.schedule),
        Route("/events", _events(service), methods=["GET"]),
        Mount("/static", StaticFiles(directory=Path(str(files("dibs.http.dashboard"))) / "static")),
    ]


def _guarded(pages: Pages, view: View) -> View:
    """What is wrong is said on a page, too."""

    async def guarded(request: Request) -> Response:
        try:
            return await view(request)
        except DibsError as error:
            problem = _problem(error)
            return pages.page(request, "problem", "", {"problem": problem}, problem.status)

    return guarded


def _problem(error: DibsError) -> Problem:
    match error:
        case NotFound() | ScheduleUnknown():
            return Problem(404, "There is nothing here", str(error))
        case TooMany():
            return Problem(429, "Too much at once", str(error))
        case StoreUnavailable():
            return Problem(503, "The store is away", "this page works again when it is back: reload it then")
        case Refused():
            return Problem(400, "That makes no sense", str(error))
    return Problem(409, "That cannot be done", str(error))


def _events(service: Service) -> View:
    """Tells a page that something changed: it then asks for itself again."""

    async def changes() -> AsyncIterator[ServerSentEvent]:
        async for event in service.events():
            yield ServerSentEvent(event="changed", data=event.name)

    async def events(request: Request) -> Response:
        return EventSourceResponse(changes(), ping=15)

    return events
