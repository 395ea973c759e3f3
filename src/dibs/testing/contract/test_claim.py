"""Claim: due jobs of one queue, each to one worker, never more than asked for."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.job import Claim, State
from dibs.outcome import Cancelled, Failed, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    LEASE,
    MICROSECOND,
    SECOND,
    add,
    add_one,
    end,
    every_job,
    look,
    new,
    only,
    picture,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_a_claim_holds_all_that_is_needed_to_run_the_job(store: Store, lab: Lab) -> None:
    job = new(
        "mail.send",
        args={"to": "a"},
        queue="mail",
        priority=3,
        max_attempts=7,
        key="k",
        meta={"m": 1},
        run_at=lab.now - SECOND,
    )
    await store.enqueue([job])
    assert await store.claim("mail", "ann", 1, LEASE) == [
        Claim(
            id=job.id,
            epoch=1,
            worker="ann",
            queue="mail",
            task="mail.send",
            args={"to": "a"},
            priority=3,
            run_at=lab.now - SECOND,
            created_at=lab.now,
            attempt=1,
            max_attempts=7,
            locked_until=lab.now + LEASE,
            key="k",
            meta={"m": 1},
        )
    ]


async def test_a_claimed_job_is_running_and_counted(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    before = await look(store, job)
    await lab.advance(3)
    await take_one(store)
    after = await look(store, job)
    assert after.state is State.RUNNING
    assert (after.attempts, after.epoch, after.worker) == (1, 1, "ann")
    assert (after.started_at, after.locked_until) == (lab.now, lab.now + LEASE)
    assert (after.run_at, after.created_at) == (before.run_at, before.created_at)
    assert (after.finished_at, after.errors, after.cancel_asked) == (None, (), False)


async def test_a_held_job_is_given_to_nobody_else(store: Store, lab: Lab) -> None:
    await add_one(store)
    await take_one(store)
    other = await lab.open()
    assert await take(other, worker="bob") == []
    assert await take(store, worker="ann") == []


@pytest.mark.parametrize("limit", [1, 2, 9, 10, 11, 10_000])
async def test_a_claim_never_returns_more_than_its_limit(store: Store, limit: int) -> None:
    jobs = await add(store, 10)
    assert await taken(store, limit) == jobs[:limit]
    running = [job for job in await every_job(store) if job.state is State.RUNNING]
    assert len(running) == min(limit, 10)


async def test_every_job_is_claimed_once_until_none_is_left(store: Store) -> None:
    jobs = await add(store, 25)
    got = []
    while claims := await take(store, 10):
        got += [claim.id for claim in claims]
    assert got == jobs


async def test_ten_thousand_jobs_can_be_claimed_at_once(store: Store) -> None:
    jobs = await add(store, 10_000)
    assert await taken(store, 10_000) == jobs


async def test_a_job_is_due_at_its_run_at_and_not_before(store: Store, lab: Lab) -> None:
    job = await add_one(store, run_at=lab.now + SECOND)
    assert await take(store) == []
    await lab.set_clock(lab.now + SECOND - MICROSECOND)
    assert await take(store) == []
    await lab.set_clock(lab.now + MICROSECOND)
    assert await taken(store) == [job]


async def test_finished_jobs_are_never_claimed(store: Store, lab: Lab) -> None:
    await add(store, 4)
    for outcome in (Succeeded(), Failed("boom"), Cancelled()):
        await end(store, await take_one(store), outcome)
    await store.cancel(ALL)
    await lab.advance(100_000)
    assert await take(store) == []


async def test_a_deleted_job_is_never_claimed(store: Store) -> None:
    gone, kept = await add(store, 2)
    await store.delete(only(gone))
    assert await taken(store) == [kept]


async def test_a_queue_that_nobody_used_gives_nothing_and_stays_unlisted(store: Store) -> None:
    assert await take(store, queue="nobody") == []
    assert await store.counts() == []


async def test_an_empty_claim_changes_nothing(store: Store, lab: Lab) -> None:
    await add(store, 3, run_at=lab.now + SECOND)
    before = await picture(store)
    assert await take(store) == []
    assert await picture(store) == before


@pytest.mark.parametrize("names", [("mail", "Mail"), ("mail", "mai"), ("a", "a:b"), ("é", "e\u0301")])
async def test_a_queue_is_named_to_the_letter(store: Store, names: tuple[str, str]) -> None:
    for name in names:
        await add_one(store, queue=name)
    for name in names:
        assert [claim.queue for claim in await take(store, queue=name)] == [name]


async def test_concurrent_claims_share_the_jobs_out(store: Store, lab: Lab) -> None:
    jobs = await add(store, 60)
    handles = [await lab.open() for _ in range(6)]
    batches = await asyncio.gather(*(taken(handle, 10, worker=f"w{n}") for n, handle in enumerate(handles)))
    assert sorted(job for batch in batches for job in batch) == sorted(jobs)
    assert all(batch == sorted(batch) for batch in batches)


async def test_one_handle_serves_concurrent_calls(store: Store) -> None:
    jobs = await add(store, 60)
    batches = await asyncio.gather(*(taken(store, 3, worker=f"w{n}") for n in range(20)))
    assert sorted(job for batch in batches for job in batch) == sorted(jobs)


# --- tasks ------------------------------------------------------------------------------------


async def test_a_claim_takes_only_the_tasks_that_it_knows(store: Store) -> None:
    jobs = await store.enqueue([new(task) for task in ("a", "b", "a", "c", "b")])
    before = await look(store, jobs[3].id)
    assert await taken(store, tasks=["b", "a"]) == [jobs[n].id for n in (0, 1, 2, 4)]
    assert await look(store, jobs[3].id) == before


async def test_a_claim_without_tasks_takes_any(store: Store) -> None:
    jobs = await store.enqueue([new(task) for task in ("a", "b")])
    assert await taken(store, tasks=None) == [job.id for job in jobs]


async def test_a_claim_that_knows_no_task_gets_nothing(store: Store) -> None:
    await add(store, 3)
    before = await picture(store)
    assert await take(store, tasks=[]) == []
    assert await picture(store) == before


async def test_unknown_tasks_do_not_stand_in_the_way(store: Store) -> None:
    await add(store, 1_500, task="unknown", priority=-1)
    known = await add(store, 3, task="known")
    assert await taken(store, 2, tasks={"known"}) == known[:2]
    assert await taken(store, 2, tasks={"known"}) == known[2:]


async def test_jobs_that_were_passed_by_keep_their_place(store: Store) -> None:
    jobs = [(await store.enqueue([new(task)]))[0].id for task in ("a", "b", "a", "b")]
    assert await taken(store, 1, tasks=["b"]) == [jobs[1]]
    assert await taken(store) == [jobs[0], jobs[2], jobs[3]]


async def test_a_task_is_named_to_the_letter(store: Store) -> None:
    await store.enqueue([new(task) for task in ("Send", "send ing", "sen", "%", "s_nd")])
    assert await take(store, tasks=["send", "s%", "sen_"]) == []


async def test_an_expired_job_of_an_unknown_task_is_left_alone(store: Store, lab: Lab) -> None:
    job = await add_one(store, task="unknown", max_attempts=2)
    await take_one(store)
    await lab.advance(60)
    before = await look(store, job)
    assert await take(store, tasks=["known"]) == []
    assert await look(store, job) == before


@pytest.mark.parametrize("asked", [False, True])
async def test_an_exhausted_job_of_an_unknown_task_is_left_alone(store: Store, lab: Lab, asked: bool) -> None:
    job = await add_one(store, task="unknown", max_attempts=1)
    known = await add_one(store, task="known")
    await take_one(store, tasks=["unknown"])
    if asked:
        await store.cancel(only(job))
    await lab.advance(60)
    before = await look(store, job)
    assert await taken(store, tasks=["known"]) == [known]
    assert await look(store, job) == before


# --- refused ----------------------------------------------------------------------------------

BAD_CLAIMS: list[dict[str, Any]] = [
    {"limit": 0},
    {"limit": -1},
    {"limit": 10_001},
    {"limit": True},
    {"limit": 1.0},
    {"lease": timedelta(0)},
    {"lease": SECOND - MICROSECOND},
    {"lease": timedelta(hours=24) + MICROSECOND},
    {"lease": -LEASE},
    {"lease": 30},
    {"worker": ""},
    {"worker": "w" * 201},
    {"worker": "a\nb"},
    {"queue": ""},
    {"queue": "a\0b"},
    {"queue": " mail"},
    {"tasks": [""]},
    {"tasks": ["\ud800"]},
    {"tasks": [None]},
]


@pytest.mark.parametrize("bad", BAD_CLAIMS, ids=repr)
async def test_a_claim_that_breaks_a_rule_takes_nothing(store: Store, bad: dict[str, Any]) -> None:
    await add(store, 2)
    before = await picture(store)
    with pytest.raises(Refused):
        await take(store, **bad)
    assert await picture(store) == before


@pytest.mark.parametrize("lease", [SECOND, timedelta(hours=24)], ids=str)
async def test_a_lease_lasts_from_one_second_to_a_day(store: Store, lab: Lab, lease: timedelta) -> None:
    await add_one(store)
    assert (await take_one(store, lease=lease)).locked_until == lab.now + lease
