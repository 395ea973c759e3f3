"""Offers on Redis: what is handed over where something else waits, and what is left of an offer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dibs.job import Order
from dibs.stores.redis import offers
from tests.conftest import REDIS_LABELS
from tests.servers import RedisServer
from tests.unit.offering import LONG, RedisHouse, is_queued, job
from tests.unit.working import until

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest_asyncio.fixture
async def house(redis_server: RedisServer) -> AsyncIterator[RedisHouse]:
    built = RedisHouse(redis_server.url())
    yield built
    await built.close()


@pytest_asyncio.fixture
async def there(house: RedisHouse) -> AsyncIterator[Any]:
    """The handle of whoever brings jobs."""
    store = house.open()
    yield store
    await store.close()


async def test_the_first_in_the_order_is_handed_over_and_the_other_one_called_for(
    house: RedisHouse, there: Any
) -> None:
    async with house.waits() as here:
        first, second = job(priority=-1), job()
        await there.enqueue([first])
        assert await here.waiting == {"q"}
        await house.ask("SADD", b"sleeping", "q")  # it waits again, without having claimed
        here.waiting = asyncio.create_task(here.store.wait(["another"], LONG))
        await here.offer()
        await there.enqueue([second])
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [first.id]
        assert not await house.ask("SISMEMBER", b"sleeping", "q"), "somebody was called"


async def test_where_the_newest_come_first_nothing_is_handed_over(house: RedisHouse, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
        await there.configure("q", order=Order.LIFO)
        new = job()
        await there.enqueue([new])
        assert await is_queued(there, new)
        assert await here.waiting == {"q"}, "it is called, as always"
        assert here.came == []


async def test_offers_of_those_who_are_gone_are_dropped(house: RedisHouse, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
    await until(lambda: _is_deaf(house, here.store))
    await there.enqueue([job()])
    for key in (b"offers", b"offers:q"):
        assert not await house.ask("EXISTS", key)


async def _is_deaf(house: RedisHouse, store: Any) -> bool:
    return not await house.hears_claims(store)


async def test_a_connection_that_gives_no_sign_of_life_is_made_again(
    house: RedisHouse, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may have forgotten it, while the server thinks that somebody listens."""
    monkeypatch.setattr(offers, "QUIET", 0)
    monkeypatch.setattr(offers, "LATE", 0)
    async with house.waits() as here:
        house.transport(here.store).pause_reading()
        wire = here.store._offers.wire
        assert await here.left(), "nobody knows yet"
        await there.enqueue([job()])
        assert not await here.left()
        await until(lambda: here.store._offers.wire not in (None, wire))
        monkeypatch.setattr(offers, "LATE", 30)
        await here.offer()
        await there.enqueue([new := job()])
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [new.id]
