"""Concurrency: no more jobs of a scope hold a valid lease than its limit allows, and none is held back without need."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from dibs.errors import Refused
from dibs.job import Claim, State
from dibs.limits import CONCURRENCY, RANKS
from dibs.outcome import Cancelled, Failed, Outcome, Pulse, Released, Retry, Snoozed, Succeeded
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.store import Store
from dibs.testing.contract.flow_helpers import begin, diamond, run_steps, take_steps
from dibs.testing.contract.helpers import (
    EACH_KEY,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    TASK,
    add,
    add_one,
    beat,
    end,
    every_job,
    finish,
    look,
    new,
    only,
    picture,
    running,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


def at_most(count: int) -> Limit:
    return Limit(concurrency=count)


# --- what is counted --------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [QUEUE, EACH_KEY, TASK], ids=["queue", "each_key", "task"])
async def test_no_more_run_than_the_limit_allows(store: Store, scope: Scope) -> None:
    await store.limit(scope, at_most(3))
    jobs = await add(store, 8, limit_key="k")
    first = await take(store, 2)
    second = await take(store, 5)
    assert [claim.id for claim in first + second] == jobs[:3]
    assert await take(store) == []
    assert await running(store, scope, jobs[-1]) == 3
    await store.settle([claim.settled(Succeeded()) for claim in first])
    assert await taken(store) == jobs[3:5]
    assert await taken(store, 1) == []


@pytest.mark.parametrize("scope", [QUEUE, EACH_KEY, TASK], ids=["queue", "each_key", "task"])
async def test_room_that_was_given_back_is_there_for_jobs_of_every_priority(store: Store, scope: Scope) -> None:
    await store.limit(scope, at_most(2))
    first, *later = await add(store, 3, limit_key="k", priority=5)
    claim = await take_one(store)
    assert claim.id == first
    await end(store, claim, Succeeded())
    sooner = await add_one(store, limit_key="k", priority=1)
    assert await taken(store, 5) == [sooner, later[0]]


async def test_a_limit_concerns_its_scope_and_nothing_else(store: Store) -> None:
    """A task is limited over all queues, a key within its queue, and a job without a key by no limit of keys."""
    await store.limit(Scope(queue="a"), at_most(2))
    await store.limit(Scope(queue="b", each_key=True), at_most(1))
    await store.limit(TASK, at_most(3))
    wanted = [
        ("a", "other", None),
        ("a", "send", "k"),
        ("a", "other", "k"),  # a has two
        ("b", "other", "k"),
        ("b", "send", "k"),  # k has one
        ("b", "send", "l"),
        ("b", "other", None),
        ("b", "other", None),
        ("c", "other", "k"),
        ("c", "other", "k"),
        ("b", "send", None),
        ("c", "send", "k"),  # send has three
        ("c", "send", None),
        ("B", "Send", "k"),
    ]
    jobs = [new(task, queue=queue, limit_key=key) for queue, task, key in wanted]
    await store.enqueue(jobs)
    got = {job for queue in ("a", "b", "c", "B") for job in await taken(store, queue=queue)}
    assert [n for n, job in enumerate(jobs) if job.id not in got] == [2, 4, 11, 12], "and nothing else is held back"


async def force(store: Store, lab: Lab, claim: Claim) -> None:
    await store.cancel(only(claim.id), force=True)


async def delete(store: Store, lab: Lab, claim: Claim) -> None:
    await store.delete(only(claim.id), force=True)


async def expire(store: Store, lab: Lab, claim: Claim) -> None:
    await lab.set_clock(claim.locked_until - MICROSECOND)
    assert await taken(store) == []
    await lab.set_clock(claim.locked_until)


async def expire_and_sweep(store: Store, lab: Lab, claim: Claim) -> None:
    await lab.set_clock(claim.locked_until)
    await store.sweep()


def settle(outcome: Outcome) -> Callable[[Store, Lab, Claim], Awaitable[Any]]:
    return lambda store, lab, claim: end(store, claim, outcome)


WAYS_OUT: dict[str, Callable[[Store, Lab, Claim], Awaitable[Any]]] = {
    "success": settle(Succeeded()),
    "failure": settle(Failed("boom")),
    "retry": settle(Retry("boom", SECOND)),
    "release": settle(Released()),
    "snooze": settle(Snoozed(SECOND)),
    "cancelled": settle(Cancelled()),
    "cancel by force": force,
    "delete": delete,
    "expired lease": expire,
    "sweep": expire_and_sweep,
}


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_a_slot_is_free_however_a_job_ends_its_run(store: Store, lab: Lab, way: str) -> None:
    for scope in (QUEUE, EACH_KEY, TASK):
        await store.limit(scope, at_most(1))
    first, second = await add(store, 2, limit_key="k")
    claim = await take_one(store)
    assert (claim.id, await taken(store)) == (first, [])
    await WAYS_OUT[way](store, lab, claim)
    assert [await running(store, scope, second) for scope in (QUEUE, EACH_KEY, TASK)] == [0, 0, 0]
    is_due_again = way in {"release", "expired lease", "sweep"}
    assert await taken(store) == [first if is_due_again else second]
    assert [await running(store, scope, second) for scope in (QUEUE, EACH_KEY, TASK)] == [1, 1, 1]


async def test_a_job_that_is_claimed_again_counts_once(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, at_most(2))
    jobs = await add(store, 3)
    await take(store, 2, worker="dead")
    await lab.advance(LEASE.total_seconds())
    assert await running(store) == 0
    assert await taken(store) == jobs[:2], "in their places, and nobody else's slots"
    assert await running(store) == 2
    assert (await look(store, jobs[0])).epoch == 2


async def test_a_heartbeat_holds_the_slot_and_a_cancel_that_is_asked_does_not_free_it(store: Store, lab: Lab) -> None:
    await store.limit(QUEUE, at_most(1))
    first, second = await add(store, 2)
    claim = await take_one(store)
    await lab.advance(20)
    await store.cancel(only(first))
    assert await beat(store, claim) is Pulse.CANCEL
    await lab.advance(20)
    assert await taken(store) == []
    await end(store, claim, Cancelled())
    assert await taken(store) == [second]


async def test_steps_are_jobs_like_others(store: Store) -> None:
    await store.limit(QUEUE, at_most(1))
    await begin(store, *diamond())
    await run_steps(store, "a")
    claims = await take_steps(store)
    assert list(claims) == ["b"]
    await end(store, claims["b"], Succeeded())
    await run_steps(store, "c")
    await run_steps(store, "d")


# --- what is held back ------------------------------------------------------------------------


async def test_a_job_that_is_held_back_is_left_as_it_is(store: Store, lab: Lab) -> None:
    await store.enqueue([new(), new(limit_key="k"), new("other"), new(run_at=lab.now + SECOND)])
    await take_one(store, worker="dead")
    await lab.advance(LEASE.total_seconds())
    for scope in (QUEUE, Scope(task="other")):
        await store.limit(scope, at_most(0))
    before = await picture(store)
    assert await taken(store) == []
    assert await picture(store) == before, "queued stays queued, an expired lease stays expired"
    assert await store.sweep() == 1
    assert await taken(store) == []


async def test_those_behind_are_looked_at_in_their_order(store: Store) -> None:
    """First come, first served, as far as there is room."""
    await store.limit(EACH_KEY, at_most(1))
    keys = ["a", "a", "b", None, "a", "b", "c", None]
    jobs = [new(limit_key=key) for key in keys]
    await store.enqueue(jobs)
    got = await take(store, 3)
    assert [claim.id for claim in got] == [jobs[n].id for n in (0, 2, 3)]
    assert await taken(store, 2) == [jobs[6].id, jobs[7].id]
    await end(store, got[0], Retry("boom", SECOND))
    assert await taken(store) == [jobs[1].id], "the first of its key, not the one that was in front"
    await end(store, got[1], Succeeded())
    assert await taken(store) == [jobs[5].id]


@pytest.mark.parametrize("scope", [EACH_KEY, TASK], ids=["each_key", "task"])
async def test_a_thousand_held_back_jobs_hide_nobody(store: Store, lab: Lab, scope: Scope) -> None:
    await store.limit(scope, at_most(1))
    held = await add(store, 1_500, limit_key="busy")
    other = [await add_one(store, task="other", limit_key=key, priority=n) for key, n in ((None, 0), ("free", 1))]
    assert await taken(store, 10) == [held[0], *other]
    more = await add_one(store, task="other", limit_key="free too")
    assert await taken(store, 1) == [more]
    front = await add_one(store, task="other", limit_key=None, priority=-1)
    assert await taken(store, 1) == [front]
    await lab.advance(LEASE.total_seconds() / 2)
    assert await taken(store, 5) == []


async def test_ends_need_no_room(store: Store, lab: Lab) -> None:
    used_up = await add_one(store, max_attempts=1)
    asked = await add_one(store)
    await take(store)
    await store.cancel(only(asked))
    over = await add_one(store, expires_at=lab.now + SECOND)
    live = await add_one(store)
    for scope in (QUEUE, TASK):
        await store.limit(scope, at_most(0))
    await lab.advance(LEASE.total_seconds())
    assert await taken(store) == []
    ends = [await state(store, job) for job in (used_up, asked, over, live)]
    assert ends == [State.FAILED, State.CANCELLED, State.CANCELLED, State.QUEUED]


# --- changed at run time ----------------------------------------------------------------------


async def test_jobs_that_ran_before_there_was_a_limit_count(store: Store, lab: Lab) -> None:
    await add(store, 5, limit_key="k")
    claims = await take(store, 3)
    other = await lab.open()
    for scope in (QUEUE, EACH_KEY, TASK):
        await other.limit(scope, at_most(2))
        assert await running(store, scope, claims[0].id) == 3, "those over the limit go on"
        assert await taken(store) == []
        await store.limit(scope, None)
    await other.limit(QUEUE, at_most(3))
    assert await taken(store) == []
    await end(store, claims[0], Succeeded())
    assert len(await taken(store)) == 1
    await other.limit(QUEUE, at_most(2))
    await end(store, claims[1], Succeeded())
    assert await taken(store) == []
    await other.limit(QUEUE, None)
    assert len(await taken(store)) == 1
    assert await store.limits() == []


async def test_a_limit_with_a_higher_rank_stays(store: Store) -> None:
    for rank, count, expected in ((5, 1, 1), (4, 9, 1), (5, 2, 2), (0, 3, 2), (RANKS[1], 7, 7), (6, 8, 7)):
        await store.limit(QUEUE, at_most(count), rank=rank)
        [found] = await store.limits()
        assert found.limit == at_most(expected)
    assert found.rank == RANKS[1]
    await store.limit(QUEUE, None)
    assert await store.limits() == [], "taking away asks for no rank"
    await store.limit(QUEUE, None, rank=3)
    await store.limit(QUEUE, at_most(1))
    assert [(one.rank, one.limit) for one in await store.limits()] == [(0, at_most(1))]


# --- looking ----------------------------------------------------------------------------------


async def test_limits_are_listed_queues_first(store: Store) -> None:
    scopes = [
        Scope(queue="B"),
        Scope(queue="a"),
        Scope(queue="a", each_key=True),
        Scope(queue="ü b", each_key=True),
        Scope(task="A"),
        Scope(task="b"),
        Scope(task="ü"),
    ]
    limits = [Limit(concurrency=n, rate=Rate(n, n * SECOND) if n % 2 else None) for n in range(1, 8)]
    for n in (3, 6, 0, 5, 2, 1, 4):
        await store.limit(scopes[n], limits[n], rank=n)
    running = [None if scope.each_key else 0 for scope in scopes]
    assert await store.limits() == [
        LimitUse(scope=scopes[n], limit=limits[n], rank=n, running=running[n]) for n in range(7)
    ]


async def test_a_job_shows_the_limits_that_it_comes_under(store: Store, lab: Lab) -> None:
    scopes = (QUEUE, EACH_KEY, TASK, Scope(queue="other"), Scope(task="other"), Scope(queue="other", each_key=True))
    for scope in scopes:
        await store.limit(scope, at_most(9))
    keyed, same, another, keyless, elsewhere = [
        job.id
        for job in [
            new(limit_key="k"),
            new(limit_key="k"),
            new(limit_key="l"),
            new(),
            new("other", queue="other", limit_key="k"),
        ]
        if await store.enqueue([job])
    ]
    await take(store, 4)
    assert [(one.scope, one.key, one.running) for one in await store.limits(same)] == [
        (QUEUE, None, 4),
        (EACH_KEY, "k", 2),
        (TASK, None, 4),
    ]
    assert await running(store, EACH_KEY, another) == 1
    assert [one.scope for one in await store.limits(keyless)] == [QUEUE, TASK]
    assert [(one.key, one.running) for one in await store.limits(elsewhere)] == [(None, 0), ("k", 0), (None, 0)]
    await lab.advance(LEASE.total_seconds())
    assert await running(store, EACH_KEY, keyed) == 0
    await store.cancel(only(keyed), force=True)
    assert len(await store.limits(keyed)) == 3, "finished ones, too"
    assert await store.limits(new().id) == []


async def test_limits_are_no_settings_of_a_queue(store: Store) -> None:
    await store.limit(Scope(queue="mail"), at_most(1))
    assert await store.counts() == []


# --- refused ----------------------------------------------------------------------------------

BAD_SCOPES: tuple[Any, ...] = (
    "default",
    None,
    Scope(),
    Scope(queue="a", task="b"),
    Scope(task="b", each_key=True),
    Scope(each_key=True),
    Scope(queue=""),
    Scope(task="b\n"),
)
BAD_LIMITS: tuple[Any, ...] = (
    5,
    Limit(),
    Limit(concurrency=-1),
    Limit(concurrency=CONCURRENCY[1] + 1),
    Limit(concurrency=True),
    Limit(concurrency=1.5),  # type: ignore[arg-type]
)


async def test_bad_limits_are_refused(store: Store) -> None:
    await store.limit(QUEUE, at_most(CONCURRENCY[1]))
    before = await store.limits()
    for scope in BAD_SCOPES:
        for limit in (at_most(1), None):
            with pytest.raises(Refused):
                await store.limit(scope, limit)
    for limit in BAD_LIMITS:
        with pytest.raises(Refused):
            await store.limit(QUEUE, limit)
    for rank in (-1, RANKS[1] + 1, True, "1"):
        with pytest.raises(Refused):
            await store.limit(QUEUE, at_most(1), rank=rank)  # type: ignore[arg-type]
    assert await store.limits() == before
    for key in ("", " k", "k" * 201, 5):
        with pytest.raises(Refused):
            await store.enqueue([new(limit_key=key)])
    assert await every_job(store) == []
    job = await add_one(store, limit_key="ü" * 200)
    assert (await look(store, job)).limit_key == "ü" * 200
    await finish(store, job)


async def test_a_limit_of_another_queue_changes_nothing(store: Store) -> None:
    ids: list[UUID] = await add(store, 3, queue="Mail")
    await store.limit(Scope(queue="mail"), at_most(0))
    await store.limit(Scope(task="Send"), at_most(0))
    assert await taken(store, queue="Mail") == ids
