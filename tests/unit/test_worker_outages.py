"""A store that goes away and comes back, or refuses: nothing is lost, nothing dies, nothing spins, one line says so."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import pytest

from dibs.attempt import Attempt, current
from dibs.errors import Refused, StoreUnavailable
from dibs.job import Claim, Kept, Settlement, State
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.retry import Constant
from dibs.stores.memory import MemoryStore
from dibs.telemetry import ask_to_stop
from dibs.worker.outage import Backoff
from dibs.worker.prefetch import Prefetch
from tests.unit.flying import Flight, flown
from tests.unit.working import Shop, until


class Flaky(MemoryStore):
    """A memory store that can be cut off, as a server can."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.calls = 0
        self.refuse = ""
        self.forget_answers = 0
        self.settles: list[int] = []

    async def _reach(self) -> None:
        self.calls += 1
        await self.answers.wait()
        if self.away:
            raise StoreUnavailable("cannot be reached at host/db: nobody there")

    async def setup(self) -> None:
        await self._reach()

    async def claim(self, *args: Any, **named: Any) -> list[Claim]:
        await self._reach()
        return await super().claim(*args, **named)

    async def heartbeat(self, *args: Any, **named: Any) -> list[Pulse]:
        await self._reach()
        return await super().heartbeat(*args, **named)

    async def wait(self, *args: Any, **named: Any) -> frozenset[str]:
        await self._reach()
        return await super().wait(*args, **named)

    async def keep(self, *args: Any, **named: Any) -> None:
        await self._reach()
        await super().keep(*args, **named)

    async def kept(self, *args: Any, **named: Any) -> Kept:
        await self._reach()
        return await super().kept(*args, **named)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        await self._reach()
        await asyncio.sleep(0.001)
        if self.refuse and any(getattr(item.outcome, "result", None) == self.refuse for item in settlements):
            raise Refused("not this one")
        verdicts = await super().settle(settlements)
        self.settles.append(len(settlements))
        if self.forget_answers:
            self.forget_answers -= 1
            raise StoreUnavailable("the answer got lost")
        return verdicts


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def shop(flaky: Flaky) -> Shop:
    return Shop(lambda: flaky)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_store_that_is_away_at_the_start_is_waited_for(
    shop: Shop, flaky: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    @shop.task
    async def nothing() -> None: ...

    job = await shop.enqueue(nothing)
    flaky.away = True
    async with shop.working():
        await until(lambda: flaky.calls >= 2)
        flaky.away = False
        await until(lambda: _in(shop, job, State.SUCCEEDED))
    assert len(said(caplog)) == 2, "one line when it goes, one when it is back"


@flown
async def test_an_outage_loses_no_outcome_and_is_said_once(
    shop: Shop, flaky: Flaky, caplog: pytest.LogCaptureFixture, flight: Flight
) -> None:
    release, running = asyncio.Event(), 0

    @shop.task
    async def hold() -> str:
        nonlocal running
        running += 1
        await release.wait()
        return "done"

    ids = [await shop.enqueue(hold) for _ in range(20)]
    async with shop.working() as worker:
        await until(lambda: running == 20)
        flaky.away = True
        release.set()
        before = flaky.calls
        await flight.fly(5)
        assert flaky.calls - before < 60, "it does not spin"
        assert "trying again" in said(caplog)[0]
        flaky.away = False
        await flight.fly(10)
        await until(lambda: worker.stats.succeeded == 20)
        await until(lambda: len(said(caplog)) >= 2)  # when the last part of the worker has got through
    assert [(await shop.job(each)).result for each in ids] == ["done"] * 20
    assert len(said(caplog)) == 2
    assert "back after" in said(caplog)[1]


async def test_an_answer_that_got_lost_is_asked_for_again(shop: Shop, flaky: Flaky) -> None:
    @shop.task
    async def nothing() -> None: ...

    flaky.forget_answers = 1
    job = await shop.enqueue(nothing)
    stats = await shop.drain()
    assert (stats.succeeded, stats.lost) == (1, 0)
    assert (await shop.job(job)).state is State.SUCCEEDED


async def test_one_outcome_that_is_refused_harms_no_other_and_its_job_is_not_left_running(
    shop: Shop, flaky: Flaky
) -> None:
    @shop.task
    async def give(text: str) -> str:
        return text

    flaky.refuse = "bad"
    ids = {text: await shop.enqueue(give, text) for text in (*map(str, range(30)), "bad", *map(str, range(30, 60)))}
    stats = await shop.drain()
    states = {text: (await shop.job(each)).state for text, each in ids.items()}
    assert states.pop("bad") is State.FAILED
    assert set(states.values()) == {State.SUCCEEDED}
    assert (stats.succeeded, stats.failed) == (60, 1)
    assert "refused" in (await shop.job(ids["bad"])).errors[0].error


async def test_outcomes_that_come_while_a_settle_is_on_its_way_go_together(shop: Shop, flaky: Flaky) -> None:
    @shop.task
    async def nothing() -> None: ...

    await flaky.enqueue([nothing.job() for _ in range(3_000)])
    await shop.drain()
    assert sum(flaky.settles) == 3_000
    assert max(flaky.settles) <= 1_000
    assert len(flaky.settles) < 60


async def test_a_lease_that_cannot_be_renewed_in_time_is_lost_by_the_workers_own_clock(
    shop: Shop, flaky: Flaky
) -> None:
    seen: list[tuple[Attempt, float]] = []

    @shop.task(lease=1)
    async def endless() -> None:
        began = time.monotonic()
        flaky.answers.clear()
        try:
            await asyncio.sleep(600)
        finally:
            seen.append((current(), time.monotonic() - began))

    await shop.enqueue(endless)
    async with shop.working() as worker:
        await until(lambda: seen)
        [(attempt, after)] = seen
        assert attempt.lost
        assert after < 5, "before anybody else could have it for long"
        flaky.answers.set()
        await until(lambda: worker.stats.lost == 1)
        worker.stop(now=True)


async def test_what_a_late_writer_sends_is_lost_and_counted(shop: Shop, flaky: Flaky) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @shop.task(max_attempts=5)
    async def hold() -> None:
        entered.set()
        await release.wait()

    job_id = await shop.enqueue(hold)
    async with shop.working() as worker:
        await asyncio.wait_for(entered.wait(), 30)
        job = await shop.job(job_id)
        # Somebody settles in its name, as a process that came back from the dead would.
        assert job.worker is not None
        [verdict] = await MemoryStore.settle(flaky, [Settlement(job_id, job.epoch, job.worker, Succeeded("other"))])
        assert verdict is Verdict.ACCEPTED
        flaky.refuse = ""
        await flaky.requeue(_only(job_id))
        [again] = await MemoryStore.claim(flaky, "default", "other", 1, worker.settings.lease)
        release.set()
        await until(lambda: worker.stats.lost == 1)
    assert (await shop.job(job_id)).epoch == again.epoch


def _only(job: Any) -> Any:
    from dibs.job import Filter

    return Filter(ids=(job,))


async def _in(shop: Shop, job: Any, state: State) -> bool:
    return (await shop.job(job)).state is state


async def test_exactly_as_many_attempts_as_allowed_whether_it_raises_or_times_out(shop: Shop) -> None:
    runs: list[str] = []

    @shop.task(max_attempts=3, retry=Constant(0))
    async def raises() -> None:
        runs.append("raises")
        raise ValueError

    @shop.task(max_attempts=4, retry=Constant(0), timeout=0.01)
    async def sleeps() -> None:
        runs.append("sleeps")
        await asyncio.sleep(60)

    await shop.enqueue(raises)
    await shop.enqueue(sleeps)
    stats = await shop.drain()
    assert (runs.count("raises"), runs.count("sleeps")) == (3, 4)
    assert (stats.failed, stats.retried) == (2, 5)


# --- arithmetic ---------------------------------------------------------------------------------------------


def test_a_backoff_grows_to_its_longest_with_jitter_and_begins_anew() -> None:
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(20)]
    assert 0.05 <= pauses[0] <= 0.1
    assert all(5.0 <= pause <= 10.0 for pause in pauses[8:])
    assert len(set(pauses[8:])) > 1
    backoff.reset()
    assert backoff.next() <= 0.1


