"""Windows: a key stays busy for some time after its job was created, however early that job ends."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Enqueued, Retention, State
from dibs.outcome import Cancelled, Failed, Outcome, Retry, Snoozed, Succeeded
from dibs.store import Store
from dibs.testing.contract.flow_helpers import flow_of, step
from dibs.testing.contract.helpers import (
    LEASE,
    MICROSECOND,
    SECOND,
    add_one,
    changed,
    end,
    enqueue_one,
    every_job,
    finish,
    look,
    new,
    only,
    picture,
    state,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

WINDOW = 100 * SECOND
AT_ONCE = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))


async def test_a_job_shows_until_when_its_key_is_busy(store: Store, lab: Lab) -> None:
    windowed = await add_one(store, key="k", unique_for=WINDOW, run_at=lab.now + 5 * SECOND)
    plain = await add_one(store, key="other")
    assert (await look(store, windowed)).unique_until == lab.now + WINDOW
    assert (await look(store, plain)).unique_until is None
    [found] = [job for job in await every_job(store) if job.id == windowed]
    assert found == await look(store, windowed)


async def cancel(store: Store, lab: Lab) -> None:
    await store.cancel(only((await every_job(store))[0].id))


async def cancel_by_force(store: Store, lab: Lab) -> None:
    await store.cancel(only((await take_one(store)).id), force=True)


async def expire(store: Store, lab: Lab) -> None:
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await take(store) == []


async def sweep(store: Store, lab: Lab) -> None:
    await take_one(store)
    await lab.advance(LEASE.total_seconds())
    assert await store.sweep() == 1


async def settle(store: Store, outcome: Outcome) -> None:
    await end(store, await take_one(store), outcome)


ENDS: dict[str, Callable[[Store, Lab], Awaitable[Any]]] = {
    "cancel": cancel,
    "cancel by force": cancel_by_force,
    "expired lease": expire,
    "sweep": sweep,
    "success": lambda store, lab: settle(store, Succeeded()),
    "failure": lambda store, lab: settle(store, Failed("boom")),
    "last retry": lambda store, lab: settle(store, Retry("boom")),
    "cancelled": lambda store, lab: settle(store, Cancelled()),
}


@pytest.mark.parametrize("way", ENDS)
async def test_a_key_is_busy_until_the_window_ends_to_the_microsecond(store: Store, lab: Lab, way: str) -> None:
    began = lab.now
    job = await add_one(store, key="k", unique_for=WINDOW, max_attempts=1)
    await ENDS[way](store, lab)
    before = await picture(store)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)
    await lab.set_clock(began + WINDOW - MICROSECOND)
    assert await enqueue_one(store, new("other", key="k", args=2)) == Enqueued(job, created=False)
    assert await picture(store) == before
    await lab.set_clock(began + WINDOW)
    assert (await enqueue_one(store, new(key="k"))).created
    assert len(await every_job(store)) == 2


async def test_an_unfinished_job_has_its_key_beyond_the_window(store: Store, lab: Lab) -> None:
    began = lab.now
    job = await add_one(store, key="k", unique_for=10 * SECOND)
    await end(store, await take_one(store), Snoozed(20 * SECOND))
    for seconds in (10, 20, 30):
        await lab.set_clock(began + seconds * SECOND)
        assert await enqueue_one(store, new(key="k", unique_for=WINDOW)) == Enqueued(job, created=False)
    await finish(store, job)
    assert (await enqueue_one(store, new(key="k"))).created, "the window is counted from when the job was created"


async def test_a_window_goes_with_its_job(store: Store, lab: Lab) -> None:
    for n, way in enumerate(("delete", "prune", "delete by force")):
        job = await add_one(store, key="k", unique_for=WINDOW, queue=f"q{n}")
        if way == "delete by force":
            await take_one(store, queue=f"q{n}")
            await store.delete(only(job), force=True)
        else:
            await finish(store, job, queue=f"q{n}")
            await (store.delete(only(job)) if way == "delete" else store.prune(AT_ONCE))
        assert (await enqueue_one(store, new(key="k", queue=f"q{n}"))).created, way


async def test_a_window_is_of_one_queue_and_one_key(store: Store) -> None:
    job = await add_one(store, key="k", unique_for=WINDOW)
    await finish(store, job)
    answers = await store.enqueue([new(key="k", queue="other"), new(key="K"), new(), new(key="k"), new(key="k")])
    assert [answer.created for answer in answers] == [True, True, True, False, False]
    assert {answer.id for answer in answers[3:]} == {job}


async def test_of_one_call_only_the_first_is_stored(store: Store, lab: Lab) -> None:
    jobs = [new(key="k", unique_for=WINDOW if n != 1 else None, args=n) for n in range(3)]
    answers = await store.enqueue(jobs)
    assert answers == [Enqueued(jobs[0].id, created=n == 0) for n in range(3)]
    await finish(store, jobs[0].id)
    await lab.advance(WINDOW.total_seconds())
    again = [new(key="k", unique_for=WINDOW), new(key="k")]
    assert await store.enqueue([jobs[0], *again]) == [
        Enqueued(jobs[0].id, created=False),
        Enqueued(again[0].id, created=True),
        Enqueued(again[0].id, created=False),
    ]


async def test_windows_do_not_hinder_a_requeue(store: Store, lab: Lab) -> None:
    old = await add_one(store, key="k")
    await finish(store, old)
    await lab.advance(1)
    recent = await add_one(store, key="k", unique_for=WINDOW)
    await finish(store, recent)
    assert await store.requeue(only(old)) == changed(1)
    assert await enqueue_one(store, new(key="k")) == Enqueued(old, created=False), "the unfinished one has the key"
    assert await store.requeue(only(recent)) == changed(0), "one unfinished job a key"
    await finish(store, old)
    assert await enqueue_one(store, new(key="k")) == Enqueued(recent, created=False), "its window is still open"
    await store.delete(only(recent))
    assert (await enqueue_one(store, new(key="k"))).created


async def test_a_requeued_job_keeps_its_window(store: Store, lab: Lab) -> None:
    began = lab.now
    job = await add_one(store, key="k", unique_for=WINDOW)
    await finish(store, job)
    await lab.advance(1)
    await store.requeue(only(job))
    assert (await look(store, job)).unique_until == began + WINDOW
    await finish(store, job)
    assert await enqueue_one(store, new(key="k")) == Enqueued(job, created=False)
    await lab.set_clock(began + WINDOW)
    assert (await enqueue_one(store, new(key="k"))).created
    assert await state(store, job) is State.SUCCEEDED


async def test_many_finished_jobs_of_a_key_leave_it_free(store: Store, lab: Lab) -> None:
    for n in range(30):
        [answer] = await store.enqueue([new(key="k", unique_for=SECOND, args=n)])
        assert answer.created
        await finish(store, answer.id)
        await lab.advance(1)
    assert (await enqueue_one(store, new(key="k"))).created


BAD: tuple[dict[str, Any], ...] = (
    {"unique_for": SECOND},
    {"key": "k", "unique_for": timedelta(0)},
    {"key": "k", "unique_for": -SECOND},
    {"key": "k", "unique_for": timedelta(days=3_651)},
    {"key": "k", "unique_for": 5},
    {"key": "k\n", "unique_for": SECOND},
)


async def test_bad_windows_are_refused(store: Store) -> None:
    for fields in BAD:
        with pytest.raises(Refused):
            await store.enqueue([new(), new(**fields)])
    for fields in ({"unique_for": SECOND}, {"key": "k", "unique_for": SECOND}):
        with pytest.raises(Refused):
            await store.start(flow_of(step("a", **fields)))
    assert await every_job(store) == []
