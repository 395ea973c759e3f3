"""Wait: returns when there may be work, at once if there is; waking early is allowed.

The only tests that look at real time, and only for how long they are ready to wait.
"""

import asyncio
from datetime import timedelta
from time import monotonic

import pytest

from dibs.job import Claim, Filter, OnConflict
from dibs.outcome import Failed, Pulse, Released
from dibs.store import Store
from dibs.testing.contract.flow_helpers import begin, step, take_steps, whole
from dibs.testing.contract.helpers import (
    SECOND,
    add,
    add_one,
    beat,
    end,
    enqueue_one,
    new,
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


async def test_a_replaced_job_that_is_due_wakes(store: Store, lab: Lab) -> None:
    await add_one(store, queue="mail", key="k", run_at=lab.now + timedelta(hours=1))
    sleeper = await asleep(store, "mail")
    await enqueue_one(await lab.open(), new(queue="mail", key="k", on_conflict=OnConflict.REPLACE))
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


# --- a worker whose claims are asked to end ---------------------------------------------------


async def attentive(store: Store, *queues: str) -> "asyncio.Task[frozenset[str]]":
    """Ann waits for work and for cancels; she was told of all that came before."""
    while not await quiet(store, *queues):
        pass
    task = asyncio.ensure_future(store.wait(queues, PATIENCE, "ann"))
    await asyncio.wait([task], timeout=0.03)
    return task


async def quiet(store: Store, *queues: str) -> bool:
    """Nothing wakes her for a moment."""
    began = monotonic()
    await store.wait(queues, timedelta(milliseconds=20), "ann")
    return monotonic() - began > 0.015


async def asked(store: Store, claim: Claim, sleeper: "asyncio.Task[frozenset[str]]") -> None:
    """The worker is woken, perhaps more than once, and the heartbeat says why."""
    deadline = monotonic() + PATIENCE.total_seconds()
    while monotonic() < deadline:
        assert await sleeper == frozenset()
        if await beat(store, claim) is Pulse.CANCEL:
            break
        sleeper = asyncio.ensure_future(store.wait((), PATIENCE, "ann"))
    assert monotonic() < deadline, "a timeout is no wake-up"


@pytest.mark.parametrize("queues", [(), ("mail", "files")], ids=["no queues", "queues"])
async def test_a_cancel_that_is_asked_wakes_the_worker(store: Store, lab: Lab, queues: tuple[str, ...]) -> None:
    job = await add_one(store)
    claim = await take_one(store, worker="ann")
    sleeper = await attentive(store, *queues)
    await (await lab.open()).cancel(only(job))
    await asked(store, claim, sleeper)


async def test_a_flow_that_ends_wakes_the_workers_of_its_steps(store: Store, lab: Lab) -> None:
    other = await lab.open()
    for way in ("cancel", "failure"):
        flow = await begin(store, step("a"), step("b"))
        mine, theirs = await take_one(store, worker="ann"), await take_steps(store, worker="bob")
        sleeper = await attentive(store)
        if way == "cancel":
            await other.cancel(whole(flow))
        else:
            await end(other, theirs["b"], Failed("boom"))
        await asked(store, mine, sleeper)


async def test_a_worker_that_was_told_of_a_cancel_is_not_told_for_ever(store: Store) -> None:
    await add(store, 2)
    for claim in await take(store, worker="ann"):
        await store.cancel(only(claim.id))
    told = 0
    while not await quiet(store):
        told += 1
        assert told < 20, "she is woken again and again"


async def test_work_is_named_to_a_worker_that_also_waits_for_cancels(store: Store, lab: Lab) -> None:
    sleeper = await attentive(store, "mail")
    await add_one(await lab.open(), queue="mail")
    deadline = monotonic() + PATIENCE.total_seconds()
    while not (ready := await sleeper) and monotonic() < deadline:
        sleeper = asyncio.ensure_future(store.wait(("mail",), PATIENCE, "ann"))
    assert ready == {"mail"}
