"""A site on a real port, in a thread with a loop of its own, and clients of it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

import dibs
from dibs.http import Role, Site, admin_app
from dibs.http.tokens import new_token

OPERATOR, _OPERATOR_TOKEN = new_token("olga", Role.OPERATOR)
READER, _READER_TOKEN = new_token("rita", Role.READER)
TOKENS = (_OPERATOR_TOKEN, _READER_TOKEN)
BASE = "http://dibs.example"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def site(app: dibs.App, **settings: object) -> Site:
    """The site of an app, with an operator and a reader."""
    given = {"tokens": TOKENS, "rate": 1e6, **settings}
    return admin_app(app, **given)  # type: ignore[arg-type]


def client(site: object, secret: str | None = OPERATOR, **more: object) -> httpx.AsyncClient:
    """Without a network, on the loop of the test."""
    transport = httpx.ASGITransport(site)  # type: ignore[arg-type]
    headers = {} if secret is None else bearer(secret)
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, **more)  # type: ignore[arg-type]


@contextmanager
def served(site: Site) -> Iterator[str]:
    """Its URL, while it is served."""
    config = uvicorn.Config(site, port=0, log_config=None, log_level="critical", timeout_graceful_shutdown=2)
    up = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            up.set()

    server = Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    up.wait(10)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
