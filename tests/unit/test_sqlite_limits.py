"""Limits in SQLite: what the contract suite cannot see. Jobs that are set aside, what claims read, what is swept."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from dibs.job import Filter, NewJob, Order, State
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.stores.sqlite import SQLiteStore, walking
from dibs.testing.clock import FakeClock

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "jobs.db", clock=clock, synchronous="normal")
    await made.setup()
    yield made
    await made.close()


def many(task: str, count: int, **options: object) -> list[NewJob]:
    return [NewJob(task=task, **options) for _ in range(count)]  # type: ignore[arg-type]


async def take(store: SQLiteStore, limit: int = 1) -> list[str]:
    return [claim.task for claim in await store.claim("default", "w", limit, LEASE)]


async def in_lines(store: SQLiteStore) -> dict[str, int]:
    """How many queued jobs stand in each line."""
    query = "SELECT line, count(*) FROM dibs_jobs WHERE state = 'queued' GROUP BY line"
    return dict(await store._read(lambda db, _: db.rows(query)))


async def steps_of_a_claim(store: SQLiteStore) -> int:
    """In hundreds of instructions of SQLite's virtual machine, which no busy machine can change."""
    opened, steps = store._open, 0
    assert opened is not None

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    opened.writer.db.raw.set_progress_handler(count, 100)
    await store.claim("default", "w", 1, LEASE)
    opened.writer.db.raw.set_progress_handler(None)
    return steps


@pytest.mark.parametrize(
    "scope", [Scope(task="full"), Scope(queue="default", each_key=True)], ids=["of a task", "of a key"]
)
async def test_jobs_that_a_limit_holds_back_are_passed_but_for_a_few_claims(store: SQLiteStore, scope: Scope) -> None:
    await store.enqueue(many("full", 5000, limit_key="one"))
    await store.enqueue(many("free", 50))
    await store.limit(scope, Limit(concurrency=1))
    assert await take(store) == ["full"]
    assert await take(store) == ["free"]
    first = await steps_of_a_claim(store)
    assert await take(store, 10) == ["free"] * 10
    for _ in range(4):
        assert await take(store) == ["free"]
    assert (await in_lines(store))["4:fullone"] == 4999
    last = await steps_of_a_claim(store)
    assert (first > 100, last < 20) == (True, True)


async def test_what_was_set_aside_comes_back_in_its_place_when_there_is_room(
    store: SQLiteStore, clock: FakeClock
) -> None:
    first = many("full", 100)
    await store.enqueue(first)
    await store.limit(Scope(task="full"), Limit(concurrency=1))
    running = (await store.claim("default", "w", 1, LEASE))[0]
    clock.advance(SECOND)
    await store.enqueue(many("free", 3))
    assert await take(store) == ["free"]
    assert await in_lines(store) == {"": 2, "4:full": 99}
    await store.settle([running.settled(Succeeded(None))])
    found = await store.claim("default", "w", 2, LEASE)
    assert [claim.id for claim in found][:1] == [first[1].id]
    assert [claim.task for claim in found] == ["full", "free"]


async def test_a_limit_that_is_gone_leaves_nobody_aside(store: SQLiteStore) -> None:
    await store.enqueue(many("full", 100))
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    assert await take(store) == []
    assert await in_lines(store) == {"4:full": 100}
    assert await store.wait(["default"], timedelta(0)) == {"default"}
    await store.limit(Scope(task="full"), None)
    assert len(await take(store, 1000)) == 100


async def test_jobs_that_were_set_aside_are_counted_found_and_changed_like_others(
    store: SQLiteStore, clock: FakeClock
) -> None:
    jobs = [NewJob(task="full", key=str(number)) for number in range(100)]
    await store.enqueue(jobs)
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    assert await take(store) == []
    counts = (await store.counts())[0]
    assert (counts.states[State.QUEUED], counts.scheduled, counts.oldest_due) == (100, 0, clock())
    await store.reschedule(Filter(ids=(jobs[0].id,)), clock() + SECOND)
    assert (await store.counts())[0].scheduled == 1
    await store.cancel(Filter(ids=(jobs[1].id,)))
    changed = await store.enqueue([NewJob(task="free", key="2", on_conflict="replace")])  # type: ignore[arg-type]
    assert changed[0].changed
    assert await take(store) == ["free"]
    await store.limit(Scope(task="full"), None)
    assert len(await take(store, 1000)) == 97
    clock.advance(SECOND)
    assert len(await take(store, 1000)) == 1


async def test_a_job_that_was_set_aside_ends_when_its_time_is_over(store: SQLiteStore, clock: FakeClock) -> None:
    late = NewJob(task="full", expires_at=clock() + SECOND)
    await store.enqueue([*many("full", 100), late])
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    assert await take(store) == []
    assert await in_lines(store) == {"4:full": 101}
    clock.advance(SECOND)
    assert await take(store) == []
    found = await store.get(late.id)
    assert found is not None and found.state == "cancelled"


@pytest.mark.parametrize("order", list(Order))
async def test_pages_and_lines_keep_the_order(store: SQLiteStore, clock: FakeClock, order: Order) -> None:
    """More jobs than one page, half of them held back, in either order."""
    await store.configure("default", order=order)
    free = []
    for number in range(300):
        clock.advance(timedelta(milliseconds=1))
        await store.enqueue([NewJob(task="full"), NewJob(task="free", args={"n": number})])
        free.append(number)
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    found: list[int] = []
    while claims := await store.claim("default", "w", 7, LEASE):
        found += [claim.args["n"] for claim in claims]
    assert found == (free if order is Order.FIFO else free[::-1])


