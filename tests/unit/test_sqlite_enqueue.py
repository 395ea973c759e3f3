"""Bulk enqueues in SQLite, where calls are answered by lists: each job must find what it would find alone."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from dibs.job import NewJob
from dibs.outcome import Succeeded
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore
from dibs.testing.clock import FakeClock

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "jobs.db", clock=clock, synchronous="normal")
    await made.setup()
    yield made
    await made.close()


def numbered(number: int) -> UUID:
    return UUID(int=number << 80 | 7 << 76 | 2 << 62)


def drawn(draw: random.Random, clock: FakeClock) -> NewJob:
    """A job of few queues, keys and ids, so that they meet."""
    key = draw.choice([None, "a", "b", "c"])
    conflict = draw.choice(["existing", "replace", "debounce"]) if key else "existing"
    return NewJob(
        task=draw.choice("tu"),
        id=numbered(draw.randrange(40)),
        queue=draw.choice("pq"),
        key=key,
        priority=draw.randrange(3),
        run_at=draw.choice([None, clock() + draw.randrange(9) * SECOND]),
        unique_for=draw.choice([None, 3 * SECOND]) if key else None,
        on_conflict=conflict,  # type: ignore[arg-type]
        max_delay=draw.choice([None, 5 * SECOND]) if conflict == "debounce" else None,
    )


@pytest.mark.parametrize("seed", range(20))
async def test_a_call_with_many_finds_what_each_would_find_alone(
    store: SQLiteStore, clock: FakeClock, seed: int
) -> None:
    draw, alone = random.Random(seed), MemoryStore(clock=clock)
    for _ in range(12):
        jobs = [drawn(draw, clock) for _ in range(draw.randrange(2, 12))]
        expected = [answer for job in jobs for answer in await alone.enqueue([job])]
        assert await store.enqueue(jobs) == expected
        for id_ in {job.id for job in jobs}:
            assert await store.get(id_) == await alone.get(id_)
        queue, limit = draw.choice("pq"), draw.randrange(4)
        if limit:
            for either in (store, alone):
                claims = await either.claim(queue, "w", limit, LEASE)
                await either.settle([claim.settled(Succeeded(None)) for claim in claims[1:]])
        clock.advance(draw.randrange(3) * SECOND)


async def test_an_id_that_a_busy_key_keeps_out_may_come_again_in_the_same_call(store: SQLiteStore) -> None:
    (holder,) = await store.enqueue([NewJob(task="t", key="k")])
    id_ = numbered(7)
    answers = await store.enqueue(
        [NewJob(task="t", id=id_, key="k"), NewJob(task="t", id=id_), NewJob(task="t", id=id_, key="k")]
    )
    assert [(answer.id, answer.created) for answer in answers] == [(holder.id, False), (id_, True), (id_, False)]
