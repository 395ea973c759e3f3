"""Wait: returns when there may be work, at once if there is; waking early is allowed.

The only tests that look at real time, and only for how long they are ready to wait.
"""

import asyncio
from datetime import timedelta
from time import monotonic

import pytest

from dibs.job import Claim, Filter
from dibs.outcome import Released
from dibs.store import Store
from dibs.testing.contract.helpers import (
    SECOND,
    add,
    add_one,
    end,
    only,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

PATIENCE = timedelta(seconds=20)
"""What a test is ready to wait; a second is what a store should need."""


async def work(store: Store, *queues: str) -> Claim:
    """What a worker does: wait, claim, and wait again if it was woken for nothing."""
    deadline = monotonic() + PATIENCE.total_seconds()
    while monotonic() < deadline:
        ready = await store.wait(queues, PATIENCE)
        assert ready <= set(queues)
        for queue in ready:
            for claim in await take(store, 1, queue=queue):
                return claim
    raise AssertionError(f"{queues} have work, but nobody was woken")


async def asleep(store: Store, *queues: str) -> "asyncio.Task[Claim]":
    """A worker that found nothing to do, and waits."""
    task = asyncio.ensure_future(work(store, *queues))
    done, _ = await asyncio.wait([task], timeout=0.03)
    assert not done, "there is no work yet"
    return task


async def test_a_queue_with_due_work_is_named_at_once(store: Store) -> None:
    await add_one(store, queue="mail")
    assert (await work(store, "files", "mail")).queue == "mail"


async def test_only_queues_that_were_asked_for_are_named(store: Store) -> None:
    for queue in ("a", "b", "c"):
        await add_one(store, queue=queue)
    assert await store.wait(["a", "c"], PATIENCE) <= {"a", "c"}


async def test_nothing_is_named_after_the_timeout(store: Store, lab: Lab) -> None:
    await add_one(store, queue="other")
    await add_one(store, queue="mail", run_at=lab.now + SECOND)
    began = monotonic()
    assert await store.wait(["mail", "empty"], timedelta(milliseconds=50)) == frozenset()
    assert monotonic() - began < 5


async def test_a_timeout_of_nothing_only_looks(store: Store) -> None:
    assert await store.wait(["mail"], timedelta(0)) == frozenset()
    await add_one(store, queue="mail")
    assert await store.wait(["mail"], timedelta(0)) == {"mail"}


async def test_an_enqueue_from_another_handle_wakes(store: Store, lab: Lab) -> None:
    other = await lab.open()
    sleeper = await asleep(store, "files", "mail")
    await add_one(other, queue="mail")
    assert (await sleeper).queue == "mail"


async def test_an_enqueue_wakes_all_that_wait(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(3)]
    sleepers = [await asleep(handle, "mail") for handle in handles]
    jobs = await add(store, 3, queue="mail")
    assert {claim.id for claim in await asyncio.gather(*sleepers)} == set(jobs)


async def test_a_job_that_becomes_due_wakes_without_anybody_s_help(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail", run_at=lab.now + timedelta(hours=1))
    sleeper = await asleep(store, "mail")
    await lab.advance(3600)
    assert (await sleeper).queue == "mail"


async def test_a_lease_that_expires_wakes_without_anybody_s_help(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail")
    await take_one(store, queue="mail")
    sleeper = await asleep(store, "mail")
    await lab.advance(3600)
    assert (await sleeper).queue == "mail"


async def test_a_released_job_wakes(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail")
    claim = await take_one(store, queue="mail")
    sleeper = await asleep(store, "mail")
    await end(await lab.open(), claim, Released())
    assert (await sleeper).queue == "mail"


async def test_a_requeued_job_wakes(store: Store, lab: Lab) -> None:
    job = await add_one(store, queue="mail")
    await store.cancel(only(job))
    sleeper = await asleep(store, "mail")
    await (await lab.open()).requeue(only(job))
    assert (await sleeper).queue == "mail"


async def test_a_rescheduled_job_wakes(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail", run_at=lab.now + timedelta(hours=1))
    sleeper = await asleep(store, "mail")
    await (await lab.open()).reschedule(Filter(queues=("mail",)), lab.now)
    assert (await sleeper).queue == "mail"


async def test_a_resumed_queue_wakes(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail")
    await store.pause("mail")
    sleeper = await asleep(store, "mail")
    await (await lab.open()).resume("mail")
    assert (await sleeper).queue == "mail"


async def test_waiting_can_be_cancelled_and_begun_again(store: Store) -> None:
    sleeper = await asleep(store, "mail")
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    await add_one(store, queue="mail")
    assert (await work(store, "mail")).queue == "mail"


async def test_a_handle_works_while_it_waits(store: Store) -> None:
    sleeper = await asleep(store, "mail")
    job = await add_one(store, queue="other")
    assert (await take_one(store, queue="other")).id == job
    await add_one(store, queue="mail")
    assert (await sleeper).queue == "mail"
