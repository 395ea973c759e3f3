"""How outcomes reach the store: what ends together goes together."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from dibs import App
from dibs.job import NewJob, Settlement, State
from dibs.outcome import Succeeded, Verdict
from dibs.stores.memory import MemoryStore
from dibs.worker.outage import Weather
from dibs.worker.plan import Plan
from dibs.worker.run import Run
from dibs.worker.settling import MANY, Ended, Settler

LEASE = timedelta(minutes=1)


class Told(MemoryStore):
    """A memory store that remembers how many were settled in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        self.sizes.append(len(settlements))
        return await super().settle(settlements)


class Ending:
    """A settler with runs to end. When all but two are settled, one of them ends at once, the other a step later."""

    def __init__(self, store: Told, runs: list[Run]) -> None:
        self.runs, self.done = runs, asyncio.Event()
        self.left = len(runs)
        self.settler = Settler("ann", store, Weather("ann"), self._settled)

    def end(self, count: int) -> None:
        for _ in range(count):
            self.settler.add(self.runs.pop(), Succeeded())

    def _settled(self, batch: Sequence[Ended], verdicts: Sequence[Verdict]) -> None:
        assert set(verdicts) == {Verdict.ACCEPTED}
        self.left -= len(batch)
        if self.left == 0:
            self.done.set()
        elif self.left == 2:
            self.end(1)
            asyncio.get_running_loop().call_soon(self.end, 1)


async def _ending(store: Told, count: int) -> Ending:
    """So many have just ended, and two more will."""
    app = App("memory://")

    @app.task
    async def nothing() -> None: ...

    await store.enqueue([NewJob(task=nothing.name) for _ in range(count + 2)])
    claims = await store.claim("default", "ann", count + 2, LEASE)
    plan = Plan(nothing, LEASE)
    ending = Ending(store, [Run(claim, plan, 0.0, 0.0, LEASE.total_seconds()) for claim in claims])
    ending.end(count)
    return ending


async def _sizes(count: int) -> list[int]:
    """In how many calls they are settled."""
    store = Told()
    ending = await _ending(store, count)
    await asyncio.wait_for(ending.done.wait(), 10)
    [counted] = await store.counts()
    assert counted.states[State.SUCCEEDED] == count + 2
    return store.sizes


async def test_what_ends_in_the_moment_after_many_were_settled_goes_together() -> None:
    assert await _sizes(MANY) == [MANY, 2]


async def test_what_ends_after_few_were_settled_is_settled_at_once() -> None:
    assert await _sizes(MANY - 1) == [MANY - 1, 1, 1]


async def test_a_worker_that_stops_makes_no_pause() -> None:
    store = Told()
    ending = await _ending(store, MANY)
    assert await ending.settler.close(10) == 0
    assert store.sizes[:2] == [MANY, 1]
