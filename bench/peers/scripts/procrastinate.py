from typing import Any

from procrastinate import App, PsycopgConnector

from bench.peers.scripts.side import URL, Job, by_level, handler, setting

app = App(connector=PsycopgConnector(conninfo=URL, max_size=20))
noop: Any = app.task(name="noop")(handler)


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class Client:
    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def one(self, job: Job) -> None:
        await _of(job.level).defer_async(**job.arguments)

    async def bulk(self, jobs: list[Job]) -> None:
        for level, group in by_level(jobs):
            await _of(level).batch_defer_async(*(job.arguments for job in group))


def _of(level: int) -> Any:
    return noop.configure(priority=-level) if level else noop


async def worker() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=setting("c", 1))
