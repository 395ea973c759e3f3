"""``python -m bench.peers.scripts SYSTEM COMMAND [ORDER]``: one command for one system.

setup             make what the system needs: tables, groups
enqueue ORDER     enqueue as the order (JSON) says, and print how long it took (JSON)
worker            work until killed
left              for each line on stdin, say how many jobs are not finished
"""

import asyncio
import contextlib
import inspect
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from bench.peers.scripts.side import Job

Pause = Callable[[float], Awaitable[None]]


class Blocking:
    """A synchronous client with the face of an asynchronous one: nothing of it ever waits in a loop."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.chunk = getattr(client, "chunk", 1000)

    async def open(self) -> None:
        self._client.open()

    async def close(self) -> None:
        self._client.close()

    async def one(self, job: Job) -> None:
        self._client.one(job)

    async def bulk(self, jobs: list[Job]) -> None:
        if hasattr(self._client, "bulk"):
            self._client.bulk(jobs)
        else:
            for job in jobs:
                self._client.one(job)

    def crowd(self, jobs: list[Job], clients: int) -> None:
        """As many threads as clients, each with its share."""
        with ThreadPoolExecutor(clients) as threads:
            list(threads.map(self._share, (jobs[number::clients] for number in range(clients))))

    def _share(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._client.one(job)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _jobs(order: dict[str, Any]) -> list[Job]:
    first, count, level = order.get("first", 0), order["jobs"], order.get("level", 0)
    if level == "mixed":
        return [Job(i, 0.0, i % 3 - 1) for i in range(first, first + count)]
    return [Job(i, 0.0, level) for i in range(first, first + count)]


async def _enqueue(client: Any, order: dict[str, Any], pause: Pause) -> dict[str, float]:
    jobs = _jobs(order)
    await client.open()
    ways = {"one": _one_by_one, "bulk": _bulk, "crowd": _crowd, "paced": _paced, "flood": _flood}
    began = time.perf_counter()
    found = await ways[order["how"]](client, jobs, order, pause)
    seconds = time.perf_counter() - began
    await client.close()
    return {"seconds": seconds, **(found or {})}


async def _one_by_one(client: Any, jobs: list[Job], order: dict[str, Any], pause: Pause) -> None:
    for job in jobs:
        await client.one(job)


async def _bulk(client: Any, jobs: list[Job], order: dict[str, Any], pause: Pause) -> None:
    chunk = getattr(client, "chunk", 1000)
    for start in range(0, len(jobs), chunk):
        await _send(client, jobs[start : start + chunk])


async def _send(client: Any, jobs: list[Job]) -> None:
    """In one call, or, where a system has none for many, at the same time."""
    if hasattr(client, "bulk"):
        await client.bulk(jobs)
    else:
        await asyncio.gather(*(client.one(job) for job in jobs))


async def _crowd(client: Any, jobs: list[Job], order: dict[str, Any], pause: Pause) -> None:
    clients = order["clients"]
    if isinstance(client, Blocking):
        return client.crowd(jobs, clients)
    shares = [jobs[number::clients] for number in range(clients)]
    await asyncio.gather(*(_one_by_one(client, share, order, pause) for share in shares))


async def _paced(client: Any, jobs: list[Job], order: dict[str, Any], pause: Pause) -> None:
    """At random moments, so many a second: nothing that polls can fall into step with them."""
    began = time.perf_counter()
    for number, job in enumerate(jobs):
        due = (number + random.random()) / order["rate"]
        await pause(max(0.0, began + due - time.perf_counter()))
        await client.one(job._replace(t=time.time()))


async def _flood(client: Any, jobs: list[Job], order: dict[str, Any], pause: Pause) -> dict[str, float]:
    """So many a second in calls of many, every hundredth of a second those that are due."""
    began, sent, behind = time.perf_counter(), 0, 0.0
    while sent < len(jobs):
        elapsed = time.perf_counter() - began
        due = min(len(jobs), int(elapsed * order["rate"]) + 1)
        if due > sent:
            behind = max(behind, (due - sent) / order["rate"])
            now = time.time()
            await _send(client, [job._replace(t=now) for job in jobs[sent:due]])
            sent = due
        await pause(max(0.0, 0.01 - (time.perf_counter() - began - elapsed)))
    return {"behind": behind}


def _finish(steps: Coroutine[Any, Any, Any]) -> Any:
    """Run what never waits, without a loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a synchronous client must not wait in a loop")


@contextlib.contextmanager
def _fast_loop() -> Iterator[None]:
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    yield


def main() -> None:
    name, command, *rest = sys.argv[1:]
    sys.argv = [name]
    # With a dot it is a script from elsewhere, such as the deliberately broken ones of the tests.
    system = import_module(name if "." in name else f"bench.peers.scripts.{name}")
    with _fast_loop():
        if command == "enqueue":
            client, order = system.Client(), json.loads(rest[0])
            if inspect.iscoroutinefunction(client.one):
                found = asyncio.run(_enqueue(client, order, asyncio.sleep))
            else:
                found = _finish(_enqueue(Blocking(client), order, _sleep))
            print(json.dumps(found), flush=True)
        elif command == "left":
            asyncio.run(_tell_left(system.left))
        else:
            steps = getattr(system, command, lambda: None)()
            if inspect.isawaitable(steps):
                asyncio.run(_await(steps))


async def _tell_left(left: Callable[[], Awaitable[int]]) -> None:
    for _ in sys.stdin:
        print(await left(), flush=True)


async def _await(steps: Awaitable[Any]) -> None:
    await steps


if __name__ == "__main__":
    main()
