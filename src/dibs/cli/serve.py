"""``dibs serve``: API and dashboard on a port. ``dibs token``: who is let in."""

import asyncio
import logging
import os
import sys
from types import FrameType
from typing import Any

import click

from dibs.app import App
from dibs.cli import logs, show
from dibs.cli.locate import load_app
from dibs.cli.options import run
from dibs.errors import ConfigurationError
from dibs.stores import DEFAULT_URL, open_store, scheme_of
from dibs.stores.schema import open_schema

log = logging.getLogger("dibs.serve")

PORT = 8642


@click.command()
@click.argument("app", envvar="DIBS_APP", metavar="[APP]", required=False)
@click.option("--url", metavar="URL", help="A store, instead of an app's.  [env: DIBS_URL]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535))
@click.option("--token-file", envvar="DIBS_TOKEN_FILE", metavar="FILE", help="Who is let in: lines of dibs token.")
@click.option("--read-only", is_flag=True, help="Nobody can change anything.")
@click.option("--root-path", default="", metavar="PATH", help="Where a proxy shows it, as in /jobs.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Log in JSON, a line each.")
def serve(
    *,
    app: str | None,
    url: str | None,
    host: str,
    port: int,
    token_file: str | None,
    read_only: bool,
    root_path: str,
    log_level: str,
    as_json: bool,
) -> None:
    """Serve the API and the dashboard of APP (module:app, or module), or of the store at --url.

    On this machine alone everybody is let in. On another address, only who has a token: make some with dibs token, and
    name their file with --token-file, or put the lines into DIBS_TOKENS. Tokens travel in clear: put TLS in front.

    \b
      dibs serve shop.tasks:app
      dibs serve --url postgresql://db/shop --read-only
      dibs serve shop.tasks:app --host 0.0.0.0 --token-file tokens.txt
    """
    logs.configure(log_level, as_json)
    from dibs.http.tokens import read_tokens  # the extra may be missing: only this command needs it

    tokens = read_tokens(token_file, os.environ.get("DIBS_TOKENS"))
    _check_host(host, bool(tokens))
    known = None if app is None else load_app(app)
    where = url or (known.url if known is not None else os.environ.get("DIBS_URL") or DEFAULT_URL)
    run(_reach(where))
    from dibs.http.site import admin_app

    site = admin_app(
        known if known is not None and known.url == where else _at(known, where),
        url=where,
        tokens=tokens,
        local=not tokens,
        read_only=read_only,
        secret=os.environ.get("DIBS_SECRET"),
    )
    allowed = "whoever has a token" if tokens else "everybody on this machine"
    log.info("%s for %s on http://%s:%s%s", show.safe_url(where), allowed, _shown(host), port, root_path)
    sys.exit(_listen(site, host, port, root_path, log_level))


def _at(app: App | None, url: str) -> App | None:
    """The app's tasks, on another store."""
    if app is not None:
        app.url = url
    return app


def _check_host(host: str, tokens: bool) -> None:
    from dibs.http.security import is_loopback

    if not tokens and not is_loopback(host):
        raise ConfigurationError(
            f"{host} is not only this machine, and there are no tokens: anybody could cancel your jobs. "
            "Make one with dibs token NAME, and name its file with --token-file"
        )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _reach(url: str) -> None:
    """Say at once if there is no such store; a file that is not there is not created by looking."""
    scheme = scheme_of(url)
    if scheme == "memory":
        raise ConfigurationError("memory:// keeps jobs inside one process: mount dibs.http.admin_app(app) there")
    if scheme == "sqlite":
        await open_schema(url).status()
    store = open_store(url)
    try:
        await store.setup()
    finally:
        await store.close()


def _listen(site: Any, host: str, port: int, root_path: str, log_level: str) -> int:
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise ConfigurationError("dibs serve needs uvicorn: pip install 'dibs[web]'") from None

    class Server(uvicorn.Server):
        """Lets those who listen to events go before it waits for everybody to be done."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            site.service.news.let_go()
            super().handle_exit(sig, frame)

    server = Server(
        uvicorn.Config(
            site,
            host=host,
            port=port,
            root_path=root_path,
            log_config=None,
            log_level=log_level,
            access_log=log_level == "debug",
            server_header=False,
            limit_concurrency=1_000,
            timeout_graceful_shutdown=5,
        )
    )
    asyncio.run(server.serve())
    return 0 if server.started else 1
