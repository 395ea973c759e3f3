"""Offers on PostgreSQL: what is handed over, where there are no offers, and that nobody waits for one."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from dibs.job import NewJob, Retention, State
from dibs.outcome import Succeeded, Verdict
from dibs.scope import Limit, Scope
from dibs.store import Offer
from dibs.stores.postgres import offers, wakeups
from dibs.stores.postgres.transaction import enqueue_in_async
from tests.conftest import DatabaseFactory
from tests.unit.offering import LEASE, LONG, PostgresHouse, Waiting, is_queued, job
from tests.unit.postgres import NEWEST, connected, in_lab, needs_postgres, opened
from tests.unit.working import until

pytestmark = needs_postgres


@pytest.fixture
def house(migrated_database: DatabaseFactory) -> PostgresHouse:
    return PostgresHouse(migrated_database(NEWEST))


@pytest_asyncio.fixture
async def there(house: PostgresHouse) -> AsyncIterator[Any]:
    """The handle of whoever brings jobs."""
    store = house.open()
    yield store
    await store.close()


async def _called_for(here: Waiting, there: Any, new: NewJob) -> bool:
    """Whether the worker was called, as always, and not handed the job."""
    return await is_queued(there, new) and await here.waiting == {"q"} and here.came == []


# --- what is handed over --------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "fits"), [(2_400, True), (2_600, False)])
async def test_what_does_not_fit_into_a_message_is_called_for(
    house: PostgresHouse, there: Any, length: int, fits: bool
) -> None:
    async with house.waits() as here:
        await here.offer()
        new = job(args={"text": "x" * length})
        await there.enqueue([new])
        if fits:
            await until(lambda: here.came)
            assert here.came[0][0].args == new.args
        else:
            assert await _called_for(here, there, new)


async def test_the_longest_of_names_fit_with_the_longest_arguments(house: PostgresHouse, there: Any) -> None:
    """A message that is too long would be refused, and the job with it."""
    name = '"' * 100 + "\U0001f40c" * 100
    came: list[Any] = []
    store = house.open()
    async with connected(house.url) as sql:
        waiting = Offer(name, LEASE, None, lambda claim, asked_at: came.append(claim), LONG)
        async with opened(house.url) as other:
            await other._listener._listen()
            await until(lambda: other.offer([name], waiting))
            new = NewJob(task=name, queue=name, args={"t": "x" * 2_480})
            await store.enqueue([new])
            await until(lambda: came)
            assert (came[0].task, came[0].queue, came[0].worker, came[0].args) == (name, name, name, new.args)
        assert await sql.fetchval("select worker from dibs.job") == name
    await store.close()


async def test_a_job_behind_one_that_is_due_is_not_handed_over_before_it(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
        async with connected(house.url) as sql:  # one that nobody was called for yet
            await sql.execute("select dibs.enqueue_plain(dibs.new_id(), 'q', 'other', '{}', wake => false)")
        new = job()
        await there.enqueue([new])
        assert await _called_for(here, there, new)


@pytest.mark.parametrize("state", ["running", "future", "elsewhere"])
async def test_jobs_that_nobody_could_claim_now_are_no_hindrance(house: PostgresHouse, there: Any, state: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1) if state == "future" else None
    await there.enqueue([job(run_at=later, priority=-1, queue="p" if state == "elsewhere" else "q")])
    if state == "running":
        assert len(await there.claim("q", "other", 1, LEASE)) == 1
    async with house.waits() as here:
        await here.offer()
        new = job()
        await there.enqueue([new])
        await until(lambda: here.came)
        assert here.came[0][0].id == new.id


async def test_the_lease_of_what_was_handed_over_expires_like_any_other(migrated_database: DatabaseFactory) -> None:
    async with in_lab(migrated_database(NEWEST)) as (lab, store):
        await store._listener._listen()
        came: list[Any] = []
        offer = Offer("w", LEASE, None, lambda claim, asked_at: came.append(claim), LONG)
        await until(lambda: store.offer(["q"], offer))
        new = job(max_attempts=2)
        await store.enqueue([new])
        await until(lambda: came)
        await lab.advance(LEASE.total_seconds())
        assert await store.settle([came[0].settled(Succeeded())]) == [Verdict.LOST]
        [again] = await store.claim("q", "other", 1, LEASE)
        assert (again.id, again.epoch, again.attempt) == (new.id, 2, 2)
        found = await store.get(new.id)
        assert found is not None
        assert [(error.worker, error.error) for error in found.errors] == [("w", "lease expired")]


async def test_times_are_right_whatever_zone_the_producer_is_in(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here, connected(house.url, server_settings={"TimeZone": "Asia/Kathmandu"}) as sql:
        await here.offer()
        await sql.execute("select dibs.enqueue_plain(dibs.new_id(), 'q', 't', '{}', hand => true)")
        await until(lambda: here.came)
        [(claim, _)] = here.came
        found = await there.get(claim.id)
        assert (claim.run_at, claim.locked_until) == (found.run_at, found.locked_until)
        assert claim.run_at.tzinfo is UTC


# --- who does not hand over -----------------------------------------------------------------------


async def test_nothing_is_handed_over_within_a_transaction_of_the_caller(house: PostgresHouse, there: Any) -> None:
    """Its lease would begin before anybody could see the job."""
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        new = job()
        async with sql.transaction():
            await enqueue_in_async(sql, [new])
            assert await house.offers() == 1
        assert await _called_for(here, there, new)


async def test_who_calls_the_function_without_asking_for_it_hands_over_nothing(house: PostgresHouse) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        await sql.execute("select dibs.enqueue_plain(dibs.new_id(), 'q', 't', '{}')")
        assert await here.waiting == {"q"}
        assert await house.offers() == 1


async def test_what_is_rolled_back_was_never_handed_over_and_the_offer_stands(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        transaction = sql.transaction()
        await transaction.start()
        assert await sql.fetchval("select dibs.enqueue_plain(dibs.new_id(), 'q', 't', '{}', hand => true)")
        await transaction.rollback()
        assert await house.offers() == 1
        new = job()
        await there.enqueue([new])
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [new.id]


# --- where there are no offers --------------------------------------------------------------------

_SLOW_LOOK = """
create or replace function dibs.due(queues text[]) returns setof text language plpgsql volatile security definer
as 'begin perform pg_sleep(0.006); end'
"""
_DEAD_ROWS = """
insert into dibs.offered (worker, listener, queues, lease)
select 'gone ' || random() || repeat('x', 100), 'nobody', '{q}', '1 s' from generate_series(1, 400) as n
"""


@pytest.mark.parametrize("why", ["limit", "due", "slow", "large"])
async def test_no_offer_is_left_where_it_would_be_of_no_use_or_cost_too_much(
    house: PostgresHouse, there: Any, why: str
) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        match why:
            case "limit":
                await there.limit(Scope(queue="q"), Limit(concurrency=3))
            case "due":
                await there.enqueue([job()])
            case "slow":
                await sql.execute(_SLOW_LOOK)
            case "large":
                await here.offer()
                await sql.execute(_DEAD_ROWS + ", generate_series(1, 20)")
        assert not await here.left()
        assert await house.offers() == 0
        assert not await house.ask("select exists (select from dibs.offered where worker = 'w')")


async def test_limits_of_other_queues_and_tasks_are_no_hindrance(house: PostgresHouse, there: Any) -> None:
    await there.limit(Scope(queue="other"), Limit(concurrency=3))
    await there.limit(Scope(task="other"), Limit(concurrency=3))
    async with house.waits() as here:
        assert not await here.left(), "it would take jobs of any task"
        await here.offer(frozenset({"t"}))
        await there.enqueue([job()])
        await until(lambda: here.came)


async def test_nobody_offers_through_a_pooler_or_before_anything_listens(house: PostgresHouse) -> None:
    offer = Offer("w", LEASE, None, lambda claim, asked_at: None, LONG)
    async with opened(house.url, "pooler=transaction") as pooled, opened(house.url) as deaf:
        await pooled._listener._listen()
        assert not await pooled.offer(["q"], offer)
        assert not await deaf.offer(["q"], offer)


@pytest.mark.parametrize(("worker", "lease"), [("", LEASE), ("w", timedelta(0)), ("w" * 201, LEASE)])
async def test_an_offer_needs_what_a_claim_needs(house: PostgresHouse, worker: str, lease: timedelta) -> None:
    async with connected(house.url) as sql:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="an offer needs a worker and a lease"):
            await sql.execute("select dibs.offer($1, 'x', '{q}', $2)", worker, lease)


# --- nobody waits for an offer --------------------------------------------------------------------


async def test_an_offer_that_somebody_holds_up_holds_up_nobody(house: PostgresHouse, there: Any) -> None:
    """A caller may ask for a hand-over in a transaction that goes on, although it should not."""
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        async with sql.transaction():
            await sql.execute("select dibs.enqueue_plain(dibs.new_id(), 'q', 't', '{}', hand => true)")
            new = job()
            await there.enqueue([new])
            assert [claim.id for claim in await here.store.claim("q", "w", 9, LEASE)] == [new.id]
            assert not await here.store.retract("w")
            assert not await here.left()
        await until(lambda: here.came)


async def test_a_connection_that_was_lost_and_made_again_is_sent_claims_again(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        first, name = here.store._listener._connection, here.store._listener._name
        assert re.fullmatch("[0-9a-f]{32}", name), "nobody can guess where claims are sent"
        await sql.execute("select pg_terminate_backend($1)", first.get_server_pid())
        await until(lambda: _has_another(here.store, first))
        await there.enqueue([lost := job()])
        assert await is_queued(there, lost), "the offer was made for the first connection"
        assert len(await there.claim("q", "other", 1, LEASE)) == 1
        await here.offer()
        assert here.store._listener._name != name
        await there.enqueue([job()])
        await until(lambda: here.came)


@pytest.mark.parametrize("what", ["attend", "echo"])
async def test_nobody_offers_through_a_connection_that_does_not_hear(
    house: PostgresHouse, there: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A pooler that nobody told us of, for example. Those who wait are not held up."""
    monkeypatch.setattr(wakeups, "ATTEND", 0.05)
    async with house.waits() as here, connected(house.url) as sql:
        if what == "attend":
            await sql.execute(_SILENT)
        else:
            monkeypatch.setattr(here.store._listener, "_say", _say_nothing)
        assert not await here.left()
        assert not await here.left()
        await there.enqueue([new := job()])
        assert await _called_for(here, there, new)