async def test_a_claim_that_passes_more_than_it_may_set_aside_still_finds_what_is_behind(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "MOST_ASIDE", 60)
    await store.enqueue(many("full", 500))
    await store.enqueue(many("free", 2))
    await store.limit(Scope(task="full"), Limit(concurrency=0))
    assert await take(store) == ["free"]
    assert await in_lines(store) == {"": 441, "4:full": 60}


async def test_full_buckets_and_old_requests_to_cancel_are_swept(store: SQLiteStore, clock: FakeClock) -> None:
    await store.limit(Scope(queue="default", each_key=True), Limit(rate=Rate(1, SECOND)))
    await store.enqueue([NewJob(task="t", limit_key=str(number)) for number in range(20)])
    assert len(await take(store, 100)) == 20
    await store.cancel(Filter(tasks=("t",)))

    async def left() -> list[tuple[int, ...]]:
        query = "SELECT (SELECT count(*) FROM dibs_buckets), (SELECT count(*) FROM dibs_asked)"
        return await store._read(lambda db, _: db.rows(query))

    assert await left() == [(20, 20)]
    clock.advance(SECOND)
    await store.sweep()
    assert await left() == [(0, 20)]
    clock.advance(LEASE)
    await store.sweep()
    assert await left() == [(0, 0)]


async def in_use(store: SQLiteStore) -> dict[tuple[str, str], int]:
    """How many jobs the store takes to be held, by kind and key."""
    rows = await store._read(lambda db, _: db.rows("SELECT kind, key, held FROM dibs_use"))
    return {(kind, key): held for kind, key, held in rows}


async def test_what_is_held_is_counted_anew_only_when_it_leaves_no_room(store: SQLiteStore) -> None:
    await store.limit(Scope(queue="default", each_key=True), Limit(concurrency=3))
    await store.enqueue(many("t", 10, limit_key="a") + many("t", 1, limit_key="b"))
    for held in (1, 2, 3):
        [claim] = await store.claim("default", "w", 1, LEASE)
        await store.settle([claim.settled(Succeeded())])
        assert await in_use(store) == {("key", "a"): held}
    [claim] = await store.claim("default", "w", 1, LEASE)
    assert await in_use(store) == {("key", "a"): 1}, "none of the others is running"
    assert len(await take(store, 10)) == 3, "two of a, one of b"
    assert await in_use(store) == {("key", "a"): 3, ("key", "b"): 1}
    assert await take(store, 10) == []


async def test_a_claim_under_a_limit_that_has_room_does_not_count_what_is_running(store: SQLiteStore) -> None:
    await store.limit(Scope(queue="default"), Limit(concurrency=10_000))
    await store.limit(Scope(task="t"), Limit(concurrency=10_000))
    await store.limit(Scope(queue="default", each_key=True), Limit(concurrency=10_000))
    await store.enqueue(many("t", 3_000, limit_key="a"))
    await take(store, 10)
    few = await steps_of_a_claim(store)
    await take(store, 2_000)
    assert await steps_of_a_claim(store) <= 2 * few


async def test_what_runs_already_is_held_when_a_limit_is_set(store: SQLiteStore) -> None:
    await store.enqueue(many("t", 5, limit_key="a") + many("t", 2, limit_key="b") + many("t", 1))
    await take(store, 7)
    for scope in (Scope(queue="default"), Scope(task="t"), Scope(queue="default", each_key=True)):
        await store.limit(scope, Limit(concurrency=5))
    assert await in_use(store) == {("queue", ""): 7, ("task", ""): 7, ("key", "a"): 5, ("key", "b"): 2}
    assert await take(store, 10) == []
    await store.limit(Scope(queue="default"), None)
    await store.limit(Scope(task="t"), None)
    assert await in_use(store) == {("key", "a"): 5, ("key", "b"): 2}
    assert await take(store, 10) == ["t"], "the one without a key"


async def test_limit_keys_that_hold_nothing_are_swept(store: SQLiteStore) -> None:
    await store.limit(Scope(queue="default", each_key=True), Limit(concurrency=3))
    await store.enqueue(many("t", 1, limit_key="a") + many("t", 2, limit_key="b"))
    claims = await store.claim("default", "w", 10, LEASE)
    await store.settle([claim.settled(Succeeded()) for claim in claims[:2]])
    await store.sweep()
    assert await in_use(store) == {("key", "b"): 2}, "at least as many as are held"
    await store.settle([claim.settled(Succeeded()) for claim in claims[2:]])
    await store.sweep()
    assert await in_use(store) == {}


async def test_plain_jobs_stand_in_none_of_the_indexes_for_special_ones(store: SQLiteStore) -> None:
    await store.enqueue(many("t", 10))
    await take(store, 5)
    special = (
        "SELECT count(*) FROM dibs_jobs WHERE expires_at IS NOT NULL OR state = 'waiting' OR counted = 1 OR line <> ''"
    )
    assert (await store._read(lambda db, _: db.rows(special)))[0][0] == 0
