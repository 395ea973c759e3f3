"""Offers on Redis: whoever brings a job claims it for a worker that waits, once, and only as that worker would have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from dibs.job import Claim, Enqueued, NewJob, Order, State
from dibs.outcome import Retry, Succeeded, Verdict
from dibs.scope import Limit, Scope
from dibs.store import Offer, Offering
from dibs.stores.redis import RedisStore
from dibs.stores.redis import offers as offers_module
from dibs.worker import lookout as lookout_module
from tests.conftest import REDIS_LABELS
from tests.servers import RedisServer, find_redis
from tests.unit.working import Shop, until

LEASE = timedelta(minutes=1)
LONG = timedelta(seconds=20)

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
def server(request: pytest.FixtureRequest) -> Any:
    """A server of its own: channels belong to the whole server."""
    [found] = [one for one in find_redis() if one.label == request.param]
    with RedisServer(found) as server:
        yield server


@pytest_asyncio.fixture
async def there(server: RedisServer) -> AsyncIterator[RedisStore]:
    """The handle of whoever brings jobs."""
    store = RedisStore(server.url())
    yield store
    await store.close()


class Waiting:
    """A worker that waits on a queue, and what it was handed."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.came: list[tuple[Claim, float]] = []
        self.waiting: asyncio.Task[frozenset[str]]

    async def offer(self, tasks: frozenset[str] | None = None, good_for: timedelta = LONG) -> None:
        took = Offer("w", LEASE, tasks, lambda claim, asked_at: self.came.append((claim, asked_at)), good_for)
        await self.store.offer(["q"], took)
        root = self.store._link.root
        await until(lambda: _listens(self.store, root + b"hand:w"))


async def _listens(store: RedisStore, channel: bytes) -> bool:
    [[_, count]] = await store._link.exchange(("PUBSUB", "NUMSUB", channel))
    return bool(count)


async def _ask(store: RedisStore, command: str, key: bytes, *more: str) -> Any:
    [answer] = await store._link.exchange((command, store._link.root + key, *more))
    return answer


@asynccontextmanager
async def waits(server: RedisServer) -> AsyncIterator[Waiting]:
    """Somebody who waits and listens; no offer yet."""
    store = RedisStore(server.url())
    waiting = Waiting(store)
    waiting.waiting = asyncio.create_task(store.wait(["q"], LONG))
    root = store._link.root
    await until(lambda: _listens(store, root + b"wake"))
    await until(lambda: _ask(store, "SISMEMBER", b"sleeping", "q"))
    try:
        yield waiting
    finally:
        waiting.waiting.cancel()
        await asyncio.wait([waiting.waiting])
        await store.close()


def job(**how: Any) -> NewJob:
    return NewJob(**{"task": "t", "queue": "q", "args": {"ä": "\u2028"}, **how})


# --- a claim like any other -----------------------------------------------------------------------------------


async def test_a_job_is_claimed_for_whoever_waits_for_it(server: RedisServer, there: RedisStore) -> None:
    assert isinstance(there, Offering)
    async with waits(server) as here:
        await here.offer()
        new = job(meta={"m": 1}, max_attempts=3)
        await there.enqueue([new])
        await until(lambda: here.came)
        [(claim, _)] = here.came
        assert (claim.id, claim.epoch, claim.worker, claim.queue, claim.task) == (new.id, 1, "w", "q", "t")
        assert (claim.args, claim.meta, claim.attempt, claim.max_attempts) == ({"ä": "\u2028"}, {"m": 1}, 1, 3)
        found = await there.get(new.id)
        assert found is not None
        assert (found.state, found.worker, found.locked_until) == (State.RUNNING, "w", claim.locked_until)
        assert await there.claim("q", "other", 1, LEASE) == []
        assert not here.waiting.done(), "it waits on"
        assert await here.store.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]


async def test_a_job_that_was_handed_over_goes_on_like_any_other(server: RedisServer, there: RedisStore) -> None:
    async with waits(server) as here:
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
        assert (counts.queue, counts.states[State.SUCCEEDED]) == ("q", 1)
        assert await _ask(there, "HLEN", b"held") == 0


async def test_an_offer_is_for_one_job_and_those_who_wait_are_called_for_the_next(
    server: RedisServer, there: RedisStore
) -> None:
    async with waits(server) as here:
        await here.offer()
        first, second = job(), job()
        await there.enqueue([first])
        await there.enqueue([second])
        assert await here.waiting == {"q"}
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [first.id]
        assert [claim.id for claim in await there.claim("q", "other", 9, LEASE)] == [second.id]


async def test_the_first_in_the_order_is_handed_over_and_the_other_one_called_for(
    server: RedisServer, there: RedisStore
) -> None:
    async with waits(server) as here:
        first, second = job(priority=-1), job()
        await there.enqueue([first])
        assert await here.waiting == {"q"}
        await _ask(there, "SADD", b"sleeping", "q")  # it waits again, without having claimed
        here.waiting = asyncio.create_task(here.store.wait(["another"], LONG))
        await here.offer()
        await there.enqueue([second])
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [first.id]
        assert not await _ask(there, "SISMEMBER", b"sleeping", "q"), "somebody was called"


