"""The operator's service: bulk changes in chunks, lists over pages, who is alive, and what is not well."""

from datetime import timedelta

import pytest

from dibs.admin import LIVE, Admin
from dibs.errors import Refused
from dibs.job import (
    Cancel,
    Change,
    Delete,
    Filter,
    NewJob,
    Order,
    Reprioritise,
    Requeue,
    Reschedule,
    State,
)
from dibs.outcome import Failed, Succeeded
from dibs.scope import Limit, Scope
from dibs.stores.doctor import Finding, Level
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock

LEASE = timedelta(seconds=30)
MAIL = Filter(queues=("mail",))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def admin(store: MemoryStore, clock: FakeClock) -> Admin:
    return Admin(store, clock)


def jobs(count: int, queue: str = "mail") -> list[NewJob]:
    return [NewJob(task="send", args={"n": n}, queue=queue) for n in range(count)]


async def finish(store: MemoryStore, count: int, how: Succeeded | Failed, queue: str = "mail") -> None:
    claims = await store.claim(queue, "w", count, LEASE)
    await store.settle([claim.settled(how) for claim in claims])


async def test_a_change_reaches_every_job_chunk_by_chunk_and_says_how_far_it_is(admin: Admin) -> None:
    await admin.enqueue(jobs(25))
    told: list[tuple[int, int]] = []
    changed = await admin.change(MAIL, Cancel(), chunk=10, progress=lambda done, total: told.append((done, total)))
    assert changed == 25
    assert told == [(10, 25), (20, 25), (25, 25)]
    assert await admin.count(Filter(states=(State.CANCELLED,))) == 25


async def test_a_dry_run_counts_and_changes_nothing(admin: Admin) -> None:
    await admin.enqueue(jobs(7))
    assert await admin.change(MAIL, Delete(), dry_run=True, chunk=2) == 7
    assert await admin.count(MAIL) == 7


@pytest.mark.parametrize(
    ("change", "applies"),
    [(Cancel(), 2), (Requeue(), 1), (Reprioritise(5), 2), (Delete(), 3)],
    ids=lambda value: type(value).__name__,
)
async def test_a_verb_changes_only_the_jobs_that_it_applies_to(
    admin: Admin, store: MemoryStore, change: Change, applies: int
) -> None:
    await admin.enqueue(jobs(3))
    await finish(store, 1, Failed("no"))
    assert await admin.change(MAIL, change) == applies


async def test_reschedule_moves_what_has_not_started(admin: Admin, clock: FakeClock) -> None:
    await admin.enqueue(jobs(2))
    later = clock() + timedelta(hours=1)
    assert await admin.change(MAIL, Reschedule(later)) == 2
    assert {job.run_at async for job in admin.every(MAIL)} == {later}


async def test_an_empty_filter_is_refused_for_a_change_and_counts_everything(admin: Admin) -> None:
    await admin.enqueue([*jobs(2), *jobs(1, "other")])
    with pytest.raises(Refused):
        await admin.change(Filter(), Delete())
    assert await admin.count(Filter()) == 3
    assert await admin.count(Filter(queues=("mail", "none"), states=(State.QUEUED,))) == 2
    assert await admin.count(Filter(tasks=("send",), queues=("other",))) == 1


async def test_every_goes_over_all_pages_and_stops_at_a_limit(admin: Admin) -> None:
    await admin.enqueue(jobs(2_500))
    found = [job.id async for job in admin.every(MAIL)]
    assert len(found) == len(set(found)) == 2_500
    assert found == sorted(found, reverse=True)
    assert [job.id async for job in admin.every(MAIL, 3)] == found[:3]


async def test_a_worker_is_live_while_its_heartbeats_come(admin: Admin, store: MemoryStore, clock: FakeClock) -> None:
    about = {"queues": ["mail"], "tasks": ["send"], "concurrency": 4}
    await store.heartbeat("w1", [], LEASE, about)
    [worker] = await admin.workers()
    assert (worker.live, worker.queues, worker.tasks, worker.concurrency) == (True, ("mail",), ("send",), 4)
    clock.advance(LIVE + timedelta(seconds=1))
    [worker] = await admin.workers()
    assert not worker.live


async def test_a_worker_that_said_goodbye_is_not_live(admin: Admin, store: MemoryStore, clock: FakeClock) -> None:
    await store.heartbeat("w1", [], LEASE, {"queues": ["mail"], "stopped_at": clock().isoformat()})
    [worker] = await admin.workers()
    assert not worker.live
    assert {finding.check for finding in await admin.health() if finding.level is not Level.OK} == {"workers"}


async def test_a_worker_with_a_long_lease_may_be_silent_for_longer(
    admin: Admin, store: MemoryStore, clock: FakeClock
) -> None:
    await store.heartbeat("slow", [], timedelta(hours=1), {"lease": 3600})
    clock.advance(timedelta(minutes=30))
    [worker] = await admin.workers()
    assert worker.live


