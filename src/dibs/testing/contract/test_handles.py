"""Coming and going: setup can be called again, and closing a handle gives nothing up."""

import pytest

from dibs.job import State
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    add,
    add_one,
    beat,
    end,
    picture,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def test_setup_can_be_called_again(store: Store) -> None:
    await add(store, 3)
    await take_one(store)
    before = await picture(store)
    await store.setup()
    assert await picture(store) == before
    assert len(await take(store)) == 2


async def test_every_handle_sees_the_same(store: Store, lab: Lab) -> None:
    await add(store, 3)
    await end(store, await take_one(store), Succeeded())
    await store.pause("other")
    assert await picture(await lab.open()) == await picture(store)


async def test_a_claim_outlives_the_handle_that_took_it(store: Store, lab: Lab) -> None:
    job, other = await add_one(store), await lab.open()
    claim = await take_one(other)
    await other.close()
    assert await take(store, worker="bob") == []
    assert await state(store, job) is State.RUNNING
    assert await beat(store, claim) is Pulse.HELD
    assert await end(store, claim, Succeeded()) is Verdict.ACCEPTED


async def test_the_claim_of_a_closed_handle_comes_back_by_its_lease(store: Store, lab: Lab) -> None:
    job, other = await add_one(store), await lab.open()
    claim = await take_one(other)
    await other.close()
    await lab.set_clock(claim.locked_until)
    assert await taken(store, worker="bob") == [job]


async def test_closing_twice_is_harmless(store: Store, lab: Lab) -> None:
    other = await lab.open()
    await other.close()
    await other.close()
    assert await taken(store) == []
