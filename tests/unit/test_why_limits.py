"""Why a job does not start that limits hold back, that expired, whose queue ages; and how long a key stays busy."""

from datetime import timedelta

import pytest

from dibs.job import Filter, NewFlow, NewJob, NewStep
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.why import Reason, why
from tests.unit.test_why import LEASE, Desk

QUEUE, KEYS, TASK = Scope(queue="mail"), Scope(queue="mail", each_key=True), Scope(task="send")


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_limit_is_named_with_those_who_have_the_room(desk: Desk) -> None:
    await desk.worker()
    await desk.store.limit(QUEUE, Limit(concurrency=2))
    running = [await desk.enqueue() for _ in range(2)]
    await desk.store.claim("mail", "w1", 1, LEASE)
    await desk.store.claim("mail", "w2", 1, LEASE)
    found = await desk.why(await desk.enqueue())
    assert (found.reason, found.until) == (Reason.HELD_BACK, None)
    holders = f"job {running[1]} on worker w2, job {running[0]} on worker w1"
    assert found.sentence == f"A limit holds it back: queue mail runs 2 of 2 at once: {holders}."


async def test_of_many_three_are_named_and_an_expired_lease_has_no_room(desk: Desk) -> None:
    await desk.worker()
    await desk.enqueue()
    await desk.store.claim("mail", "dead", 1, timedelta(seconds=1))
    desk.clock.advance(timedelta(seconds=1))
    await desk.store.limit(TASK, Limit(concurrency=5), rank=1)
    for _ in range(5):
        await desk.enqueue(queue="other")
    await desk.store.claim("other", "w1", 5, LEASE)
    found = await desk.why(await desk.enqueue())
    assert "task send runs 5 of 5 at once (set by an operator): job" in found.sentence
    assert "and 2 others" in found.sentence
    assert "worker dead" not in found.sentence, "an id may have these letters"


async def test_a_rate_says_when_it_lets_the_job_start(desk: Desk) -> None:
    await desk.worker()
    await desk.store.limit(QUEUE, Limit(rate=Rate(1, per=60)))
    await desk.enqueue()
    await desk.store.claim("mail", "w1", 1, LEASE)
    found = await desk.why(await desk.enqueue())
    assert (found.reason, found.until) == (Reason.HELD_BACK, desk.clock() + timedelta(minutes=1))
    assert "queue mail starts 1/min, the next one 2030-01-01 00:01:00 UTC (in 1 min)" in found.sentence


async def test_a_key_is_named_and_others_pass_it(desk: Desk) -> None:
    await desk.worker()
    await desk.store.limit(KEYS, Limit(concurrency=1))
    await desk.enqueue(limit_key="acme")
    await desk.store.claim("mail", "w1", 1, LEASE)
    held = [await desk.enqueue(limit_key="acme") for _ in range(3)]
    other = await desk.enqueue(limit_key="ada")
    last = await desk.enqueue()
    found = await desk.why(held[0])
    assert "key acme of queue mail runs 1 of 1 at once" in found.sentence
    found = await desk.why(other)
    assert (found.reason, found.ahead) == (Reason.NEXT_IN_LINE, 0)
    assert "not counting 3 that limits hold back" in found.sentence
    found = await desk.why(last)
    assert (found.reason, found.ahead) == (Reason.BEHIND_OTHERS, 1)


async def test_several_limits_are_all_named_and_none_at_all_is_none(desk: Desk) -> None:
    await desk.worker()
    await desk.store.limit(QUEUE, Limit(concurrency=0))
    await desk.store.limit(TASK, Limit(concurrency=0))
    found = await desk.why(await desk.enqueue())
    assert found.sentence == "A limit holds it back: queue mail may run none; and task send may run none."


async def test_what_else_keeps_it_comes_before_a_limit_and_one_that_is_not_due_has_no_use_for_it(desk: Desk) -> None:
    await desk.store.limit(QUEUE, Limit(concurrency=0))
    found = await desk.why(await desk.enqueue())
    assert (found.reason, found.also) == (Reason.NO_WORKER, (Reason.HELD_BACK,))
    await desk.worker()
    found = await desk.why(await desk.enqueue(run_at=desk.clock() + LEASE))
    assert (found.reason, found.also) == (Reason.NOT_DUE, ())


