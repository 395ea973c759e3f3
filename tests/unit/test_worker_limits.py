"""Workers under limits: room that comes free is used at once, nobody spins, and the store learns what code says."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dibs import App, Limit, Rate, Scope
from dibs.attempt import current
from dibs.job import Claim, NewJob, State
from dibs.limiting import GONE, IN_CODE, tell
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.testing.flaky import FlakyStore
from dibs.worker import Stats, lookout
from dibs.worker.outage import Weather
from tests.unit.working import Shop, until

QUEUE = Scope(queue="default")


class Counted(MemoryStore):
    """When each claim was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[float] = []

    async def claim(self, *args: Any, **named: Any) -> list[Claim]:
        self.claims.append(time.monotonic())
        return await super().claim(*args, **named)

    def was_asked(self, times: int) -> bool:
        return len(self.claims) >= times


def _started(stats: Stats, count: int) -> bool:
    return stats.started == count


def running_counter(shop: Shop) -> tuple[Callable[[], int], Any]:
    """A task that knows how many of it run, and the most that ever did."""
    running = most = 0

    @shop.task
    async def quick() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    return (lambda: most), quick


async def test_a_slot_that_comes_free_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that had nothing is left alone for an hour here: waiting for that would never end."""
    monkeypatch.setattr(lookout, "FIRST_SULK", 3600.0)
    monkeypatch.setattr(lookout, "LONGEST_SULK", 3600.0)
    store, gates = Counted(), [asyncio.Event() for _ in range(5)]
    shop = Shop(lambda: store)

    @shop.task
    async def hold(number: int) -> None:
        await gates[number].wait()

    await store.limit(QUEUE, Limit(concurrency=1))
    for number in range(5):
        await shop.enqueue(hold, number)
    async with shop.working(concurrency=10) as worker:
        for number, gate in enumerate(gates, 1):
            await until(partial(_started, worker.stats, number))
            await until(partial(store.was_asked, number * 3 if number < 5 else 0))
            gate.set()
        await until(lambda: worker.stats.succeeded == 5)


async def test_many_quick_jobs_under_a_narrow_limit_do_not_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "FIRST_SULK", 3600.0)
    monkeypatch.setattr(lookout, "LONGEST_SULK", 3600.0)
    store = Counted()
    shop = Shop(lambda: store)
    most, quick = running_counter(shop)
    await store.limit(QUEUE, Limit(concurrency=2))
    for _ in range(200):
        await shop.enqueue(quick)
    async with shop.working(concurrency=10) as worker:
        await until(lambda: worker.stats.succeeded == 200)
    assert most() == 2
    assert len(store.claims) < 200 * 3


async def test_only_where_jobs_are_due_does_a_queue_count_as_held_back() -> None:
    asked = lookout.Lookout(["a", "b"], MemoryStore(), Weather("w"), lambda: None)
    for queue in ("a", "b"):
        assert asked.pick(1) == (queue, 1)
        asked.brought(queue, 0)
    lanes = list(asked._lanes.values())
    asked._called(lanes, frozenset({"a"}))  # b is not named: nothing is due there
    assert asked.pick(1) == ("a", 1)
    asked.brought("a", 0)
    asked.freed()
    assert asked.pick(1) == ("a", 1)
    asked.freed()  # while the claim is on its way
    asked.brought("a", 0)
    assert asked.pick(1) == ("a", 1)
    asked.brought("a", 0)
    assert asked.pick(1) is None
    asked._called(lanes, frozenset())  # the fallback: nobody knows of anything
    for queue in ("a", "b"):
        assert asked.pick(1) == (queue, 1)
        asked.brought(queue, 0)
    asked.freed()
    assert asked.pick(1) is None


async def test_a_drain_goes_through_a_narrow_limit() -> None:
    shop = Shop()
    most, quick = running_counter(shop)
    await shop.store.limit(QUEUE, Limit(concurrency=2))
    for _ in range(200):
        await shop.enqueue(quick)
    assert (await shop.drain(concurrency=10)).succeeded == 200
    assert most() == 2


async def test_an_idle_worker_in_front_of_held_back_jobs_asks_ever_more_seldom() -> None:
    store = Counted()
    shop = Shop(lambda: store)
    _, quick = running_counter(shop)
    await store.limit(QUEUE, Limit(concurrency=0))
    await shop.enqueue(quick)
    async with shop.working():
        await until(lambda: len(store.claims) >= 8)
    # The first finds nothing, the second was called for; from then on it waits twice as long each time.
    least = sum(min(lookout.FIRST_SULK * 2**n, lookout.LONGEST_SULK) / 2 for n in range(6))
    assert store.claims[7] - store.claims[1] >= least


async def test_a_limit_that_is_lifted_lets_jobs_start_without_anybodys_help() -> None:
    shop = Shop()
    _, quick = running_counter(shop)
    await shop.store.limit(QUEUE, Limit(concurrency=0))
    await shop.enqueue(quick)
    async with shop.working() as worker:
        await shop.store.limit(QUEUE, None)
        await until(lambda: worker.stats.succeeded == 1)


# --- limits in code -------------------------------------------------------------------------------------------


async def test_a_worker_puts_the_limits_of_its_code_into_the_store_before_it_claims() -> None:
    app = App("memory://")
    seen: list[dict[Scope, Limit]] = []

    @app.task(concurrency=3, rate="10/s")
    async def charge() -> None:
        store = await app.store()
        seen.append({use.scope: use.limit for use in await store.limits()})

    app.limit(queue="default", concurrency=5)
    await charge.enqueue()
    await app.drain()
    limit = Limit(concurrency=3, rate=Rate(10, per=1))
    assert seen == [{Scope(task="charge"): limit, Scope(queue="default"): Limit(concurrency=5)}]


async def test_what_an_operator_set_stays_until_it_is_reset_and_then_the_code_counts() -> None:
    app = App("memory://")
    app.limit(queue="mail", concurrency=5)
    store = await app.store()
    await app.limits.set(queue="mail", concurrency=1)
    await tell(store, app.tasks.limits)
    [one] = await app.limits.list()
    assert (one.limit, one.by, one.in_code) == (Limit(concurrency=1), "operator", Limit(concurrency=5))
    assert await app.limits.reset(queue="mail") == Limit(concurrency=5)
    [one] = await app.limits.list()
    assert (one.limit, one.by) == (Limit(concurrency=5), "code")


async def test_a_reset_by_somebody_without_the_code_finds_what_workers_declared() -> None:
    store = MemoryStore()
    worker, operator = App(store=store), App(store=store)
    worker.limit(queue="mail", concurrency=5)
    await tell(store, worker.tasks.limits)
    await operator.limits.set(queue="mail", concurrency=1)
    assert await operator.limits.reset(queue="mail") == Limit(concurrency=5)
    await operator.limits.set(task="other", concurrency=1)
    assert await operator.limits.reset(task="other") is None
    assert [one.scope for one in await operator.limits.list()] == [Scope(queue="mail")]


async def test_new_code_changes_its_limit_and_one_that_is_gone_from_the_code_goes() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    old, new, without = App(store=store), App(store=store), App(store=store)
    old.limit(queue="mail", concurrency=5)
    new.limit(queue="mail", concurrency=7)
    await tell(store, old.tasks.limits)
    await tell(store, new.tasks.limits)
    assert [use.limit for use in await store.limits()] == [Limit(concurrency=7)]
    clock.advance(GONE)
    await tell(store, without.tasks.limits)
    assert len(await store.limits()) == 1, "its workers may be away for a moment"
    clock.advance(timedelta(seconds=1))
    await tell(store, without.tasks.limits)
    assert (await store.limits(), (await store.kept([IN_CODE])).values[IN_CODE]) == ([], {})


async def test_what_an_operator_set_outlives_the_code() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    app = App(store=store)
    app.limit(queue="mail", concurrency=5)
    await tell(store, app.tasks.limits)
    await app.limits.set(queue="mail", concurrency=1)
    clock.advance(2 * GONE)
    await tell(store, {})
    assert [use.limit for use in await store.limits()] == [Limit(concurrency=1)]


async def test_a_store_that_is_away_when_a_worker_starts_gets_the_limits_later() -> None:
    store = FlakyStore(MemoryStore())
    app = App(store=store)

    @app.task(concurrency=3)
    async def charge() -> None: ...

    store.fail_next("kept", times=3)
    worker = app.worker()
    going = asyncio.create_task(worker.run())

    async def there() -> bool:
        return bool(await store.limits())

    await until(there)
    worker.stop()
    await going


async def test_a_worker_that_may_not_set_limits_says_so_once_and_works(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()

    async def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError("permission denied for function limit")

    store.limit = forbidden  # type: ignore[method-assign]
    app = App(store=store)

    @app.task(concurrency=3)
    async def charge() -> None: ...

    await charge.enqueue()
    assert (await app.drain()).succeeded == 1
    [said] = [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    assert "the limits of the code cannot be put into the store: permission denied" in said


# --- drain ----------------------------------------------------------------------------------------------------


async def test_a_drain_ends_and_counts_what_limits_hold_back() -> None:
    app = App("memory://")

    @app.task(rate="3/h")
    async def charge(n: int) -> None: ...

    @app.task
    async def free() -> None: ...

    for number in range(5):
        await charge.enqueue(number)
        await free.enqueue()
    await app.enqueue([NewJob(task="of another program")])
    done = await app.drain()
    assert (done.succeeded, done.held_back) == (8, 2)
    await app.limits.set(task=charge, concurrency=9)
    assert (await app.drain()).held_back == 0


async def test_a_handler_that_runs_counts_against_its_own_limit() -> None:
    app, seen = App("memory://"), list[int | None]()

    @app.task(concurrency=1)
    async def charge() -> None:
        store = await app.store()
        [use] = await store.limits(current().id)
        seen.append(use.running)

    for _ in range(3):
        await charge.enqueue()
    await app.drain()
    assert seen == [1, 1, 1]
    assert {job.state for job in (await (await app.store()).find(_all())).jobs} == {State.SUCCEEDED}


def _all() -> Any:
    from dibs import Filter

    return Filter()
