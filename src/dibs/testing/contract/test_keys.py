"""Keys: at most one unfinished job per queue and key."""

import asyncio

import pytest

from dibs.job import Enqueued, Filter
from dibs.outcome import Cancelled, Failed, Outcome, Released, Retry, Snoozed, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    SECOND,
    add_one,
    changed,
    end,
    enqueue_one,
    every_job,
    finish,
    named,
    new,
    only,
    picture,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_busy_key_answers_with_the_job_that_has_it(store: Store) -> None:
    first = new(key="k", args=1)
    await store.enqueue([first])
    before = await picture(store)
    answer = await enqueue_one(store, new("other", key="k", args=2, priority=-5))
    assert answer == Enqueued(first.id, created=False)
    assert await picture(store) == before


async def test_a_key_is_busy_while_its_job_runs(store: Store) -> None:
    job = await add_one(store, key="k")
    await take_one(store)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)


async def test_a_key_is_busy_while_its_job_has_expired(store: Store, lab: Lab) -> None:
    job = await add_one(store, key="k")
    await take_one(store)
    await lab.advance(60)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)
    await store.sweep()
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)


async def test_a_key_is_busy_while_its_job_is_scheduled(store: Store, lab: Lab) -> None:
    job = await add_one(store, key="k", run_at=lab.now + SECOND)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)


@pytest.mark.parametrize("outcome", [Retry("x"), Released(), Snoozed(SECOND)], ids=named)
async def test_a_key_stays_busy_when_its_job_comes_back(store: Store, outcome: Outcome) -> None:
    job = await add_one(store, key="k")
    await finish(store, job, outcome)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("x"), Cancelled()], ids=named)
async def test_a_key_is_free_when_its_job_is_finished(store: Store, outcome: Outcome) -> None:
    job = await add_one(store, key="k")
    await finish(store, job, outcome)
    answer = await enqueue_one(store, new(key="k"))
    assert answer.created
    assert answer.id != job


@pytest.mark.parametrize("way", ["cancel", "force", "delete", "exhausted", "sweep", "last retry"])
async def test_a_key_is_free_however_its_job_ended(store: Store, lab: Lab, way: str) -> None:
    job = await add_one(store, key="k", max_attempts=1)
    if way == "cancel":
        await store.cancel(only(job))
    elif way == "force":
        await take_one(store)
        await store.cancel(only(job), force=True)
    elif way == "delete":
        await store.delete(only(job))
    elif way == "last retry":
        await end(store, await take_one(store), Retry("boom"))
    else:
        await take_one(store)
        await lab.advance(60)
        await (take(store) if way == "exhausted" else store.sweep())
    assert (await enqueue_one(store, new(key="k"))).created


async def test_a_key_is_free_after_a_running_job_was_deleted(store: Store) -> None:
    job = await add_one(store, key="k")
    await take_one(store)
    await store.delete(only(job), force=True)
    assert (await enqueue_one(store, new(key="k"))).created


async def test_one_key_in_two_queues_is_two_keys(store: Store) -> None:
    answers = await store.enqueue([new(queue=queue, key="k") for queue in ("a", "b", "a")])
    assert [answer.created for answer in answers] == [True, True, False]
    assert answers[2].id == answers[0].id


async def test_jobs_without_a_key_never_meet(store: Store) -> None:
    answers = await store.enqueue([new(), new(), new(key="k")])
    assert all(answer.created for answer in answers)


async def test_keys_are_compared_to_the_letter(store: Store) -> None:
    keys = ["k", "K", "k ey", "ke\u0301", "k\u00e9", "%", "_", "k:1", "1", "01", "None", "🦊"]
    answers = await store.enqueue([new(key=key) for key in keys])
    assert all(answer.created for answer in answers)


async def test_the_first_of_one_key_in_one_call_is_stored(store: Store) -> None:
    jobs = [new(key=key, args=n) for n, key in enumerate("kjkkj")]
    answers = await store.enqueue(jobs)
    owners = [jobs[n].id for n in (0, 1, 0, 0, 1)]
    made = (True, True, False, False, False)
    assert answers == [Enqueued(one, created=new) for one, new in zip(owners, made, strict=True)]
    assert sorted(job.args for job in await every_job(store)) == [0, 1]


async def test_an_id_that_lost_its_key_can_be_sent_again(store: Store) -> None:
    first, second = new(key="k"), new(key="k")
    await store.enqueue([first, second])
    assert await enqueue_one(store, second) == Enqueued(first.id, created=False)
    await finish(store, first.id)
    assert await enqueue_one(store, second) == Enqueued(second.id, created=True)


async def test_deleting_an_old_job_leaves_the_key_of_the_new_one_busy(store: Store) -> None:
    old = await add_one(store, key="k")
    await finish(store, old)
    owner = await add_one(store, key="k")
    assert await store.delete(only(old)) == changed(1)
    assert await enqueue_one(store, new(key="k")) == Enqueued(owner, created=False)


async def test_concurrent_enqueues_of_one_key_store_one_job(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(5)]
    answers = await asyncio.gather(*(enqueue_one(handles[n % 5], new(key="k", args=n)) for n in range(50)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert len((await store.find(Filter(keys=("k",)))).jobs) == 1
