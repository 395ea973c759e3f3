"""What the tests of the worker share: tasks, a store, and a worker on both."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, overload
from uuid import UUID

from dibs.job import Job
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore
from dibs.task import AsyncTask, Middleware, Task, Tasks, declared
from dibs.worker import Stats, Worker

Function = Callable[..., Any]


class Shop:
    """Tasks and a store to run them on; a memory store unless told otherwise."""

    def __init__(self, open_store: Callable[[], Store] | None = None) -> None:
        shared = MemoryStore()
        self.open_store = open_store or (lambda: shared)
        self.store = self.open_store()
        self.tasks = Tasks()

    @overload
    def task(self, function: Function, **options: Any) -> Task[..., Any]: ...

    @overload
    def task(self, **options: Any) -> Callable[[Function], Task[..., Any]]: ...

    def task(self, function: Function | None = None, **options: Any) -> Any:
        """Declare a task, as ``@app.task`` does."""
        if function is None:
            return lambda given: self.task(given, **options)
        task: Task[..., Any] = AsyncTask(function, options=declared(function.__name__, options))
        self.tasks.add(task)
        return task

    def middleware(self, function: Middleware) -> Middleware:
        self.tasks.middleware.append(function)
        return function

    def on(self, event: str) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            self.tasks.hooks.setdefault(event, []).append(function)
            return function

        return add

    async def enqueue(self, task: Task[..., Any], *args: Any, **how: Any) -> UUID:
        [sent] = await self.store.enqueue([task.options(**how).job(*args)])
        return sent.id

    async def job(self, job: UUID) -> Job:
        found = await self.store.get(job)
        assert found is not None
        return found

    def worker(self, **settings: Any) -> Worker:
        return Worker(self.tasks, self.open_store, **settings)

    async def drain(self, **settings: Any) -> Stats:
        """Run what is due to its end."""
        return await asyncio.wait_for(self.worker(until_empty=True, **settings).run(), 20)

    async def run_one(self, task: Task[..., Any], *args: Any, **how: Any) -> Job:
        """Enqueue one job, drain, and show what became of it."""
        job = await self.enqueue(task, *args, **how)
        await self.drain()
        return await self.job(job)

    @asynccontextmanager
    async def working(self, **settings: Any) -> AsyncIterator[Worker]:
        """A worker beside the test, stopped at its end."""
        worker = self.worker(**settings)
        going = asyncio.create_task(worker.run())
        try:
            yield worker
            worker.stop()
            await asyncio.wait_for(going, 20)
        finally:
            worker.stop(now=True)
            await asyncio.wait([going], timeout=10)


STORES = ("memory", "sqlite")


@asynccontextmanager
async def opened_shop(kind: str, folder: Path) -> AsyncIterator[Shop]:
    """A shop on an empty store of that kind."""
    shop = Shop(None if kind == "memory" else lambda: SQLiteStore(folder / "jobs.db", synchronous="normal"))
    await shop.store.setup()
    yield shop
    await shop.store.close()


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Return when the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while True:
        met = condition()
        if asyncio.iscoroutine(met):
            met = await met
        if met:
            return
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