async def test_an_expired_lease_may_be_held_back_too(desk: Desk) -> None:
    id_ = await desk.enqueue()
    await desk.store.claim("mail", "dead", 1, LEASE)
    desk.clock.advance(LEASE)
    await desk.worker()
    await desk.store.limit(QUEUE, Limit(concurrency=0))
    found = await desk.why(id_)
    assert (found.reason, found.also) == (Reason.LEASE_EXPIRED, (Reason.HELD_BACK,))


# --- expiry ---------------------------------------------------------------------------------------------------


async def test_a_job_that_will_expire_says_when(desk: Desk) -> None:
    await desk.worker()
    at = desk.clock() + timedelta(minutes=5)
    found = await desk.why(await desk.enqueue(expires_at=at))
    assert (found.reason, found.expires_at) == (Reason.NEXT_IN_LINE, at)
    assert found.sentence.endswith("unless it has started by 2030-01-01 00:05:00 UTC (in 5 min), it ends cancelled.")


async def test_one_that_expired_says_so_before_and_after_its_end(desk: Desk) -> None:
    await desk.worker()
    id_ = await desk.enqueue(expires_at=desk.clock() + LEASE)
    desk.clock.advance(LEASE)
    found = await desk.why(id_)
    assert (found.reason, found.also) == (Reason.EXPIRED, ())
    assert "it had not started by 2030-01-01 00:00:30 UTC" in found.sentence
    assert "the next claim or sweep ends it" in found.sentence
    await desk.store.sweep()
    found = await desk.why(id_)
    assert found.reason is Reason.EXPIRED
    assert "and ended cancelled 2030-01-01 00:00:30 UTC" in found.sentence


async def test_one_that_somebody_cancelled_has_not_expired(desk: Desk) -> None:
    id_ = await desk.enqueue(expires_at=desk.clock() + LEASE)
    desk.clock.advance(LEASE)
    await desk.store.cancel(Filter(ids=(id_,)))
    assert (await desk.why(id_)).reason is Reason.CANCELLED


async def test_an_expired_lease_of_an_expired_job_ends_it(desk: Desk) -> None:
    id_ = await desk.enqueue(expires_at=desk.clock() + LEASE)
    await desk.store.claim("mail", "dead", 1, LEASE)
    desk.clock.advance(LEASE)
    assert "ends it as cancelled, as it expired 2030-01-01 00:00:30 UTC" in (await desk.why(id_)).sentence


async def test_a_step_that_was_cancelled_because_another_expired_says_which(desk: Desk) -> None:
    first = NewJob(task="send", queue="mail", expires_at=desk.clock() + LEASE)
    second = NewJob(task="send", queue="mail")
    steps = (NewStep(name="first", job=first), NewStep(name="second", job=second, needs=("first",)))
    await desk.store.start(NewFlow(name="f", steps=steps))
    desk.clock.advance(LEASE)
    await desk.store.sweep()
    assert "because step first of flow f expired 2030-01-01 00:00:30 UTC" in (await desk.why(second.id)).sentence


# --- windows and ageing ---------------------------------------------------------------------------------------


async def test_a_finished_job_says_how_long_its_key_is_busy(desk: Desk) -> None:
    id_ = await desk.enqueue(key="k", unique_for=timedelta(hours=1))
    [claim] = await desk.store.claim("mail", "w1", 1, LEASE)
    await desk.store.settle([claim.settled(Succeeded())])
    found = await desk.why(id_)
    assert (found.reason, found.also) == (Reason.SUCCEEDED, (Reason.KEY_BUSY,))
    assert "its key k is busy in queue mail until 2030-01-01 01:00:00 UTC (in 1 h)" in found.sentence
    desk.clock.advance(timedelta(hours=1))
    assert (await desk.why(id_)).also == ()


async def test_who_is_ahead_is_counted_by_age(desk: Desk) -> None:
    low = await desk.enqueue(priority=10)
    desk.clock.advance(timedelta(seconds=50))
    urgent = await desk.enqueue(priority=0)
    desk.clock.advance(timedelta(seconds=1))
    await desk.worker()
    assert (await desk.why(urgent)).reason is Reason.NEXT_IN_LINE
    await desk.store.configure("mail", ageing=timedelta(seconds=4))
    assert (await why(desk.store, low, desk.clock())).reason is Reason.NEXT_IN_LINE
    found = await desk.why(urgent)
    assert (found.reason, found.ahead) == (Reason.BEHIND_OTHERS, 1)
    assert "where 4 s of waiting are worth one priority" in found.sentence
    await desk.store.configure("mail", ageing=timedelta(seconds=6))
    assert (await desk.why(urgent)).reason is Reason.NEXT_IN_LINE
