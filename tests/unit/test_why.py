"""Why a job is not running: each reason by name, with the names and times that somebody needs to act."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from dibs import why as module
from dibs.ids import new_id
from dibs.job import Filter, NewJob, Order
from dibs.outcome import Failed, Retry, Succeeded
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.why import Explanation, Reason, why

LEASE = timedelta(seconds=30)


class Desk:
    """A store, its clock, and the question."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)

    async def enqueue(self, **fields: Any) -> UUID:
        [answer] = await self.store.enqueue([NewJob(**{"task": "send", "queue": "mail", **fields})])
        return answer.id

    async def worker(self, name: str = "w1", **info: Any) -> None:
        await self.store.heartbeat(name, [], LEASE, {"queues": ["mail"], "tasks": ["send"], **info})

    async def why(self, job: UUID) -> Explanation:
        return await why(self.store, job, self.clock())


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_job_that_nobody_knows_is_unknown(desk: Desk) -> None:
    id_ = new_id()
    found = await desk.why(id_)
    assert (found.reason, found.state) == (Reason.UNKNOWN, None)
    assert str(id_) in found.sentence


async def test_a_job_in_the_future_is_not_due_until_then(desk: Desk) -> None:
    await desk.worker()
    due = desk.clock() + timedelta(minutes=5)
    found = await desk.why(await desk.enqueue(run_at=due))
    assert (found.reason, found.until, found.also) == (Reason.NOT_DUE, due, ())
    assert found.sentence == "It is not due until 2030-01-01 00:05:00 UTC (in 5 min)."


async def test_a_job_that_is_tried_again_later_says_which_attempt_that_is(desk: Desk) -> None:
    await desk.worker()
    id_ = await desk.enqueue()
    [claim] = await desk.store.claim("mail", "w1", 1, LEASE)
    await desk.store.settle([claim.settled(Retry("no answer", timedelta(minutes=1)))])
    found = await desk.why(id_)
    assert found.reason is Reason.NOT_DUE
    assert "attempt 2 of 5" in found.sentence


async def test_a_paused_queue_is_named_with_the_command_that_resumes_it(desk: Desk) -> None:
    await desk.worker()
    await desk.store.pause("mail")
    found = await desk.why(await desk.enqueue())
    assert found.reason is Reason.QUEUE_PAUSED
    assert "dibs queues resume mail" in found.sentence


async def test_several_reasons_are_all_named_the_first_first(desk: Desk) -> None:
    await desk.store.pause("mail")
    found = await desk.why(await desk.enqueue(run_at=desk.clock() + timedelta(days=1)))
    assert (found.reason, found.also) == (Reason.NOT_DUE, (Reason.QUEUE_PAUSED, Reason.NO_WORKER))
    assert found.sentence.count("besides") == 2


async def test_no_worker_serves_the_queue_and_those_that_did_are_named(desk: Desk) -> None:
    id_ = await desk.enqueue()
    assert (await desk.why(id_)).reason is Reason.NO_WORKER
    await desk.worker("other", queues=["reports"])
    assert (await desk.why(id_)).reason is Reason.NO_WORKER
    await desk.worker("w1")
    desk.clock.advance(timedelta(minutes=10))
    gone = await desk.why(id_)
    assert gone.reason is Reason.NO_WORKER
    assert "gone: w1" in gone.sentence


async def test_workers_that_do_not_know_the_task_are_named(desk: Desk) -> None:
    await desk.worker("w1", tasks=["other"])
    found = await desk.why(await desk.enqueue())
    assert found.reason is Reason.TASK_UNKNOWN
    assert "(w1) knows task send" in found.sentence


async def test_a_running_job_is_leased_by_its_worker_until_a_time(desk: Desk) -> None:
    id_ = await desk.enqueue()
    await desk.store.claim("mail", "w1", 1, LEASE)
    found = await desk.why(id_)
    assert (found.reason, found.worker, found.until) == (Reason.LEASED, "w1", desk.clock() + LEASE)
    assert "worker w1" in found.sentence
    assert "until 00:00:30 UTC" in found.sentence


