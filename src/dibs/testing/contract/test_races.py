"""Races: many processes, one store. Every claim is logged by its owner, and an oracle reads the logs."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from dibs.job import Claim, Enqueued, Retention, State
from dibs.outcome import Outcome, Pulse, Released, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import START, FakeClock
from dibs.testing.contract.arena import FULL, Arena, open_arena, racers
from dibs.testing.contract.helpers import (
    ALL,
    LEASE,
    OUTCOMES,
    add,
    add_one,
    every_job,
    look,
    new,
    only,
    picture,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab
from dibs.testing.oracle import faults, read
from dibs.testing.racer import Orders

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1_800)]


def rounds(lab: Lab) -> int:
    return 10_000 if FULL else 200 if lab.at_length else 100


# --- who gets which job -----------------------------------------------------------------------


async def fill(store: Store, count: int) -> list[Any]:
    """That many jobs, a few thousand a call."""
    jobs = []
    for first in range(0, count, 5_000):
        jobs += await add(store, min(5_000, count - first), queue="race")
    return jobs


async def check(arena: Arena, jobs: list[Any]) -> None:
    """Every job was given out once, to one owner, who finished it."""
    runs = read(arena.folder)
    assert faults(runs, await arena.jobs(), jobs) == []
    assert len(runs) == len(jobs)
    assert {run.epoch for run in runs} == {1}
    [queue] = await arena.store.counts()
    assert queue.states[State.SUCCEEDED] == len(jobs)


async def test_ten_claimers_share_ten_jobs_in_a_race(lab: Lab, tmp_path: Path) -> None:
    async with open_arena(lab, tmp_path) as arena:
        jobs = await fill(arena.store, 10)
        await arena.run(10)
        await check(arena, jobs)


async def test_ten_processes_share_20000_jobs_in_a_race(lab: Lab, tmp_path: Path) -> None:
    async with open_arena(lab, tmp_path) as arena:
        jobs = await fill(arena.store, 20_000 if lab.at_length or FULL else 2_000)
        await arena.run(10, batches=(1, 5, 20, 50))
        await check(arena, jobs)


async def test_64_claimers_in_8_processes_never_share_a_job_in_a_race(lab: Lab, tmp_path: Path) -> None:
    async with open_arena(lab, tmp_path) as arena:
        jobs = await fill(arena.store, lab.race_jobs if FULL else lab.race_jobs // 10 if lab.at_length else 4_000)
        await arena.run(8, claimers=8, batches=(1, 3, 17, 100, 200))
        await check(arena, jobs)


async def test_jobs_of_killed_processes_come_back_in_a_race(lab: Lab, tmp_path: Path) -> None:
    async with open_arena(lab, tmp_path) as arena:
        if arena.url is None:
            pytest.skip("threads cannot be killed")
        store, jobs = arena.store, await fill(arena.store, 120)
        orders = [Orders(name=f"p{n}", url=arena.url, folder=str(tmp_path), lease=1.0, hold=25) for n in range(4)]
        async with racers(orders) as started:
            await started.all_say("holding")
            for pid in started.pids:
                os.kill(pid, signal.SIGKILL)
            assert await started.ends() == [-signal.SIGKILL] * len(orders)
        got = await drain(store, len(jobs))
    assert sorted(claim.id for claim in got) == sorted(jobs)
    assert sorted(claim.epoch for claim in got) == [1] * 20 + [2] * 100


async def drain(store: Store, count: int) -> list[Claim]:
    """Claim and settle that many jobs, as they become due; a minute at most."""
    got: list[Claim] = []
    deadline = monotonic() + 60
    while len(got) < count:
        assert monotonic() < deadline, f"{count - len(got)} jobs did not come back"
        await store.wait(["race"], timedelta(seconds=1))
        claims = await take(store, 50, queue="race", worker="heir", lease=timedelta(minutes=5))
        await store.settle([claim.settled(Succeeded()) for claim in claims])
        got += claims
    return got


# --- a late owner -----------------------------------------------------------------------------


async def test_a_late_owner_changes_nothing_however_the_race_goes(store: Store, lab: Lab) -> None:
    others = [await lab.open() for _ in range(3)]
    for number in range(rounds(lab) // 20):
        await late_owner(store, others, lab, Random(number))


async def late_owner(ann: Store, others: list[Store], lab: Lab, random: Random) -> None:
    """Twenty jobs whose leases ended: Ann goes on with them while others claim and settle them."""
    jobs = await add(ann, 20, max_attempts=2)
    held = await take(ann, 20, worker="ann")
    assert [claim.id for claim in held] == jobs
    await lab.advance(LEASE.total_seconds())
    new_claims: list[Claim] = []

    async def heir(store: Store, name: str) -> None:
        for claim in await take(store, 7, worker=name):
            new_claims.append(claim)
            if random.random() < 0.5:
                assert await store.settle([claim.settled(Succeeded(name))]) == [Verdict.ACCEPTED]

    async def late(claim: Claim) -> None:
        outcome = random.choice(OUTCOMES)
        if random.random() < 0.5:
            assert await ann.heartbeat("ann", [claim], LEASE) == [Pulse.LOST]
        assert await ann.settle([claim.settled(outcome)]) == [Verdict.LOST]

    calls: list[Awaitable[None]] = [late(claim) for claim in held]
    calls += [heir(store, f"heir{n}") for n, store in enumerate(others)]
    random.shuffle(calls)
    await asyncio.gather(*calls)
    if lab.passes_over:  # what was being looked at by another is claimed now
        new_claims += await take(others[0], 20, worker="heir0")
    assert sorted(claim.id for claim in new_claims) == sorted(jobs)
    for job in await every_job(ann):
        assert (job.epoch, job.attempts, len(job.errors)) == (2, 2, 1)
        assert job.state in {State.RUNNING, State.SUCCEEDED}
        assert job.worker == next(claim.worker for claim in new_claims if claim.id == job.id)
    await ann.delete(ALL, force=True)


# --- several verbs, one job -------------------------------------------------------------------

Op = Callable[[Store, Claim], Awaitable[Any]]


def settles(outcome: Outcome) -> Op:
    return lambda store, claim: store.settle([claim.settled(outcome)])


OPS: dict[str, Op] = {
    "succeed": settles(Succeeded("ann")),
    "retry": settles(Retry("boom")),
    "release": settles(Released()),
    "beat": lambda store, claim: store.heartbeat("ann", [claim], LEASE),
    "claim": lambda store, claim: take(store, 5, worker="bob"),
    "cancel": lambda store, claim: store.cancel(only(claim.id)),
    "cancel by force": lambda store, claim: store.cancel(only(claim.id), force=True),
    "sweep": lambda store, claim: store.sweep(),
    "requeue": lambda store, claim: store.requeue(only(claim.id)),
    "reprioritise": lambda store, claim: store.reprioritise(only(claim.id), 3),
    "delete": lambda store, claim: store.delete(only(claim.id)),
    "delete by force": lambda store, claim: store.delete(only(claim.id), force=True),
}
JOB = new(key="k", max_attempts=2)


PASSED_OVER: dict[str, Any] = {"claim": [], "sweep": 0}
"""What these answer if the one job is being changed by another call, and the store does not wait for it."""


class Explanations:
    """What the model says can come of verbs that are called at once: one result for each order."""

    def __init__(self, passes_over: bool) -> None:
        self._passes_over = passes_over
        self._known: dict[tuple[tuple[str, ...], bool], list[Any]] = {}

    async def of(self, names: tuple[str, ...], expired: bool) -> list[Any]:
        if (names, expired) not in self._known:
            orders = permutations(range(len(names)))
            self._known[names, expired] = [
                await self._play(names, expired, one, passed) for one in orders for passed in self._passed(names)
            ]
        return self._known[names, expired]

    def _passed(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The sets of verbs that may have found nothing because others were at it."""
        may = [name for name in names if self._passes_over and name in PASSED_OVER]
        return [some for size in range(len(may) + 1) for some in combinations(may, size)]

    async def _play(
        self, names: tuple[str, ...], expired: bool, order: tuple[int, ...], passed: tuple[str, ...]
    ) -> Any:
        clock = FakeClock(START)
        model = MemoryStore(clock=clock)
        await model.enqueue([JOB])
        claim = await take_one(model)
        clock.advance(LEASE * expired)
        answers = {n: PASSED_OVER[names[n]] for n in order if names[n] in passed}
        for n in order:
            if n not in answers:
                answers[n] = await OPS[names[n]](model, claim)
        return [answers[n] for n in range(len(names))], await picture(model)


