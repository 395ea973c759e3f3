"""What a request does whose key is busy with a queued job: nothing, replace it, or put it off."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dibs.errors import Refused
from dibs.job import Enqueued, Filter, Job, NewJob, OnConflict, Report, State
from dibs.outcome import Retry, Snoozed, Verdict
from dibs.scope import Limit, Scope
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    SECOND,
    add,
    add_one,
    end,
    enqueue_one,
    every_job,
    finish,
    look,
    new,
    only,
    picture,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

REPLACE, DEBOUNCE = OnConflict.REPLACE, OnConflict.DEBOUNCE
CHANGING = (REPLACE, DEBOUNCE)


def other(policy: OnConflict, **fields: Any) -> NewJob:
    """Another request for the same key."""
    return new(**{"task": "other", "key": "k", "on_conflict": policy, **fields})


def shifted(lab: Lab, seconds: float | None) -> Any:
    return None if seconds is None else lab.now + seconds * SECOND


# --- what becomes of the job ------------------------------------------------------------------


async def test_a_replaced_job_is_what_was_asked_for_last(store: Store, lab: Lab) -> None:
    job = await add_one(store, key="k", args=1, priority=5, max_attempts=3, meta={"a": 1}, limit_key="t1")
    claim = await take_one(store)
    await store.heartbeat("ann", [claim], LEASE, reports={job: Report(0.5, "half")})
    await lab.advance(1)
    await end(store, claim, Retry("boom", 60 * SECOND))
    before = await look(store, job)
    assert (before.attempts, before.epoch, len(before.errors)) == (1, 1, 1)
    await lab.advance(1)
    fields: dict[str, Any] = {"args": [2], "priority": -3, "max_attempts": 7, "meta": {"b": 2}, "limit_key": "t2"}
    times: dict[str, Any] = {"run_at": lab.now + 3 * SECOND, "expires_at": lab.now + 9 * SECOND}
    request = other(REPLACE, unique_for=50 * SECOND, **fields, **times)
    assert await enqueue_one(store, request) == Enqueued(job, created=False, changed=True)
    expected = replace(
        before, task="other", attempts=0, unique_until=before.created_at + 50 * SECOND, **fields, **times
    )
    assert await look(store, job) == expected
    assert await every_job(store) == [expected]
    assert await end(store, claim, Retry("boom", 60 * SECOND)) is Verdict.LOST, "sent again, too late"
    assert await every_job(store) == [expected]


async def test_a_plain_replacement_takes_away_what_was_said_before(store: Store, lab: Lab) -> None:
    job = await add_one(
        store, key="k", unique_for=SECOND, run_at=lab.now + SECOND, expires_at=lab.now + 5 * SECOND, limit_key="t"
    )
    await lab.advance(2)
    assert (await enqueue_one(store, other(REPLACE))).changed
    found = await look(store, job)
    assert (found.run_at, found.unique_until, found.expires_at, found.limit_key) == (lab.now, None, None, None)
    await lab.advance(100)
    assert await store.sweep() == 0, "the old time to expire is forgotten"
    await finish(store, job)
    assert (await enqueue_one(store, other(REPLACE))).created


async def test_a_replaced_job_is_found_as_what_it_is_now(store: Store, lab: Lab) -> None:
    first, job, last = [(await enqueue_one(store, new(key=key))).id for key in ("a", "k", "z")]
    later = shifted(lab, 60)
    await enqueue_one(store, other(REPLACE, priority=-1, run_at=later))
    assert await taken(store, tasks=["other"]) == []
    [queue] = await store.counts()
    assert (queue.states[State.QUEUED], queue.scheduled) == (3, 1)
    await enqueue_one(store, other(REPLACE, priority=-1))
    assert [one.id for one in (await store.find(Filter(tasks=("other",)))).jobs] == [job]
    assert await taken(store, tasks=["send"], limit=1) == [first]
    claim = await take_one(store, tasks=["other"])
    assert (claim.id, claim.task, claim.attempt, claim.epoch) == (job, "other", 1, 1)
    assert await taken(store) == [last], "its old place is empty"


async def test_a_replaced_job_counts_for_its_new_limit_key(store: Store) -> None:
    await store.limit(Scope(queue="default", each_key=True), Limit(concurrency=1))
    await add(store, 1, limit_key="busy")
    await take_one(store)
    job = await add_one(store, key="k", limit_key="free")
    await enqueue_one(store, other(REPLACE, limit_key="busy"))
    assert await taken(store) == []
    await enqueue_one(store, other(REPLACE, limit_key="free"))
    assert await taken(store) == [job]


async def test_a_running_or_finished_job_is_left_alone(store: Store, lab: Lab) -> None:
    for policy in CHANGING:
        job = await add_one(store, key="k", unique_for=LEASE * 3)
        stages = [take_one(store), lab.advance(60), finish(store, job)]
        for stage in stages:
            await stage  # running; its lease expired; finished, in its window
            before = await picture(store)
            answer = await enqueue_one(store, other(policy, priority=-1, unique_for=SECOND))
            assert answer == Enqueued(job, created=False)
            assert await picture(store) == before
        await store.delete(only(job))


async def test_a_known_id_comes_first(store: Store) -> None:
    job = new(key="k", on_conflict=REPLACE)
    await store.enqueue([job])
    before = await picture(store)
    assert await enqueue_one(store, replace(job, args=2)) == Enqueued(job.id, created=False)
    assert await picture(store) == before


async def test_a_free_key_is_taken_under_every_policy(store: Store) -> None:
    for policy in OnConflict:
        answer = await enqueue_one(store, other(policy, key=policy.value))
        assert (answer.created, answer.changed) == (True, False)


# --- debouncing -------------------------------------------------------------------------------


DUE: tuple[tuple[int, int | None, int | None, int], ...] = (
    (60, 70, None, 70),  # the later one
    (60, 20, None, 60),
    (60, None, None, 60),  # None is now, which is 10
    (0, None, None, 10),
    (0, 70, 50, 50),  # capped, from when the job was created
    (60, 70, 65, 65),
    (60, 70, 30, 60),  # never sooner than it was
    (0, None, 5, 5),
    (0, 70, 70, 70),
)
"""When the job there is due, when the new one is to be, the longest delay, and what comes of it; in seconds."""


async def test_a_debounced_job_is_due_at_the_later_of_both_within_the_cap(store: Store, lab: Lab) -> None:
    began = lab.now
    await store.enqueue([new(key=f"k{n}", run_at=shifted(lab, there)) for n, (there, *_) in enumerate(DUE)])
    moments = [shifted(lab, asked) for _, asked, _, _ in DUE]
    await lab.advance(10)
    for n, (_, _, cap, _) in enumerate(DUE):
        max_delay = None if cap is None else cap * SECOND
        answer = await enqueue_one(store, other(DEBOUNCE, key=f"k{n}", args=2, run_at=moments[n], max_delay=max_delay))
        assert (answer.created, answer.changed) == (False, True)
    jobs = sorted(await every_job(store), key=lambda job: job.key or "")
    assert [(job.run_at - began) // SECOND for job in jobs] == [expected for *_, expected in DUE]
    assert {(job.task, job.args) for job in jobs} == {("other", 2)}


async def test_asking_again_and_again_puts_a_job_off_up_to_the_cap(store: Store, lab: Lab) -> None:
    began, due = lab.now, []
    for n in range(12):
        request = other(DEBOUNCE, args=n, run_at=lab.now + 5 * SECOND, max_delay=12 * SECOND)
        await store.enqueue([request])
        [job] = await every_job(store)
        due.append((job.run_at - began) // SECOND)
        assert await taken(store) == []
        await lab.advance(1)
    assert due == [5, 6, 7, 8, 9, 10, 11, 12, 12, 12, 12, 12]
    claim = await take_one(store)
    assert (claim.args, claim.run_at) == (11, began + 12 * SECOND)


async def test_a_snoozed_job_is_not_made_due_sooner_by_debouncing(store: Store, lab: Lab) -> None:
    job = await add_one(store, key="k")
    await end(store, await take_one(store), Snoozed(60 * SECOND))
    assert (await enqueue_one(store, other(DEBOUNCE))).changed
    assert (await look(store, job)).run_at == lab.now + 60 * SECOND
    assert (await enqueue_one(store, other(REPLACE))).changed
    assert await taken(store) == [job]


# --- several at once --------------------------------------------------------------------------


async def test_requests_of_one_call_take_effect_one_after_another(store: Store, lab: Lab) -> None:
    jobs = [
        other(REPLACE, args=0),
        other(REPLACE, args=1, priority=3),
        new(key="k", args=2),
        new(args=3),
        other(DEBOUNCE, args=4, run_at=lab.now + 5 * SECOND),
        other(DEBOUNCE, args=5, key="l", run_at=lab.now + 9 * SECOND),
        other(DEBOUNCE, args=6, key="l", run_at=lab.now + 7 * SECOND),
        other(REPLACE, args=7, queue="elsewhere"),
        other(DEBOUNCE, args=8, run_at=lab.now + 2 * SECOND),
    ]
    answers = await store.enqueue(jobs)
    k, plain, second, elsewhere = jobs[0].id, jobs[3].id, jobs[5].id, jobs[7].id
    assert [answer.id for answer in answers] == [k, k, k, plain, k, second, second, elsewhere, k]
    assert [n for n, answer in enumerate(answers) if answer.created] == [0, 3, 5, 7]
    assert [n for n, answer in enumerate(answers) if answer.changed] == [1, 4, 6, 8]
    found = {job.id: (job.args, (job.run_at - lab.now) // SECOND, job.priority) for job in await every_job(store)}
    assert found == {k: (8, 5, 0), plain: (3, 0, 0), second: (6, 9, 0), elsewhere: (7, 0, 0)}


async def test_one_refused_request_changes_nothing(store: Store) -> None:
    await add_one(store, key="k")
    before = await picture(store)
    with pytest.raises(Refused):
        await store.enqueue([other(REPLACE), other(DEBOUNCE, priority=99_999)])
    assert await picture(store) == before


@pytest.mark.parametrize("policy", OnConflict)
async def test_requests_that_race_for_keys_leave_one_job_each(store: Store, lab: Lab, policy: OnConflict) -> None:
    handles = [await lab.open() for _ in range(6)]
    keys = [f"k{n}" for n in range(10)]

    async def ask(n: int) -> list[Enqueued]:
        mine = keys[n % 10 :] + keys[: n % 10]
        run_at = lab.now + n * SECOND
        request = [new(f"t{n}", key=key, args=n, run_at=run_at, priority=n, on_conflict=policy) for key in mine]
        return await handles[n % 6].enqueue(request)

    answers = [one for call in await asyncio.gather(*map(ask, range(30))) for one in call]
    jobs = await every_job(store)
    assert sorted(job.key or "" for job in jobs) == sorted(keys)
    assert sorted(one.id for one in answers if one.created) == sorted(job.id for job in jobs)
    assert {one.changed for one in answers if not one.created} == {policy in CHANGING}
    assert all(_is_one_request(job) for job in jobs)
    if policy is DEBOUNCE:
        assert {job.run_at for job in jobs} == {lab.now + 29 * SECOND}


def _is_one_request(job: Job) -> bool:
    """Not a bit of this one and a bit of that."""
    return (job.task, job.args) == (f"t{job.priority}", job.priority)


# --- refused ----------------------------------------------------------------------------------


BAD: tuple[dict[str, Any], ...] = (
    {"on_conflict": REPLACE},
    {"on_conflict": DEBOUNCE, "max_delay": SECOND},
    {"key": "k", "on_conflict": "other"},
    {"key": "k", "on_conflict": None},
    {"key": "k", "max_delay": SECOND},
    {"key": "k", "on_conflict": REPLACE, "max_delay": SECOND},
    {"key": "k", "on_conflict": DEBOUNCE, "max_delay": timedelta(0)},
    {"key": "k", "on_conflict": DEBOUNCE, "max_delay": 5},
    {"key": "k", "on_conflict": DEBOUNCE, "max_delay": timedelta(days=3_651)},
)


async def test_bad_requests_are_refused(store: Store) -> None:
    await add_one(store, key="k")
    before = await picture(store)
    for fields in BAD:
        with pytest.raises(Refused):
            await store.enqueue([new(**fields)])
    assert await picture(store) == before
