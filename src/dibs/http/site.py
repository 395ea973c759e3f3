"""API and dashboard together, behind their guard, as one ASGI application: to serve, or to mount in another one."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from dibs.app import App
from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError
from dibs.http.api import API
from dibs.http.dashboard import dashboard
from dibs.http.problems import Problem
from dibs.http.security import Authorize, Guard, inner_path
from dibs.http.service import Service
from dibs.http.tokens import Token, Tokens
from dibs.store import Store
from dibs.telemetry import metrics_routes

Pages = Callable[[Service], ASGIApp]
"""What answers everything that is not the API."""


OBSERVED = ("/metrics", "/healthz", "/readyz")


class Site:
    """An ASGI application. Mounted in another one, it needs no lifespan of its own; ``close`` ends what it began."""

    def __init__(self, service: Service, guard: Callable[[ASGIApp], ASGIApp], pages: ASGIApp | None = None) -> None:
        self.service = service
        self._api = API(service)
        self._observed = _observed(service)
        self._pages = pages
        self._guarded = guard(self._inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = inner_path(scope)
        if path == "/api" or path.startswith("/api/"):
            await self._api(scope, receive, send)
        elif path in OBSERVED and self._observed is not None:
            await self._observed(scope, receive, send)
        elif self._pages is not None:
            await self._pages(scope, receive, send)
        else:
            missing = Problem(404, "There is no such page", "/api/openapi.json says what there is")
            await missing.response()(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def close(self) -> None:
        """Stop batches that run here, let go those who listen, and close the store."""
        await self.service.close()

    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For the application that it is mounted in: ``Starlette(lifespan=admin.lifespan())``."""

        @asynccontextmanager
        async def living(_: Any) -> Any:
            try:
                yield
            finally:
                await self.close()

        return living


def _observed(service: Service) -> ASGIApp | None:
    """Metrics and probes of the server, where ``dibs[metrics]`` is installed."""
    try:
        return Router(routes=metrics_routes(service.store))
    except ConfigurationError:
        return None


def admin_app(
    app: App | None = None,
    *,
    url: str | None = None,
    store: Store | None = None,
    tokens: Iterable[Token | str] = (),
    authorize: Authorize | None = None,
    local: bool = False,
    read_only: bool = False,
    rate: float = 100.0,
    redact: Iterable[str] = (),
    secret: str | None = None,
    clock: Clock = system_clock,
    pages: Pages = dashboard,
) -> Site:
    """API and dashboard of an app, or of the store at a URL, to be mounted in any ASGI application.

    Somebody has to say who is let in: ``tokens`` (lines as ``dibs token`` prints them), ``authorize`` (a function of
    the request that answers an ``Identity``, or None), or ``local=True`` for all on this machine. ``read_only`` lets
    nobody change anything. ``rate`` is how many requests a second one client may send. ``redact`` names more arguments
    that are never shown. ``secret`` signs the sessions of browsers, where several processes have to know them.
    """
    known = [token if isinstance(token, Token) else Token.read(token) for token in tokens]
    if not known and authorize is None and not local:
        raise ConfigurationError(
            "nobody would be let in: give tokens=[…] (see dibs token), authorize=…, or local=True for this machine only"
        )
    service = Service(app, url=url, store=store, clock=clock, redact=redact)

    def guard(inner: ASGIApp) -> ASGIApp:
        return Guard(
            inner,
            tokens=Tokens(known, secret),
            authorize=authorize,
            local=local,
            read_only=read_only,
            rate=rate,
        )

    return Site(service, guard, pages(service))
