"""What the tests of the command line share: run a command as somebody types it, in an empty folder."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from click.testing import CliRunner, Result

from dibs.cli import cli
from dibs.job import Claim, NewJob
from dibs.outcome import Outcome
from dibs.store import Store
from dibs.stores import open_store

T = TypeVar("T")
LEASE = timedelta(seconds=60)


class Shell:
    """A folder, a store in it, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/jobs.db"

    def __call__(self, *words: object, input: str | None = None, **environment: str) -> Result:
        """`shell("jobs", "list")` is `dibs jobs list`, with DIBS_URL set."""
        given = {"DIBS_URL": self.url, "DIBS_APP": None, "COLUMNS": None, **environment}
        return CliRunner().invoke(cli, [str(word) for word in words], input=input, env=given)

    def json(self, *words: object, code: int = 0) -> Any:
        """What the command answers to a program."""
        done = self(*words, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def ask(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Do something with the store behind the command's back."""

        async def with_store() -> T:
            store = open_store(self.url)
            await store.setup()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(with_store())

    def enqueue(self, count: int = 1, **fields: Any) -> list[UUID]:
        """Put jobs into queue mail."""
        jobs = [NewJob(**{"task": "send", "queue": "mail", "args": {"n": n}, **fields}) for n in range(count)]
        self.ask(lambda store: store.enqueue(jobs))
        return [job.id for job in jobs]

    def claim(self, count: int = 1, *, queue: str = "mail", worker: str = "w1") -> list[Claim]:
        return self.ask(lambda store: store.claim(queue, worker, count, LEASE))

    def finish(self, outcome: Outcome, count: int = 1) -> list[UUID]:
        """Claim jobs of queue mail and settle them."""
        claims = self.claim(count)
        self.ask(lambda store: store.settle([claim.settled(outcome) for claim in claims]))
        return [claim.id for claim in claims]

    def worker(self, name: str = "w1", **info: Any) -> None:
        """Let a worker be seen."""
        about = {"queues": ["mail"], "tasks": ["send"], "concurrency": 10, "host": "box", "pid": 7, **info}
        self.ask(lambda store: store.heartbeat(name, [], LEASE, about))
