"""Prune: finished jobs older than their retention go, the oldest first; nothing else does."""

from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Retention, State
from dibs.outcome import Cancelled, Failed, Outcome, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    MICROSECOND,
    SECOND,
    add,
    add_one,
    every_job,
    finish,
    new,
    only,
    picture,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

NOTHING = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))
FOREVER = Retention(succeeded=None, failed=None, cancelled=None)


async def three_endings(store: Store) -> dict[State, Any]:
    """One job for each way to end."""
    endings: list[tuple[State, Outcome]] = [
        (State.SUCCEEDED, Succeeded()),
        (State.FAILED, Failed("x")),
        (State.CANCELLED, Cancelled()),
    ]
    jobs = {}
    for ending, outcome in endings:
        jobs[ending] = await add_one(store)
        await finish(store, jobs[ending], outcome)
    return jobs


async def test_a_job_is_dropped_when_it_reaches_its_age_and_not_before(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job)
    retention = Retention(succeeded=SECOND)
    await lab.set_clock(lab.now + SECOND - MICROSECOND)
    assert await store.prune(retention) == 0
    await lab.set_clock(lab.now + MICROSECOND)
    assert await store.prune(retention) == 1
    assert await store.get(job) is None


async def test_age_counts_from_the_end_not_from_the_beginning(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await lab.advance(3600)
    await finish(store, job)
    assert await store.prune(Retention(succeeded=timedelta(minutes=5))) == 0


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled"])
async def test_each_way_to_end_has_its_own_retention(store: Store, lab: Lab, ending: str) -> None:
    jobs = await three_endings(store)
    await lab.advance(60)
    spans: dict[str, Any] = {"succeeded": None, "failed": None, "cancelled": None, ending: SECOND}
    assert await store.prune(Retention(**spans)) == 1
    left = {job.id for job in await every_job(store)}
    assert left == {job for state, job in jobs.items() if state.value != ending}


async def test_no_retention_keeps_for_ever(store: Store, lab: Lab) -> None:
    await three_endings(store)
    await lab.advance(10 * 365 * 86_400)
    assert await store.prune(FOREVER) == 0
    assert len(await every_job(store)) == 3


async def test_the_usual_retention_keeps_failed_jobs_longer(store: Store, lab: Lab) -> None:
    jobs = await three_endings(store)
    await lab.advance(7 * 86_400)
    assert await store.prune(Retention()) == 2
    assert [job.id for job in await every_job(store)] == [jobs[State.FAILED]]
    await lab.advance(23 * 86_400)
    assert await store.prune(Retention()) == 1


async def test_unfinished_jobs_are_never_pruned(store: Store, lab: Lab) -> None:
    await add(store, 2)
    await take_one(store)
    await add_one(store, run_at=lab.now + timedelta(days=1))
    await lab.advance(365 * 86_400)
    before = await picture(store)
    assert await store.prune(NOTHING) == 0
    assert await picture(store) == before


async def test_a_requeued_job_is_not_pruned(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job)
    await store.requeue(only(job))
    await lab.advance(60)
    assert await store.prune(NOTHING) == 0
    assert await store.get(job) is not None


async def test_at_most_limit_jobs_go_at_once_the_longest_finished_first(store: Store, lab: Lab) -> None:
    jobs = await add(store, 5)
    for n in (3, 0, 4, 1, 2):
        await store.cancel(only(jobs[n]))
        await lab.advance(1)
    left = []
    for count in (2, 2, 1, 0):
        assert await store.prune(NOTHING, limit=2) == count
        left.append([job.id for job in await every_job(store)])
    assert left == [[jobs[4], jobs[2], jobs[1]], [jobs[2]], [], []]


async def test_jobs_of_all_endings_go_in_one_order(store: Store, lab: Lab) -> None:
    jobs = await add(store, 3)
    endings: list[Outcome] = [Failed("x"), Succeeded(), Cancelled()]
    for job, outcome in zip(jobs, endings, strict=True):
        await finish(store, job, outcome)
        await lab.advance(1)
    for job in jobs:
        assert await store.prune(NOTHING, limit=1) == 1
        assert await store.get(job) is None


async def test_a_pruned_id_and_key_are_free_again(store: Store) -> None:
    job = new(key="k")
    await store.enqueue([job])
    await finish(store, job.id)
    assert await store.prune(NOTHING) == 1
    [answer] = await store.enqueue([job])
    assert answer.created


@pytest.mark.parametrize("limit", [0, -1, 10_001, True])
async def test_a_prune_takes_1_to_10000(store: Store, limit: Any) -> None:
    with pytest.raises(Refused):
        await store.prune(NOTHING, limit)