_SILENT = "create or replace function dibs.attend(listener text) returns void as 'select pg_sleep(60)' language sql"


async def _say_nothing(channel: str) -> None: ...


async def test_a_connection_that_missed_a_claim_is_sent_no_more(
    house: PostgresHouse, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may have forgotten it, while the server thinks that somebody listens. To wait, there is polling."""
    monkeypatch.setattr(offers, "LATE", 0.1)
    async with house.waits() as here:
        await here.offer()
        house.transport(here.store).pause_reading()
        await there.enqueue([lost := job()])
        assert not await is_queued(there, lost)
        assert await here.store.claim("q", "w", 1, LEASE) == []  # as it does every ten seconds
        assert not await here.left(), "it may be on its way"
        await until(lambda: here.store._listener._name is None)
        assert not await here.left()
        await there.enqueue([new := job()])
        assert await _called_for(here, there, new)


async def test_a_claim_that_comes_after_its_offer_was_taken_back_is_no_reason_to_offer_no_more(
    house: PostgresHouse, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "LATE", 30)
    async with house.waits() as here:
        await here.offer()
        house.transport(here.store).pause_reading()
        await there.enqueue([job()])
        assert not await here.store.retract("w")
        assert not await here.left(), "it may be on its way"
        house.transport(here.store).resume_reading()
        await until(lambda: here.came)
        await here.offer()


async def test_what_a_claim_brought_is_not_lost_if_the_offer_cannot_be_taken_back(
    house: PostgresHouse, there: Any
) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        await sql.execute("drop function dibs.retract")
        await there.enqueue([job(key="not handed over")])
        assert len(await here.store.claim("q", "w", 1, LEASE)) == 1


# --- nobody who brings a job waits for others, and none is spent on the way ------------------------


async def test_an_enqueue_does_not_wait_for_those_who_set_limits(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        async with sql.transaction():
            await sql.execute("lock table dibs.gate in exclusive mode")  # as dibs.limit does
            await there.enqueue([new := job()])
            assert await _called_for(here, there, new)
        assert await house.offers() == 1, "it stands again"


async def test_a_job_that_comes_late_is_not_handed_over_with_what_is_left_of_its_lease(
    migrated_database: DatabaseFactory,
) -> None:
    """Its enqueue had to wait for somebody who was about to store the same id."""
    url = migrated_database(NEWEST)
    async with in_lab(url) as (lab, store), connected(url) as sql:
        await store._listener._listen()
        offer = Offer("w", LEASE, None, lambda claim, asked_at: None, LONG)
        await until(lambda: store.offer(["q"], offer))
        new, transaction = job(), sql.transaction()
        await transaction.start()
        await sql.execute("select dibs.enqueue_plain($1, 'q', 't', '{}')", new.id)
        enqueueing = asyncio.create_task(store.enqueue([new]))
        await until(lambda: _waits_for_another(url))
        await lab.advance(LEASE.total_seconds() * 0.6)
        await transaction.rollback()
        await enqueueing
        found = await store.get(new.id)
        assert found is not None
        assert (found.state, found.attempts, found.started_at, found.worker) == (State.QUEUED, 0, None, None)
        [claim] = await store.claim("q", "other", 1, LEASE)
        assert (claim.id, claim.epoch, claim.attempt) == (new.id, 1, 1)


async def _waits_for_another(url: str) -> bool:
    async with connected(url) as sql:
        return bool(await sql.fetchval("select exists (select from pg_locks where not granted)"))


async def test_where_transactions_read_old_snapshots_nothing_is_handed_over(house: PostgresHouse, there: Any) -> None:
    async with connected(house.url) as sql:
        name = await sql.fetchval("select quote_ident(current_database())")
        await sql.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    async with house.waits() as here:
        await here.offer()
        await there.enqueue([new := job()])
        assert await _called_for(here, there, new)
        assert await house.offers() == 1


async def test_a_job_that_is_known_uses_up_no_offer(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here:
        await there.enqueue([known := job()])
        [claim] = await there.claim("q", "other", 1, LEASE)
        here.waiting = asyncio.create_task(here.store.wait(["q"], LONG))
        await here.offer()
        assert [each.created for each in await there.enqueue([known])] == [False]
        assert await there.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]
        assert [each.created for each in await there.enqueue([known])] == [False]
        assert await house.offers() == 1


def _has_another(store: Any, first: Any) -> bool:
    connection = store._listener._connection
    return connection is not first and connection is not None and not connection.is_closed()


async def test_a_claim_for_a_worker_that_was_never_here_is_left_to_its_lease(house: PostgresHouse, there: Any) -> None:
    """Nothing else is sent there, but who knows."""
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        await sql.execute("update dibs.offered set worker = 'stranger'")
        await there.enqueue([first := job()])
        await here.offer()
        await there.enqueue([second := job()])
        await until(lambda: here.came)
        assert [claim.id for claim, _ in here.came] == [second.id]
        assert (await there.get(first.id)).worker == "stranger"


# --- what is left of offers -----------------------------------------------------------------------


async def test_a_prune_forgets_the_offers_of_those_who_are_gone(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here, connected(house.url) as sql:
        await here.offer()
        await sql.execute(_DEAD_ROWS)
        await there.prune(Retention())
        assert await house.ask("select array_agg(worker) from dibs.offered") == ["w"]
        assert await house.offers() == 1


async def test_a_dead_worker_s_row_goes_with_the_next_job(house: PostgresHouse, there: Any) -> None:
    async with house.waits() as here:
        await here.offer()
    await there.enqueue([job()])
    assert await house.ask("select count(*) from dibs.offered") == 0
    [counted] = await there.counts()
    assert counted.states[State.QUEUED] == 1
