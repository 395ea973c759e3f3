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


class Racer:
    """One process of claimers, ready to begin."""

    def __init__(self, orders: Orders) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dibs.testing.racer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say(msgspec.json.encode(orders).decode())

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    async def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        said = await asyncio.to_thread(self.process.stdout.readline)
        assert said.strip() == word, f"a racer said {said!r} instead of {word!r}"

    async def ends(self) -> int:
        return await asyncio.to_thread(self.process.wait)

    def dismiss(self) -> None:
        """Whatever it does, it ends now."""
        self.process.kill()
        self.process.communicate()


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
            assert [await racer.ends() for racer in started] == [0] * processes

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
async def racers(orders: list[Orders]) -> AsyncIterator[list[Racer]]:
    """Processes that began at the same time, and end with this block."""
    started = [Racer(one) for one in orders]
    try:
        for racer in started:
            await racer.expect("ready")
        for racer in started:
            racer.say("go")
        yield started
    finally:
        for racer in started:
            racer.dismiss()


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