async def test_a_running_job_whose_cancel_was_asked_says_when_its_worker_learns_of_it(desk: Desk) -> None:
    id_ = await desk.enqueue()
    await desk.store.claim("mail", "w1", 1, LEASE)
    await desk.store.cancel(Filter(ids=(id_,)))
    found = await desk.why(id_)
    assert found.reason is Reason.CANCEL_ASKED
    assert "next heartbeat" in found.sentence


async def test_an_expired_lease_waits_to_be_taken_over_and_nobody_is_there_to_do_it(desk: Desk) -> None:
    id_ = await desk.enqueue()
    await desk.store.claim("mail", "w1", 1, LEASE)
    desk.clock.advance(LEASE)
    found = await desk.why(id_)
    assert (found.reason, found.also) == (Reason.LEASE_EXPIRED, (Reason.NO_WORKER,))
    await desk.worker("w2")
    assert (await desk.why(id_)).also == ()


async def test_an_expired_lease_with_no_attempts_left_will_fail(desk: Desk) -> None:
    id_ = await desk.enqueue(max_attempts=1)
    await desk.store.claim("mail", "w1", 1, LEASE)
    desk.clock.advance(LEASE)
    assert "fails it, as all 1 attempts are used" in (await desk.why(id_)).sentence


async def test_a_job_behind_others_says_how_many(desk: Desk) -> None:
    await desk.worker()
    first = await desk.enqueue()
    await desk.enqueue(run_at=desk.clock() + timedelta(days=1), priority=-5)  # not due: nobody waits for it
    await desk.enqueue(task="unknown", priority=-5)  # nobody takes it: it keeps nobody
    third = await desk.enqueue()
    urgent = await desk.enqueue(priority=-10)
    assert (await desk.why(urgent)).reason is Reason.NEXT_IN_LINE
    assert (await desk.why(first)).ahead == 1
    found = await desk.why(third)
    assert (found.reason, found.ahead) == (Reason.BEHIND_OTHERS, 2)
    assert found.sentence == "It is behind 2 others in queue mail."


async def test_in_a_lifo_queue_the_newest_is_next(desk: Desk) -> None:
    await desk.worker()
    await desk.store.configure("mail", order=Order.LIFO)
    old, new = await desk.enqueue(), await desk.enqueue()
    assert (await desk.why(new)).reason is Reason.NEXT_IN_LINE
    assert (await desk.why(old)).ahead == 1


async def test_a_line_too_long_to_count_is_not_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    await desk.worker()
    ids = [await desk.enqueue() for _ in range(4)]
    found = await desk.why(ids[-1])
    assert (found.reason, found.ahead) == (Reason.BEHIND_OTHERS, None)
    assert "some of the 3 other due jobs" in found.sentence


async def test_a_job_that_is_next_while_every_worker_is_full_says_who_is(desk: Desk) -> None:
    await desk.worker(concurrency=1)
    await desk.enqueue()
    await desk.store.claim("mail", "w1", 1, LEASE)
    found = await desk.why(await desk.enqueue())
    assert found.reason is Reason.WORKERS_BUSY
    assert "w1 holds 1, runs 1 at once" in found.sentence


async def test_a_finished_job_says_how_and_when(desk: Desk) -> None:
    for outcome, reason, said in (
        (Succeeded(), Reason.SUCCEEDED, "succeeded 2030-01-01 00:00:00 UTC (0 s ago), after 1 attempt, on worker w1"),
        (Failed("ValueError: bad"), Reason.FAILED, "after 1 attempt: ValueError: bad (dibs jobs requeue"),
    ):
        id_ = await desk.enqueue()
        [claim] = await desk.store.claim("mail", "w1", 1, LEASE)
        await desk.store.settle([claim.settled(outcome)])
        found = await desk.why(id_)
        assert found.reason is reason
        assert said in found.sentence
    id_ = await desk.enqueue()
    await desk.store.cancel(Filter(ids=(id_,)))
    assert (await desk.why(id_)).reason is Reason.CANCELLED