def test_a_prefetch_grows_while_slots_wait_and_shrinks_while_claims_do() -> None:
    prefetch, now, started = Prefetch(), 100.0, 0
    for _ in range(20):
        prefetch.learn(now, started, dry=True, waited=0.0)
        started += 200
        now += 0.004
        prefetch.mark(now, started)
    assert prefetch.size == 1_000
    prefetch.learn(now, started, dry=False, waited=0.2)
    assert prefetch.size == 500
    now += 1.0
    prefetch.learn(now, started, dry=True, waited=0.0)
    assert prefetch.size == 0, "nothing was started in the last tenth of a second"


# --- an operator's wish -------------------------------------------------------------------------------------


@flown
async def test_a_worker_that_was_asked_to_stop_through_the_store_ends_and_says_so(shop: Shop, flight: Flight) -> None:
    @shop.task
    async def nothing() -> None: ...

    worker = shop.worker(name="one")
    going = asyncio.create_task(worker.run())
    job = await shop.enqueue(nothing)
    await until(lambda: _in(shop, job, State.SUCCEEDED))
    await ask_to_stop(shop.store, "one", by="anna")
    await flight.fly(30)
    await asyncio.wait_for(going, 20)
    assert worker.asked_to_stop


async def test_a_worker_that_ends_for_another_reason_was_not_asked(shop: Shop) -> None:
    worker = shop.worker(until_empty=True)
    await worker.run()
    assert not worker.asked_to_stop
