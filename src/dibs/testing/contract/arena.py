"""Where races are held: processes on the store's URL, or threads on one handle where there is none."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dibs.job import Filter, Job
from dibs.store import Store
from dibs.stores import open_store
from dibs.testing.labs.base import Lab
from dibs.testing.racer import Orders, race

FULL = os.environ.get("DIBS_FAULTS") == "full"


class Racers:
    """Processes of claimers, ready to begin."""

    def __init__(self, orders: list[Orders]) -> None:
        self._count = len(orders)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dibs.testing.racer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(msgspec.json.encode(orders).decode())

    async def ready(self) -> None:
        """All have opened the store."""
        # Whoever is quick is ready before the last one is there.
        said = [await self._hear() for _ in range(self._count + 1)]
        [pids] = [line for line in said if line != "ready"]
        self.pids = [int(pid) for pid in pids.split()]

    def go(self) -> None:
        self._say("go")

    async def all_say(self, word: str) -> None:
        said = [await self._hear() for _ in range(self._count)]
        assert said == [word] * self._count, f"racers said {said} instead of {word!r}"

    async def ends(self) -> list[int]:
        """How they ended, each of them."""
        word, *codes = (await self._hear()).split()
        assert word == "ended"
        return [int(code) for code in codes]

    def dismiss(self) -> None:
        """Whatever they do, they end now."""
        self._process.kill()
        self._process.communicate()  # the end of their output is the end of the last of them

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    async def _hear(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, "the racers ended too early"
        return line.strip()


def _race(store: Store, orders: Orders) -> None:
    asyncio.run(race(store, orders))


class Arena:
    """A store on the real clock, and the races that are run on it."""

    def __init__(self, store: Store, url: str | None, folder: Path) -> None:
        self.store, self.url, self.folder = store, url, folder

    async def run(self, processes: int, **options: object) -> None:
        """Let that many processes (or threads) of claimers loose; returns when all are done."""
        orders = [
            Orders(name=f"p{n}", url=self.url or "", folder=str(self.folder), **options)  # type: ignore[arg-type]
            for n in range(processes)
        ]
        if self.url is None:
            threads = (asyncio.to_thread(_race, self.store, one) for one in orders)
            await asyncio.gather(*threads)
            return
        async with racers(orders) as started:
            assert await started.ends() == [0] * processes

    async def jobs(self) -> list[Job]:
        """Everything that the store has."""
        jobs: list[Job] = []
        after = None
        while True:
            page = await self.store.find(Filter(), after=after, limit=10_000)
            jobs += page.jobs
            if (after := page.after) is None:
                return jobs


@asynccontextmanager
async def racers(orders: list[Orders]) -> AsyncIterator[Racers]:
    """Processes that began at the same time, and end with this block."""
    started = Racers(orders)
    try:
        await started.ready()
        started.go()
        yield started
    finally:
        started.dismiss()


@asynccontextmanager
async def open_arena(lab: Lab, folder: Path) -> AsyncIterator[Arena]:
    """The lab's store, opened to others."""
    url = await lab.share()
    if url is None:
        if not lab.threadsafe:
            pytest.skip("this lab has no URL and its handles are not thread-safe")
        yield Arena(await lab.open(), None, folder)
        return
    store = open_store(url)
    await store.setup()
    try:
        yield Arena(store, url, folder)
    finally:
        await store.close()
