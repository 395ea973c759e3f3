"""Offers: whoever brings a job claims it for a worker that waits, once, and only as that worker would have."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from dibs.job import Claim, Enqueued, State
from dibs.outcome import Retry, Succeeded, Verdict
from dibs.scope import Limit, Scope
from dibs.store import Offering
from dibs.stores import reckoning
from dibs.worker import lookout as lookout_module
from dibs.worker.claiming import Claimer
from dibs.worker.lookout import Lookout
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.servers import RedisServer, find_redis
from tests.unit.offering import LEASE, LONG, House, PostgresHouse, RedisHouse, is_queued, job
from tests.unit.working import Shop, until

pytestmark = pytest.mark.skipif(not REDIS_LABELS + POSTGRES_LABELS, reason="no server found")


@pytest_asyncio.fixture(params=REDIS_LABELS + POSTGRES_LABELS)
async def house(request: pytest.FixtureRequest, migrated_database: DatabaseFactory) -> AsyncIterator[House]:
    if request.param in POSTGRES_LABELS:
        yield PostgresHouse(migrated_database(request.param))
        return
    [found] = [one for one in find_redis() if one.label == request.param]
    with RedisServer(found) as server:
        built = RedisHouse(server.url())
        yield built
        await built.close()


@pytest_asyncio.fixture
async def there(house: House) -> AsyncIterator[Any]:
    """The handle of whoever brings jobs."""
    store = house.open()
    yield store
    await store.close()


# --- a claim like any other -----------------------------------------------------------------------------------


async def test_a_job_is_claimed_for_whoever_waits_for_it(house: House, there: Any) -> None:
    assert isinstance(there, Offering)
    async with house.waits() as here:
        await here.offer()
        new = job(meta={"m": 1}, max_attempts=3, priority=-2)
        await there.enqueue([new])
        await until(lambda: here.came)
        [(claim, _)] = here.came
        assert (claim.id, claim.epoch, claim.worker, claim.queue, claim.task) == (new.id, 1, "w", "q", "t")
        assert (claim.args, claim.meta, claim.attempt, claim.max_attempts) == ({"ä": "\u2028"}, {"m": 1}, 1, 3)
        found: Any = await there.get(new.id)
        assert (found.state, found.worker, found.locked_until) == (State.RUNNING, "w", claim.locked_until)
        assert (claim.priority, claim.run_at, claim.created_at) == (-2, found.run_at, found.created_at)
        assert (found.attempts, found.started_at + LEASE) == (1, claim.locked_until)
        assert claim.run_at.tzinfo is UTC
        assert await there.claim("q", "other", 1, LEASE) == []
        assert not here.waiting.done(), "it waits on"
        assert await here.store.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]


async def test_what_was_handed_over_runs_also_when_its_worker_has_left(house: House, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
        await there.enqueue([job()])
        await until(lambda: here.came)
    [counted] = await there.counts()
    assert counted.states[State.RUNNING] == 1
    [(claim, _)] = here.came
    assert await there.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]


async def test_a_job_that_was_handed_over_goes_on_like_any_other(house: House, there: Any) -> None:
    async with house.waits() as here:
        await here.offer(frozenset({"t", "u"}))
        new = job(priority=7)
        await there.enqueue([new])
        await until(lambda: here.came)
        [(claim, _)] = here.came
        assert await there.enqueue([new]) == [Enqueued(new.id, created=False)]
        assert await here.store.settle([claim.settled(Retry("once more", timedelta(0)))]) == [Verdict.ACCEPTED]
        [again] = await there.claim("q", "other", 9, LEASE, ["t"])
        assert (again.id, again.epoch, again.attempt, again.priority) == (new.id, 2, 2, 7)
        assert (again.args, again.run_at >= claim.run_at, again.created_at) == (claim.args, True, claim.created_at)
        assert await here.store.settle([claim.settled(Succeeded())]) == [Verdict.LOST]
        assert await there.settle([again.settled(Succeeded())]) == [Verdict.ACCEPTED]
        [counts] = await there.counts()
        assert (counts.queue, counts.states[State.SUCCEEDED], counts.states[State.RUNNING]) == ("q", 1, 0)


async def test_an_offer_is_for_one_job_and_those_who_wait_are_called_for_the_next(house: House, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
        first, second = job(), job()
        await there.enqueue([first])
        await there.enqueue([second])
        assert await here.waiting == {"q"}
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [first.id]
        assert [claim.id for claim in await there.claim("q", "other", 9, LEASE)] == [second.id]


# --- who is not handed anything -------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["task", "retracted", "claims", "over", "paused", "limited", "future", "key", "once"])
async def test_what_the_worker_would_not_get_is_not_handed_to_it(house: House, there: Any, why: str) -> None:
    async with house.waits() as here:
        tasks = frozenset({"other"}) if why == "task" else None
        await here.offer(tasks, timedelta(microseconds=1) if why == "over" else LONG)
        match why:
            case "retracted":
                assert await here.store.retract("w")
                assert not await here.store.retract("w")
            case "claims":
                assert await here.store.claim("q", "w", 1, LEASE) == []
            case "paused":
                await there.pause("q")
            case "limited":
                await there.limit(Scope(queue="q"), Limit(concurrency=1))
        later = datetime.now(UTC) + timedelta(hours=1) if why == "future" else None
        # One that may be tried once only is not risked on the way to somebody who may have been stopped.
        new = job(run_at=later, key="k" if why == "key" else None, max_attempts=1 if why == "once" else 5)
        await there.enqueue([new])
        assert await is_queued(there, new)
        if why in ("task", "retracted", "claims", "over", "limited", "key", "once"):
            assert await here.waiting == {"q"}, "it is called, as always"
        assert here.came == []


async def test_nothing_is_handed_to_those_who_are_gone(house: House, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
    await until(lambda: _is_deaf(house, here.store))
    new = job()
    assert await house.offers() == 1
    await there.enqueue([new])
    assert await is_queued(there, new)
    assert here.came == []
    assert await house.offers() == 0


async def _is_deaf(house: House, store: Any) -> bool:
    return not await house.hears_claims(store)


async def test_of_several_who_wait_only_one_is_called(house: House, there: Any) -> None:
    async with house.waits() as here, house.waits() as idle:
        await here.offer()
        await there.enqueue([job()])
        await until(lambda: here.came)
        await idle.store.counts()  # an answer that comes behind any call
        assert not idle.waiting.done()


# --- how long the lease is certain ----------------------------------------------------------------------------


class Stopwatch:
    """What the handle measures by."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


