"""Limits when many claim at once: never exceeded at any moment, and in the end every job was run."""

import threading
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from dibs.job import Claim, Filter, State
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.store import Store
from dibs.testing.contract.arena import FULL, Arena, open_arena
from dibs.testing.contract.helpers import EACH_KEY, LEASE, QUEUE, TASK, add, new, running, take
from dibs.testing.contract.test_races import at_once, fill
from dibs.testing.labs.base import Lab
from dibs.testing.oracle import Run, faults, most_at_once, read

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1_800)]

ALLOWED = {QUEUE: 7, EACH_KEY: 2, TASK: 5}
KEYS = ("a", "b", "c", "d", "e", None)
RUNNING = Filter(states=(State.RUNNING,))


class Observer:
    """Who holds what: from when a claim was answered until its settle is sent, or until its lease ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[object, tuple[str, str | None]] = {}

    def took(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            self._held |= {claim.id: (claim.task, claim.meta["key"]) for claim in claims}
            check(self._held.values())

    def gave_back(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            for claim in claims:
                del self._held[claim.id]

    def all_expired(self) -> None:
        self._held.clear()


def check(held: Iterable[tuple[str, str | None]]) -> None:
    """These tasks and limit keys may run at the same time."""
    held = list(held)
    assert len(held) <= ALLOWED[QUEUE]
    assert sum(task == "send" for task, _ in held) <= ALLOWED[TASK]
    keys = Counter(key for _, key in held if key is not None)
    assert max(keys.values(), default=0) <= ALLOWED[EACH_KEY]


async def claimer(store: Store, name: str, observer: Observer, now: datetime) -> None:
    """Claims a few times, settles most of what it gets, and is dead for the rest."""
    random = Random(name)
    for n in range(5):
        claims = await take(store, random.randint(1, 4), worker=name)
        observer.took(claims)
        if n == 2:
            # What a dead claimer of another round held has expired by the store's clock, which stands still in a round.
            # It is left running if jobs before it, which were held back in that round, have taken its place.
            jobs = [job for job in (await store.find(RUNNING)).jobs if job.locked_until and job.locked_until > now]
            check((job.task, job.limit_key) for job in jobs)
            await store.limit(QUEUE, Limit(concurrency=ALLOWED[QUEUE]))  # as it was: a change, all the same
        done = [claim for claim in claims if random.random() < 0.8]
        observer.gave_back(done)
        await store.settle([claim.settled(Succeeded()) for claim in done])


async def test_claimers_that_race_never_exceed_a_limit(store: Store, lab: Lab) -> None:
    handles, observer = [await lab.open() for _ in range(8)], Observer()
    for scope, count in ALLOWED.items():
        await store.limit(scope, Limit(concurrency=count))
    random = Random(1)
    wanted = [(random.choice(("send", "other")), random.choice(KEYS)) for _ in range(100)]
    await store.enqueue([new(task, limit_key=key, max_attempts=99, meta={"key": key}) for task, key in wanted])
    for number in range(40):
        names = [f"{number}.{n}" for n in range(8)]
        await at_once(
            lab,
            [partial(claimer, handle, name, observer, lab.now) for handle, name in zip(handles, names, strict=True)],
        )
        observer.all_expired()
        await lab.advance(LEASE.total_seconds())
        assert await running(store) == 0
        if (await store.counts())[0].states[State.SUCCEEDED] == len(wanted):
            return
    raise AssertionError("some jobs were never run")


async def test_claimers_that_race_never_exceed_a_rate(store: Store, lab: Lab) -> None:
    handles = [await lab.open() for _ in range(6)]
    await store.limit(QUEUE, Limit(rate=Rate(20, timedelta(seconds=20))))
    await store.limit(EACH_KEY, Limit(rate=Rate(15, timedelta(seconds=15))))
    await add(store, 60, limit_key="a")
    await add(store, 60, limit_key="b")

    async def claims(handle: Store) -> list[Claim]:
        return [claim for _ in range(3) for claim in await take(handle, 4)]

    for expected, seconds in ((20, 5), (5, 0), (0, 1_000), (20, 0)):
        got = [claim for some in await at_once(lab, [partial(claims, handle) for handle in handles]) for claim in some]
        assert len(got) <= expected
        got += await take(store)  # what was passed over
        assert len({claim.id for claim in got}) == len(got) == expected
        await store.settle([claim.settled(Succeeded()) for claim in got])
        await lab.advance(seconds)


async def test_many_processes_never_exceed_a_limit_in_a_race(lab: Lab, tmp_path: Path) -> None:
    """A worker died with half of the slots; they come back when its leases end."""
    allowed, processes, claimers = (12, 8, 8) if FULL else (6, 2, 8)
    async with open_arena(lab, tmp_path) as arena:
        jobs = await fill(arena.store, 50_000 if FULL else 250)
        await arena.store.limit(Scope(queue="race"), Limit(concurrency=allowed))
        dead = await dead_runs(arena, allowed // 2)
        await arena.run(processes, claimers=claimers, batches=(1, 2, 5), limited=True)
        runs = read(tmp_path)
        assert faults(runs, await arena.jobs(), jobs) == []
        assert len(runs) == len(jobs)
        assert 1 < most_at_once([*runs, *dead]) <= allowed


async def dead_runs(arena: Arena, count: int) -> list[Run]:
    """What a worker claimed that died; none where the clock stands still, for there they would never end."""
    if arena.url is None:
        return []
    lease, asked = timedelta(seconds=1), monotonic()
    claims = await take(arena.store, count, queue="race", worker="dead", lease=lease)
    start, end = monotonic(), asked + lease.total_seconds()
    return [Run(job=claim.id, epoch=claim.epoch, worker="dead", start=start, end=end) for claim in claims]