async def test_what_a_worker_does_not_say_is_not_held_against_it(admin: Admin, store: MemoryStore) -> None:
    await store.heartbeat("plain", [], LEASE, {"queues": 7, "concurrency": True})
    [worker] = await admin.workers()
    assert worker.serves("anything")
    assert worker.knows("anything")
    assert not worker.full


async def test_a_queue_names_the_live_workers_that_serve_it(admin: Admin, store: MemoryStore) -> None:
    await admin.enqueue(jobs(1))
    await store.heartbeat("w1", [], LEASE, {"queues": {"mail": 3, "idle": 1}})
    await store.heartbeat("w2", [], LEASE, {"queues": ["other"]})
    found = {queue.name: queue for queue in await admin.queues()}
    assert found["mail"].workers == ("w1",)
    assert found["mail"].due == 1
    assert found["idle"].workers == ("w1",), "a queue that is served is shown before its first job"


async def test_a_queue_can_be_paused_resumed_and_turned_around(admin: Admin) -> None:
    await admin.pause("mail")
    await admin.order("mail", Order.LIFO)
    [queue] = await admin.queues()
    assert (queue.paused, queue.order) == (True, Order.LIFO)
    await admin.resume("mail")
    [queue] = await admin.queues()
    assert not queue.paused


async def test_a_snapshot_shows_the_longest_running_and_the_last_failures(
    admin: Admin, store: MemoryStore, clock: FakeClock
) -> None:
    await admin.enqueue(jobs(5))
    await finish(store, 1, Failed("first"))
    clock.advance(timedelta(seconds=1))
    await finish(store, 1, Failed("second"))
    [long] = await store.claim("mail", "w", 1, LEASE)
    clock.advance(timedelta(seconds=1))
    await store.claim("mail", "w", 2, LEASE)
    seen = await admin.snapshot(jobs=2)
    assert seen.running[0].id == long.id
    assert len(seen.running) == 2
    assert [job.errors[-1].error for job in seen.failures] == ["second", "first"]


# --- health -------------------------------------------------------------------------------------------------


async def health(admin: Admin) -> dict[str, Finding]:
    return {finding.check: finding for finding in await admin.health()}


async def test_an_empty_store_lacks_only_a_worker(admin: Admin) -> None:
    assert {name for name, finding in (await health(admin)).items() if finding.level is not Level.OK} == {"workers"}


async def test_due_jobs_that_no_worker_serves_are_a_failure_that_says_how_to_start_one(admin: Admin) -> None:
    await admin.enqueue(jobs(3))
    found = (await health(admin))["queue mail"]
    assert found.level is Level.FAIL
    assert "3 due jobs" in found.text
    assert "--queues mail" in found.fix


async def test_a_paused_queue_with_due_jobs_is_a_warning(admin: Admin) -> None:
    await admin.enqueue(jobs(1))
    await admin.pause("mail")
    found = (await health(admin))["queue mail"]
    assert (found.level, found.fix) == (Level.WARN, "run dibs queues resume mail")


async def test_a_queue_that_falls_behind_is_a_warning(admin: Admin, store: MemoryStore, clock: FakeClock) -> None:
    await admin.enqueue(jobs(1))
    clock.advance(timedelta(minutes=30))
    await store.heartbeat("w1", [], LEASE, {"queues": ["mail"]})
    found = (await health(admin))["queue mail"]
    assert found.level is Level.WARN
    assert "30 min" in found.text


async def test_expired_leases_silent_workers_and_failures_are_warnings(
    admin: Admin, store: MemoryStore, clock: FakeClock
) -> None:
    await admin.enqueue(jobs(2))
    await store.heartbeat("w", [], LEASE, {"queues": ["mail"]})
    await finish(store, 1, Failed("no"))
    await store.claim("mail", "w", 1, LEASE)
    clock.advance(LIVE * 2)
    found = await health(admin)
    assert found["leases"].level is Level.WARN
    assert found["worker w"].level is Level.WARN
    assert "holds 1 job" in found["worker w"].text
    assert found["failures"].text == "1 failed job"


async def test_a_queue_that_its_limit_holds_back_is_not_told_to_add_workers() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    admin = Admin(store, clock)
    await store.limit(Scope(queue="mail"), Limit(concurrency=0))
    await store.enqueue([NewJob(task="send", queue="mail")])
    clock.advance(timedelta(minutes=10))
    await store.heartbeat("w", [], timedelta(seconds=30), {"queues": ["mail"]})
    [finding] = [each for each in await admin.health() if each.check == "queue mail"]
    assert finding.fix == "its limit holds it back: see dibs limits"


async def test_an_operator_sets_ageing_and_limits_and_sees_them() -> None:
    store = MemoryStore()
    admin = Admin(store)
    await admin.order("mail", Order.FIFO, timedelta(seconds=10))
    [queue] = await admin.queues()
    assert queue.ageing == timedelta(seconds=10)
    await admin.limits().set(queue="mail", concurrency=1)
    [one] = await admin.limits().list()
    assert (one.scope, one.by) == (Scope(queue="mail"), "operator")
