"""Measure endpoints as jobs: what a POST costs beside the store's own enqueue, and a thousand clients that wait.

    python bench/endpoints.py
    python bench/endpoints.py --store postgres --posts 1000

The server is uvicorn in a process of its own, asked over one connection that is kept open. In turn: a POST that becomes
a job, a POST that does nothing, an enqueue by this process. Every POST must have become one job, and every client that
waits must get the result of its own.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import arena  # noqa: E402
from bench.lib.endpoint_app import app, echo  # noqa: E402
from bench.lib.program import keep, named  # noqa: E402
from bench.lib.progress import say  # noqa: E402

STORES = ("sqlite", "postgres", "redis")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One store. Times in milliseconds, medians."""

    store: str
    post: float
    bare_post: float
    enqueue: float
    added: float
    """What a POST takes longer than the enqueue by itself."""
    waiting: int
    answered_within: float
    """Seconds from when the first job could run until the last client that waited had its result."""


class Client:
    """One HTTP/1.1 connection that is kept open: nothing but the bytes that are needed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: bytes = b"", more: str = "") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{more}"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        return int(answer.split(" ", 2)[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


@click.command(help="Measure endpoints as jobs on each store that processes share.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--posts", type=click.IntRange(min=10), default=500, show_default=True)
@click.option("--clients", type=click.IntRange(min=1), default=1000, show_default=True, help="How many wait at once.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=_ROOT / "bench/results/endpoints.json")
def main(stores: str, posts: int, clients: int, json_path: Path) -> None:
    names = named(stores, STORES)
    found = [asyncio.run(measure(name, posts, clients)) for name in names]
    show(found)
    keep(json_path, {}, endpoints=found)


async def measure(name: str, posts: int, clients: int) -> Figures:
    ground = arena(name)
    try:
        await ground.start()
        await (await ground.open("dibs", 1)).close()  # an empty store
        assert ground.url is not None
        app.url = ground.url
        server, port = await _serve(ground.url)
        try:
            async with app:
                return await _figures(name, port, posts, clients)
        finally:
            server.terminate()
            await server.wait()
    finally:
        await ground.stop()


async def _serve(url: str) -> tuple[Any, int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
    command = (sys.executable, "-m", "uvicorn", "bench.lib.endpoint_app:web", "--port", str(port))
    quiet = ("--log-level", "warning", "--no-access-log")
    environ = {**os.environ, "DIBS_URL": url, "PYTHONPATH": paths}
    server = await asyncio.create_subprocess_exec(*command, *quiet, env=environ)
    deadline = time.monotonic() + 30
    while True:
        try:
            (await Client.connect(port)).close()
            return server, port
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def _figures(name: str, port: int, posts: int, clients: int) -> Figures:
    client = await Client.connect(port)

    async def post() -> None:
        _expect(202, (await client.ask("POST", "/echo", b'{"order": 7}'))[0])

    async def bare() -> None:
        _expect(202, (await client.ask("POST", "/bare", b'{"order": 7}'))[0])

    async def enqueue() -> None:
        await app.enqueue([echo.task.job(request=_REQUEST)])  # type: ignore[attr-defined]

    times = await _in_turn([post, bare, enqueue], posts)
    counted = sum(sum(each.states.values()) for each in await (await app.store()).counts())
    _expect(2 * (posts + _WARM), counted)
    within = await _waiting(port, client, clients)
    client.close()
    took, nothing, own = (median(each) * 1000 for each in times)
    figures = Figures(
        store=name, post=took, bare_post=nothing, enqueue=own, added=took - own, waiting=clients, answered_within=within
    )
    say(f"{name}: POST {took:.2f} ms, enqueue {own:.2f} ms; {clients} clients answered within {within:.2f} s")
    return figures


_WARM = 20
_REQUEST = {"method": "POST", "path": "/echo", "body": {"order": 7}}


async def _in_turn(ways: list[Callable[[], Awaitable[None]]], rounds: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + _WARM):
        for way, kept in zip(ways, times, strict=True):
            began = time.perf_counter()
            await way()
            if number >= _WARM:
                kept.append(time.perf_counter() - began)
    return times


async def _waiting(port: int, client: Client, clients: int) -> float:
    """Clients that wait for their results, each on a connection of its own."""
    await app.drain()
    told = []
    for number in range(clients):
        status, body = await client.ask("POST", "/echo", str(number).encode())
        _expect(202, status)
        told.append(msgspec.json.decode(body)["result_location"])
    held = [await Client.connect(port) for _ in told]
    asked = [
        asyncio.create_task(each.ask("GET", path, more="Prefer: wait=60\r\n"))
        for each, path in zip(held, told, strict=True)
    ]
    await asyncio.sleep(1)  # all of them are being held
    began = time.perf_counter()
    await app.drain()
    answers = await asyncio.gather(*asked)
    within = time.perf_counter() - began
    for each in held:
        each.close()
    _expect([(200, str(number).encode()) for number in range(clients)], answers)
    return within


def _expect(wanted: object, got: object) -> None:
    if wanted != got:
        click.echo(f"no figures: expected {str(wanted)[:200]}, got {str(got)[:200]}", err=True)
        sys.exit(2)


def show(found: list[Figures]) -> None:
    table = Table(title="Endpoints as jobs: medians in milliseconds")
    for column in ("store", "POST", "enqueue alone", "added", "POST of nothing", "clients waiting", "all answered, s"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for each in found:
        row = [f"{value:.2f}" for value in (each.post, each.enqueue, each.added, each.bare_post)]
        table.add_row(each.store, *row, str(each.waiting), f"{each.answered_within:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
