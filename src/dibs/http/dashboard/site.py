"""The dashboard's routes, and what is answered when something is wrong."""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dibs.errors import DibsError, Refused, ScheduleUnknown, StoreUnavailable
from dibs.http.dashboard.actions import Actions
from dibs.http.dashboard.pages import Pages
from dibs.http.dashboard.rendering import prepare
from dibs.http.problems import Problem
from dibs.http.service import NotFound, Service
from dibs.http.service.batches import TooMany
from dibs.http.service.data import Verb

View = Callable[[Request], Awaitable[Response]]


def dashboard(service: Service) -> ASGIApp:
    """The dashboard as an ASGI application, to stand behind a guard which finds out who asks and what he may do."""
    prepare()
    return Starlette(routes=_routes(service), exception_handlers={404: _missing(Pages(service))})


def _routes(service: Service) -> list[BaseRoute]:
    pages = Pages(service)
    actions = Actions(pages)

    def look(path: str, view: View) -> Route:
        return Route(path, _guarded(pages, view), methods=["GET"])

    def act(path: str, view: View) -> Route:
        return Route(path, _guarded(pages, view), methods=["POST"])

    return [
        look("/", pages.overview),
        look("/login", pages.login),
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
        *(act(f"/jobs/{{id}}/{verb}", actions.change(verb)) for verb in Verb),
        *(act(f"/flows/{{id}}/{verb}", actions.flow(verb)) for verb in ("cancel", "retry", "restart")),
        *(act(f"/queues/{verb}", actions.queue(verb)) for verb in ("pause", "resume", "order")),
        act("/limits", actions.limit),
        act("/workers/stop", actions.worker),
        *(act(f"/schedules/{verb}", actions.schedule(verb)) for verb in ("pause", "resume", "run")),
        Mount("/static", StaticFiles(directory=Path(str(files("dibs.http.dashboard"))) / "static")),
    ]


def _missing(pages: Pages) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What is answered where there is no page."""

    async def missing(request: Request, error: Exception) -> Response:
        detail = error.detail if isinstance(error, HTTPException) else ""
        problem = Problem(404, "There is no such page", detail)
        return pages.page(request, "problem", "", {"problem": problem}, problem.status)

    return missing


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