async def test_verbs_that_race_for_one_job_take_effect_one_after_another(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(4)]
    random, explanations = Random(1), Explanations(lab.passes_over)
    for _ in range(rounds(lab)):
        names = tuple(random.sample(sorted(OPS), random.randint(2, 4)))
        expired = random.random() < 0.4
        await lab.set_clock(START)
        await store.enqueue([JOB])
        claim = await take_one(store)
        if expired:
            await lab.set_clock(START + LEASE)
        calls = [partial(OPS[name], handles[n], claim) for n, name in enumerate(names)]
        result = (await at_once(lab, calls), await picture(store))
        explained = await explanations.of(names, expired)
        assert result in explained, unexplained(names, result, explained)
        await forget(store, lab)


def unexplained(names: tuple[str, ...], result: Any, explained: list[Any]) -> str:
    """What came out, and what would have been right."""
    lines = [f"{names} answered", str(result), "which is none of"]
    return "\n".join([*lines, *{str(one): None for one in explained}])


async def at_once(lab: Lab, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Call all of them at the same time, in threads where one handle is all there is."""

    async def awaited(one: Callable[[], Awaitable[Any]]) -> Any:
        return await one()

    def call(one: Callable[[], Awaitable[Any]]) -> Any:
        return asyncio.run(awaited(one))  # made in its thread: one that never starts leaves nothing behind

    if lab.threadsafe:
        return list(await asyncio.gather(*(asyncio.to_thread(call, one) for one in calls)))
    return list(await asyncio.gather(*(one() for one in calls)))


async def forget(store: Store, lab: Lab) -> None:
    """Jobs and workers of the last round."""
    await store.delete(ALL, force=True)
    if await store.workers():
        await lab.set_clock(START + timedelta(days=2))
        await store.prune(Retention())


# --- one key ----------------------------------------------------------------------------------


async def test_a_hundred_enqueues_that_race_for_a_key_store_one_job(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(8)]
    keys = [f"k{n}" for n in range(1_000 if FULL else 100)]

    async def caller(n: int) -> dict[str, Enqueued]:
        mine = Random(n).sample(keys, len(keys))
        answers = await handles[n % 8].enqueue([new(key=key, args=n) for key in mine])
        return dict(zip(mine, answers, strict=True))

    answers = await asyncio.gather(*(caller(n) for n in range(100)))
    owners = {job.key: job.id for job in await every_job(store)}
    assert len(await every_job(store)) == len(owners) == len(keys)
    for key in keys:
        assert {answer[key].id for answer in answers} == {owners[key]}
        assert sum(answer[key].created for answer in answers) == 1


async def test_enqueues_of_one_job_that_race_store_it_once(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(5)]
    job = new(key="k")
    answers = await asyncio.gather(*(handles[n % 5].enqueue([job]) for n in range(50)))
    assert sum(one.created for [one] in answers) == 1
    assert {one.id for [one] in answers} == {job.id}
    assert (await look(store, job.id)).state is State.QUEUED
    assert await add_one(store) != job.id