async def test_a_claim_that_was_long_on_its_way_is_as_old_as_it_is(
    house: House, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be stopped for a minute: what it reads then was claimed a minute ago."""
    watch = Stopwatch()
    monkeypatch.setattr(reckoning, "time", watch)
    async with house.waits() as here:
        await here.offer()
        transport = house.transport(here.store)
        transport.pause_reading()
        await there.enqueue([job()])
        watch.now += 60
        transport.resume_reading()
        await until(lambda: here.came)
        [(_, asked_at)] = here.came
        assert 1_000 <= asked_at < 1_030


# --- a worker -------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(house: House) -> Shop:
    return Shop(house.open)


async def _has_succeeded(shop: Shop, sent: Any) -> bool:
    return (await shop.job(sent)).state is State.SUCCEEDED


async def test_an_idle_worker_leaves_offers_and_takes_back_the_last(
    shop: Shop, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    handed: list[Any] = []

    @shop.task
    async def add(n: int) -> None:
        ran.append(n)

    def noting(claimer: Claimer, claim: Claim, asked_at: float, take: Any = Claimer._handed) -> None:
        handed.append(claim.args["n"])
        take(claimer, claim, asked_at)

    monkeypatch.setattr(Claimer, "_handed", noting)
    async with shop.working(name="w"):
        for n in range(5):
            await until(house.offers)
            sent = await shop.enqueue(add, n)
            await until(partial(_has_succeeded, shop, sent))
    assert ran == handed == list(range(5))
    assert not await house.offers()
    await shop.store.close()


async def test_a_worker_that_has_something_to_do_offers_nothing(
    shop: Shop, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout_module, "LOOK", 0)  # no wait is too short for an offer
    begun, go, looks = [], asyncio.Event(), []

    @shop.task
    async def hold(n: int) -> None:
        begun.append(n)
        await go.wait()

    def noting(lookout: Lookout, idle: Any = Lookout.idle) -> None:
        idle(lookout)
        looks.append(len(begun))

    monkeypatch.setattr(Lookout, "idle", noting)
    async with shop.working(name="w", concurrency=3):
        await until(house.offers)
        await shop.enqueue(hold, 1)
        await until(lambda: begun == [1])
        assert not await house.offers()
        await shop.enqueue(hold, 2)  # by a call and a claim, as always
        await until(lambda: begun == [1, 2])
        await until(lambda: 2 in looks)  # it waits, with a slot that is free
        assert not await house.offers()
        go.set()
        await until(house.offers)
    await shop.store.close()


async def test_an_offer_that_the_store_does_not_take_is_made_again_soon(house: House) -> None:
    refused: list[Any] = []

    def opening() -> Any:
        store = house.open()
        offer = store.offer

        async def reluctant(queues: Any, offered: Any) -> bool:
            refused.append(offered)
            taken: bool = len(refused) > 3 and await offer(queues, offered)
            return taken

        store.offer = reluctant
        return store

    shop = Shop(opening)

    @shop.task
    async def add(n: int) -> None: ...

    async with shop.working(name="w"):
        await until(house.offers, 5)  # the next wait would begin later
    assert len(refused) > 3
    await shop.store.close()


async def test_a_job_that_is_handed_over_while_the_worker_stops_is_not_left_behind(house: House) -> None:
    late: list[Any] = []

    def opening() -> Any:
        store = house.open()
        retract = store.retract

        async def too_late(worker: str) -> bool:
            late.append(await shop.enqueue(add, 1))
            stood: bool = await retract(worker)
            return stood

        store.retract = too_late
        return store

    shop = Shop(opening)

    @shop.task
    async def add(n: int) -> None: ...

    async with shop.working(name="w"):
        await until(house.offers)
    assert late  # twice, if it stops before it has heard that its offer stands
    assert {(await shop.job(sent)).state for sent in late} <= {State.SUCCEEDED, State.QUEUED}
    await shop.store.close()
