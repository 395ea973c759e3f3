"""Sixty-four claimers in eight processes under limits, some of them killed: nobody outside ever sees more at once."""

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest

from dibs.job import NewJob, State
from dibs.scope import Limit, Scope
from dibs.store import Store
from dibs.stores import open_store
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.faults.limit_racer import QUEUE, Held, Orders, held, most_at_once
from tests.unit.working import until

FULL = os.environ.get("DIBS_FAULTS") == "full"
JOBS = 50_000 if FULL else 1_700
"""On each of three stores: a tenth of the full size in all."""
KILLS = 12 if FULL else 3
PATIENCE = 1_500 if FULL else 120
PROCESSES, CLAIMERS = 8, 8
OF_QUEUE, OF_TASK, OF_KEY = 20, 8, 3
KEYS = 10


class Racer:
    """One process of claimers."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.limit_racer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self.process.stdin is not None
        orders = Orders(name=name, url=url, folder=str(folder), claimers=CLAIMERS)
        self.process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self.process.stdin.flush()

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n", self._errors.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def has_ended(self) -> bool:
        code = self.process.poll()
        assert code in (None, 0), self._errors.read_text()
        return code == 0


async def fill(store: Store) -> None:
    await store.limit(Scope(queue=QUEUE), Limit(concurrency=OF_QUEUE))
    await store.limit(Scope(task="scarce"), Limit(concurrency=OF_TASK))
    await store.limit(Scope(queue=QUEUE, each_key=True), Limit(concurrency=OF_KEY))
    random = Random(5)
    for start in range(0, JOBS, 1_000):
        jobs = [_job(random) for _ in range(min(1_000, JOBS - start))]
        await store.enqueue(jobs)


def _job(random: Random) -> NewJob:
    key = f"k{random.randrange(KEYS)}"
    task = random.choice(("scarce", "plenty", "plenty"))
    return NewJob(task=task, args={"key": key}, queue=QUEUE, limit_key=key, max_attempts=100)


async def race_with_kills(store: Store, url: str, folder: Path) -> None:
    """Kill one of the processes each time that another part of the jobs is done, and start another in its place."""
    random = Random(7)
    with ExitStack() as stack:

        def start(name: str) -> Racer:
            racer = Racer(url, folder, name)
            stack.callback(racer.kill)
            return racer

        crew = [start(f"p{number}") for number in range(PROCESSES)]
        for racer in crew:
            racer.wait_until_ready()
        for kill in range(KILLS):
            wanted = JOBS * (kill + 1) // (KILLS + 2)
            await until(partial(_done, store, wanted, crew), PATIENCE)
            crew.pop(random.randrange(len(crew))).kill()
            crew.append(start(f"r{kill}"))
        await until(partial(_done, store, JOBS, crew), PATIENCE)
        await until(lambda: all(racer.has_ended() for racer in crew), PATIENCE)


async def _done(store: Store, count: int, crew: list[Racer]) -> bool:
    for racer in crew:
        racer.has_ended()  # one that failed says why
    await asyncio.sleep(0.05)
    [counts] = await store.counts()
    return counts.states[State.SUCCEEDED] >= count


async def check(store: Store, folder: Path) -> None:
    [counts] = await store.counts()
    assert counts.states[State.SUCCEEDED] == JOBS
    spans = held(folder)
    assert len(spans) >= JOBS
    assert OF_QUEUE // 2 < most_at_once(spans) <= OF_QUEUE, "never more, and not for want of trying"
    assert most_at_once([span for span in spans if span.task == "scarce"]) <= OF_TASK
    by_key = {key: most_at_once([span for span in spans if span.key == key]) for key in {each.key for each in spans}}
    assert len(by_key) == KEYS
    assert 1 < max(by_key.values()) <= OF_KEY
    assert {use.running for use in await store.limits() if not use.scope.each_key} == {0}


def test_the_observer_sees_one_too_many() -> None:
    spans = [Held(0.0, 1.0, "t", "k"), Held(0.5, 1.5, "t", "k"), Held(1.0, 2.0, "t", "k")]
    assert most_at_once(spans) == 2, "the end of one and the start of another may meet"
    assert most_at_once([*spans, Held(0.9, 1.1, "t", "k")]) == 3


async def run(url: str, folder: Path) -> None:
    store = open_store(url)
    await store.setup()
    try:
        await fill(store)
        await race_with_kills(store, url, folder)
        await check(store, folder)
    finally:
        await store.close()


async def test_sqlite_never_runs_more_than_its_limits(tmp_path: Path) -> None:
    await run(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", tmp_path)


@pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")
async def test_postgres_never_runs_more_than_its_limits(tmp_path: Path, migrated_database: DatabaseFactory) -> None:
    url = migrated_database(POSTGRES_LABELS[-1])
    await run(url, tmp_path)


@pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")
async def test_redis_never_runs_more_than_its_limits(tmp_path: Path, redis_database: DatabaseFactory) -> None:
    await run(redis_database(REDIS_LABELS[-1]), tmp_path)
