"""Every page of the dashboard and every list of the API, with a million jobs that wait and a million that ended.

    python bench/pages.py --check                              every store that processes share, on servers of its own
    python bench/pages.py --store sqlite --jobs 100000
    python bench/pages.py --url sqlite:////tmp/shop.db         a store that is kept: filled the first time

Each is asked for through the ASGI application in this process: once with a server that has just started, which knows
nothing and has looked at nothing yet, then some times more. With --check it ends with 1 if one took over 300 ms.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import click
import httpx
import msgspec
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from bench.lib.arenas import arena  # noqa: E402
from bench.lib.environment import environment  # noqa: E402
from bench.lib.progress import say  # noqa: E402
from bench.lib.shop import Landmarks, filled, landmarks  # noqa: E402
from dibs import App, open_store  # noqa: E402
from dibs.http import Role, admin_app  # noqa: E402
from dibs.http.api.table import OPERATIONS  # noqa: E402
from dibs.http.tokens import new_token  # noqa: E402

STORES = ("sqlite", "postgres", "redis")
MOST = 300.0
"""Milliseconds."""
SECRET, TOKEN = new_token("bench", Role.OPERATOR)


class Ask(msgspec.Struct, frozen=True):
    """A page, or a list of the API."""

    path: str
    form: dict[str, str] | None = None
    """What is posted, if it is a form."""

    def __str__(self) -> str:
        return self.path if self.form is None else f"{self.path} {' '.join(self.form.values())}"


class Taken(msgspec.Struct, frozen=True):
    """Milliseconds."""

    ask: str
    first: float
    then: float
    """The median of the others."""
    worst: float
    """The longest of the others."""

    @property
    def fine(self) -> bool:
        return max(self.first, self.worst) <= MOST


def asks(there: Landmarks) -> Iterator[Ask]:
    """All that is asked for."""
    filters = _filters(there)
    yield Ask("/")
    yield from (Ask(f"/jobs{each}") for each in filters)
    for id in (there.queued, there.in_short_line, there.failed, there.succeeded, there.running, there.waiting):
        yield Ask(f"/jobs/{id}")
    for name in ("failures", "flows", "flows?state=failed", "queues", "workers", "schedules", "audit"):
        yield Ask(f"/{name}")
    yield Ask(f"/flows/{there.flow}")
    for verb, state in (("requeue", "failed"), ("cancel", "queued"), ("delete", "succeeded")):
        yield Ask("/choose", {"what": "matching", "verb": verb, "state": state})
    yield Ask("/choose", {"what": "matching", "verb": "cancel", "task": "export"})
    for operation in OPERATIONS:
        if operation.method == "GET" and "{" not in operation.path and not operation.stream:
            yield Ask(operation.path)
    yield from (Ask(f"/api/jobs{each}") for each in filters[1:])
    for each in ("?task=charge", "?text=bank", "?queue=rare", "?state=failed&queue=mail"):
        yield Ask(f"/api/failures{each}")
    for path in (f"jobs/{there.queued}", f"jobs/{there.in_short_line}/why", f"flows/{there.flow}", "queues/orders"):
        yield Ask(f"/api/{path}")


def _filters(there: Landmarks) -> list[str]:
    states = [f"?state={state}" for state in ("waiting", "queued", "running", "succeeded", "failed", "cancelled")]
    return [
        "",
        *states,
        f"?after={there.middle}",
        "?queue=rare",
        "?queue=rare&state=failed",
        "?queue=nowhere",
        "?task=charge",
        "?task=once",
        "?task=nobody",
        "?task=once&state=succeeded",
        "?worker=worker-3",
        "?worker=nobody",
        f"?key={there.key}",
        "?key=nobody",
        f"?flow={there.flow}",
        f"?id={there.queued}",
        f"?created_since={quote('2020-01-01T00:00:00Z')}",
        f"?created_before={quote('2020-01-01T00:00:00Z')}",
        f"?finished_before={quote('2020-01-01T00:00:00Z')}",
        "?text=bank",
        "?text=nobody%20wrote%20this",
        "?text=bank&state=failed",
    ]


async def measure(url: str, times: int, only: str) -> list[Taken]:
    """Ask for everything that has ``only`` in its address."""
    store = open_store(url)
    await store.setup()
    there = await landmarks(store)
    await store.close()
    found = []
    for ask in asks(there):
        if only in str(ask):
            found.append(await _take(url, ask, times))
            say(f"{found[-1].first:8.1f} {found[-1].then:8.1f}  {ask}")
    return found


async def _take(url: str, ask: Ask, times: int) -> Taken:
    app = App(url)
    async with app:
        site = admin_app(app, tokens=[TOKEN], rate=1e6)
        await app.store()
        transport = httpx.ASGITransport(site)
        headers = {"Authorization": f"Bearer {SECRET}", "Origin": "http://bench"}
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", headers=headers) as client:
            first, *others = [await _once(client, ask) for _ in range(times + 1)]
        await site.close()
    return Taken(str(ask), first, median(others), max(others))


async def _once(client: httpx.AsyncClient, ask: Ask) -> float:
    began = time.perf_counter()
    answer = await (client.get(ask.path) if ask.form is None else client.post(ask.path, data=ask.form))
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != 200:
        raise click.ClickException(f"{ask}: {answer.status_code} {answer.text[:300]}")
    return took


@click.command(help="Time every page of the dashboard and every list of the API.")
@click.option("--store", "stores", default=",".join(STORES), show_default=True, help="Names, with commas between them.")
@click.option("--url", help="A store of your own, filled if it is empty, and kept.")
@click.option("--jobs", type=click.IntRange(min=1_000), default=1_000_000, show_default=True, help="Of either kind.")
@click.option("--times", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--only", default="", help="Only what has this in its address.")
@click.option("--check", is_flag=True, help="End with 1 if something took over 300 ms.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(stores: str, url: str | None, check: bool, json_path: Path | None, **how: Any) -> None:
    found: dict[str, list[Taken]] = {}
    if url is not None:
        found[url.partition(":")[0]] = asyncio.run(_here(url, **how))
    else:
        for name in stores.split(","):
            found[name] = asyncio.run(_there(name, **how))
    for name, taken in found.items():
        show(name, taken)
    if json_path is not None:
        report = {"environment": environment({}), "jobs": how["jobs"], "pages": found}
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    slow = [each for taken in found.values() for each in taken if not each.fine]
    print(f"{sum(map(len, found.values()))} addresses, {len(slow)} of them took over {MOST:.0f} ms")
    sys.exit(1 if check and slow else 0)


async def _here(url: str, jobs: int, times: int, only: str) -> list[Taken]:
    store = open_store(url)
    await store.setup()
    empty = not await store.counts()
    await store.close()
    if empty:
        await filled(url, jobs)
    return await measure(url, times, only)


async def _there(name: str, jobs: int, times: int, only: str) -> list[Taken]:
    ground = arena(name)
    try:
        await ground.start()
        await (await ground.open("dibs", 1)).close()  # an empty store
        assert ground.url is not None
        await filled(ground.url, jobs)
        return await measure(ground.url, times, only)
    finally:
        await ground.stop()


def show(name: str, taken: list[Taken]) -> None:
    table = Table(title=f"{name}: milliseconds")
    for column in ("asked for", "first", "then, median", "then, most"):
        table.add_column(column, justify="left" if column == "asked for" else "right")
    for each in sorted(taken, key=lambda one: -max(one.first, one.worst)):
        figures = (f"{value:.1f}" for value in (each.first, each.then, each.worst))
        table.add_row(each.ask, *figures, style="" if each.fine else "bold red")
    Console().print(table)


if __name__ == "__main__":
    main()
