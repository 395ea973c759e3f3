"""Outages on demand, of any store."""

from datetime import timedelta

import pytest

from dibs import ConfigurationError, Filter, NewJob, StoreUnavailable, open_store
from dibs.store import Store
from dibs.testing import FlakyStore

LEASE = timedelta(seconds=30)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


async def test_what_fails_before_its_effect_has_changed_nothing(store: Store) -> None:
    flaky = FlakyStore(store)
    flaky.fail_next("enqueue", times=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="before it took effect"):
            await flaky.enqueue([NewJob(task="t")])
    assert (await store.find(Filter())).jobs == ()
    [sent] = await flaky.enqueue([NewJob(task="t")])
    assert sent.created


async def test_what_fails_after_its_effect_has_changed_all(store: Store) -> None:
    flaky, job = FlakyStore(store), NewJob(task="t")
    flaky.fail_next("enqueue", after_effect=True)
    with pytest.raises(StoreUnavailable, match="after it took effect"):
        await flaky.enqueue([job])
    [sent] = await flaky.enqueue([job])  # sent again, as one does
    assert (sent.id, sent.created) == (job.id, False)


async def test_other_verbs_go_on(store: Store) -> None:
    flaky = FlakyStore(store)
    flaky.fail_next("settle")
    await flaky.enqueue([NewJob(task="t")])
    [claim] = await flaky.claim("default", "w", 1, LEASE)
    assert await flaky.get(claim.id) == await store.get(claim.id)


async def test_a_store_can_recover(store: Store) -> None:
    flaky = FlakyStore(store)
    flaky.fail_next("counts", times=100)
    flaky.recover()
    assert await flaky.counts() == []


def test_a_verb_that_no_store_has_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="no verb 'save': it is one of cancel, claim"):
        FlakyStore(store).fail_next("save")