# --- who is not handed anything -------------------------------------------------------------------------------


async def _queued(store: RedisStore, new: NewJob) -> bool:
    found = await store.get(new.id)
    return found is not None and found.state is State.QUEUED


@pytest.mark.parametrize("why", ["task", "retracted", "claims", "over", "paused", "limited", "lifo", "future", "key"])
async def test_what_the_worker_would_not_get_is_not_handed_to_it(
    server: RedisServer, there: RedisStore, why: str
) -> None:
    async with waits(server) as here:
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
            case "lifo":
                await there.configure("q", order=Order.LIFO)
        later = datetime.now(UTC) + timedelta(hours=1) if why == "future" else None
        new = job(run_at=later, key="k" if why == "key" else None)
        await there.enqueue([new])
        assert await _queued(there, new)
        if why in ("task", "retracted", "claims", "over", "limited", "lifo", "key"):
            assert await here.waiting == {"q"}, "it is called, as always"
        assert here.came == []


async def test_nothing_is_handed_to_those_who_are_gone_and_their_offers_are_dropped(
    server: RedisServer, there: RedisStore
) -> None:
    async with waits(server) as here:
        await here.offer()
    root = there._link.root
    await until(lambda: _nobody(there, root + b"hand:w"))
    assert await _ask(there, "HLEN", b"offers") == 1
    new = job()
    await there.enqueue([new])
    assert await _queued(there, new)
    assert here.came == []
    for key in (b"offers", b"offers:q"):
        assert not await _ask(there, "EXISTS", key)


async def _nobody(store: RedisStore, channel: bytes) -> bool:
    return not await _listens(store, channel)


async def test_of_several_who_wait_only_one_is_called(server: RedisServer, there: RedisStore) -> None:
    async with waits(server) as here, waits(server) as idle:
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
    server: RedisServer, there: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be stopped for a minute: what it reads then was claimed a minute ago."""
    watch = Stopwatch()
    monkeypatch.setattr(offers_module, "time", watch)
    async with waits(server) as here:
        await here.offer()
        wire = here.store._offers.wire
        assert wire is not None
        wire._transport.pause_reading()  # type: ignore[attr-defined]
        await there.enqueue([job()])
        watch.now += 60
        wire._transport.resume_reading()  # type: ignore[attr-defined]
        await until(lambda: here.came)
        [(_, asked_at)] = here.came
        assert 1_000 <= asked_at < 1_030


# --- a worker -------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(server: RedisServer) -> Shop:
    return Shop(lambda: RedisStore(server.url()))


async def _offers(store: RedisStore) -> int:
    count: int = await _ask(store, "HLEN", b"offers")
    return count


async def test_an_idle_worker_leaves_offers_and_takes_back_the_last(shop: Shop, there: RedisStore) -> None:
    ran: list[int] = []

    @shop.task
    async def add(n: int) -> None:
        ran.append(n)

    heard: list[Any] = []
    listening = await there._link.dedicated()
    async with shop.working(name="w"):
        listening.listen(("SUBSCRIBE", there._link.root + b"hand:w"), heard.append)
        for n in range(5):
            await until(lambda: _offers(there))
            sent = await shop.enqueue(add, n)
            await until(partial(_has_succeeded, shop, sent))
    assert ran == list(range(5))
    assert len([kind for kind, *_ in heard if kind == b"message"]) == 5, "each was handed over"
    assert not await _offers(there)
    await listening.close()
    await shop.store.close()


async def _has_succeeded(shop: Shop, sent: Any) -> bool:
    return (await shop.job(sent)).state is State.SUCCEEDED


async def test_a_worker_that_has_something_to_do_offers_nothing(
    shop: Shop, there: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout_module, "LOOK", 0)  # no wait is too short for an offer
    begun, go = [], asyncio.Event()

    @shop.task
    async def hold(n: int) -> None:
        begun.append(n)
        await go.wait()

    async with shop.working(name="w", concurrency=3):
        await until(lambda: _offers(there))
        await shop.enqueue(hold, 1)
        await until(lambda: begun == [1])
        assert not await _offers(there)
        await shop.enqueue(hold, 2)  # by a call and a claim, as always
        await until(lambda: begun == [1, 2])
        await until(lambda: _ask(there, "SISMEMBER", b"sleeping", "default"))  # it waits, with a slot that is free
        await there.counts()
        assert not await _offers(there)
        go.set()
        await until(lambda: _offers(there))
    await shop.store.close()


async def test_a_job_that_is_handed_over_while_the_worker_stops_is_not_left_behind(
    server: RedisServer, there: RedisStore
) -> None:
    late: list[Any] = []

    class Late(RedisStore):
        async def retract(self, worker: str) -> bool:
            late.append(await shop.enqueue(add, 1))
            return await super().retract(worker)

    shop = Shop(lambda: Late(server.url()))

    @shop.task
    async def add(n: int) -> None: ...

    async with shop.working(name="w"):
        await until(lambda: _offers(there))
    [sent] = late
    assert (await shop.job(sent)).state in (State.SUCCEEDED, State.QUEUED)
    await shop.store.close()
