"""Many jobs in SQLite: stored, claimed and settled in a few steps, with the answers that each would get alone."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import msgspec
import pytest

from dibs.errors import ConfigurationError
from dibs.job import Claim, Filter, NewJob, Settlement
from dibs.outcome import Pulse, Retry, Succeeded, Verdict
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore, enqueueing
from dibs.testing.clock import FakeClock

LEASE = timedelta(seconds=60)
MANY = 200


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "jobs.db", clock=clock, synchronous="normal")
    await made.setup()
    yield made
    await made.close()


def raw(store: SQLiteStore) -> apsw.Connection:
    assert store._open is not None
    return store._open.writer.db.raw


def numbered(number: int) -> UUID:
    return UUID(int=number << 80 | 7 << 76 | 2 << 62)


@contextmanager
def counted(store: SQLiteStore) -> Iterator[list[str]]:
    """What the writer runs and reads: a word for each statement begun and each row given."""
    found: list[str] = []
    tracing, connection = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_ROW, raw(store)

    def note(event: dict[str, Any]) -> None:
        found.append("row" if event["code"] == apsw.SQLITE_TRACE_ROW else "statement")

    connection.trace_v2(tracing, note)
    try:
        yield found
    finally:
        connection.trace_v2(0, None)


# --- few steps --------------------------------------------------------------------------------------------------


async def test_many_are_stored_claimed_renewed_and_settled_in_a_few_steps(store: SQLiteStore) -> None:
    """After each step the writer waits for the interpreter: for as long as 5 ms where handlers keep it busy."""
    with counted(store) as steps:
        await store.enqueue([NewJob(task="t", args={"n": number}) for number in range(MANY // 2)])
        await store.enqueue([NewJob(task="t", key=f"k{number}") for number in range(MANY // 2)])
        claims = await store.claim("default", "w", MANY, LEASE)
        assert await store.heartbeat("w", claims, LEASE) == [Pulse.HELD] * MANY
        verdicts = await store.settle([claim.settled(Succeeded(claim.args)) for claim in claims])
    assert verdicts == [Verdict.ACCEPTED] * MANY
    assert len(steps) < 30


async def test_an_apsw_that_cannot_do_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "compile_options", tuple(x for x in apsw.compile_options if x != "ENABLE_CARRAY"))
    with pytest.raises(ConfigurationError, match="built without carray: pip install"):
        await SQLiteStore(tmp_path / "jobs.db").setup()


# --- enqueue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
async def test_jobs_that_differ_in_ids_and_arguments_alone_find_what_each_would_find_alone(
    store: SQLiteStore, clock: FakeClock, seed: int
) -> None:
    """Ids that are new, unfinished or finished, more than once in a call, in any order."""
    draw, alone = random.Random(seed), MemoryStore(clock=clock)
    for _ in range(12):
        how: dict[str, Any] = {"priority": draw.randrange(3), "meta": draw.choice([{}, {"by": "é"}])}
        how["run_at"] = draw.choice([None, clock() + timedelta(seconds=draw.randrange(3))])
        ids = [numbered(draw.randrange(60)) for _ in range(draw.randrange(2, 12))]
        jobs = [NewJob(task="t", id=id_, args={"n": [number, "ü"]}, **how) for number, id_ in enumerate(ids)]
        expected = [answer for job in jobs for answer in await alone.enqueue([job])]
        assert await store.enqueue(jobs) == expected
        for id_ in ids:
            assert await store.get(id_) == await alone.get(id_)
        for either in (store, alone):
            claims = await either.claim("default", "w", 4, LEASE)
            await either.settle([claim.settled(Succeeded(None)) for claim in claims])
        clock.advance(timedelta(seconds=1))


async def test_long_jobs_that_differ_are_stored_in_parts(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueueing, "_CHARACTERS", 50_000)
    raw(store).limit(apsw.SQLITE_LIMIT_LENGTH, 130_000)
    sizes = [10, 100_000, 20_000, 20_000, 20_000, *([10] * 230), 49_000]
    jobs = [NewJob(task="t", args="x" * size, priority=number % 2) for number, size in enumerate(sizes)]
    assert [answer.created for answer in await store.enqueue(jobs)] == [True] * len(jobs)
    assert [answer.created for answer in await store.enqueue(jobs)] == [False] * len(jobs)
    for job in jobs:
        found = await store.get(job.id)
        assert found is not None and found.args == job.args


# --- claim ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["fifo", "lifo"])
async def test_a_claim_of_many_is_what_claims_of_few_would_be(store: SQLiteStore, clock: FakeClock, order: str) -> None:
    draw, alone = random.Random(7), MemoryStore(clock=clock)
    jobs = [
        NewJob(
            task=draw.choice("tuv"),
            args=draw.choice([[], {"a": '"\\\n\u2028'}, "é" * 300, None, 1.5]),
            priority=draw.randrange(3),
            run_at=clock() - timedelta(seconds=draw.randrange(3)),
            key=draw.choice([None, f"k{number}"]),
            meta=draw.choice([{}, {"x": [None, True]}]),
            max_attempts=draw.randrange(1, 9),
        )
        for number in range(60)
    ]
    for either in (store, alone):
        await either.configure("default", order=order)  # type: ignore[arg-type]
        await either.enqueue(jobs)
    for limit in (25, 3, 50):
        assert await store.claim("default", "w", limit, LEASE, ["t", "u"]) == await alone.claim(
            "default", "w", limit, LEASE, ["t", "u"]
        )
        clock.advance(timedelta(seconds=1))
    for job in jobs:
        assert await store.get(job.id) == await alone.get(job.id)


async def test_a_claim_of_many_forgets_how_the_last_attempt_was_settled(store: SQLiteStore, clock: FakeClock) -> None:
    await store.enqueue([NewJob(task="t") for _ in range(12)])
    for _ in range(2):
        claims = await store.claim("default", "w", 12, LEASE)
        retries = [claim.settled(Retry("again", timedelta(0))) for claim in claims]
        if claims[0].epoch == 1:
            assert await store.settle(retries) == [Verdict.ACCEPTED] * 12
    clock.advance(LEASE)
    assert await store.settle(retries) == [Verdict.LOST] * 12


async def test_arguments_that_are_too_long_for_one_text_are_claimed_all_the_same(store: SQLiteStore) -> None:
    long = "x" * 20_000
    await store.enqueue([NewJob(task="t", args=[number, long]) for number in range(30)])
    raw(store).limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    claims = await store.claim("default", "w", 30, LEASE)
    assert [claim.args for claim in claims] == [[number, long] for number in range(30)]


# --- settle -----------------------------------------------------------------------------------------------------


def settled(claim: Claim, *, epoch: int | None = None, worker: str | None = None) -> Settlement:
    return Settlement(
        claim.id, claim.epoch if epoch is None else epoch, worker or claim.worker, Succeeded({"é": [claim.args]})
    )


async def test_each_of_many_successes_is_judged_by_itself(store: SQLiteStore, clock: FakeClock) -> None:
    alone = MemoryStore(clock=clock)
    jobs = [NewJob(task="t", id=numbered(number), args=number) for number in range(12)]
    answers = []
    for either in (store, alone):
        await either.enqueue(jobs)
        ours = await either.claim("default", "w", 6, LEASE)
        theirs = await either.claim("default", "v\u00fc", 4, 2 * LEASE)
        gone = msgspec.structs.replace(ours[0], id=numbered(99))
        sent = [
            *(settled(claim) for claim in ours[:3]),
            *(settled(claim) for claim in theirs[:2]),
            settled(ours[3], epoch=2),
            settled(theirs[2], worker="w"),
            settled(gone),
        ]
        impossible = [
            settled(ours[3], epoch=-1),
            settled(ours[4], epoch=10**10),
            settled(theirs[3], worker="\ud800"),
            settled(ours[5]),
        ]
        verdicts = [await either.settle(sent), await either.settle(sent), await either.settle(impossible)]
        clock.advance(LEASE)
        late = await either.settle([settled(claim) for claim in (*ours[3:5], *theirs[2:])])
        clock.advance(-LEASE)
        answers.append((verdicts, late, [await either.get(job.id) for job in jobs]))
    assert answers[0] == answers[1]
    accepted, lost = [Verdict.ACCEPTED], [Verdict.LOST]
    assert answers[0][0] == [accepted * 5 + lost * 3] * 2 + [lost * 3 + accepted]
    assert answers[0][1] == lost * 2 + accepted * 2


# --- heartbeat --------------------------------------------------------------------------------------------------


def changed(claim: Claim, **values: Any) -> Claim:
    return msgspec.structs.replace(claim, **values)


async def test_each_of_many_claims_has_its_own_pulse(store: SQLiteStore, clock: FakeClock) -> None:
    alone = MemoryStore(clock=clock)
    jobs = [NewJob(task="t", id=numbered(number)) for number in range(8)]
    answers = []
    for either in (store, alone):
        await either.enqueue(jobs)
        short = await either.claim("default", "w", 2, LEASE)
        held = await either.claim("default", "w", 4, 3 * LEASE)
        theirs = await either.claim("default", "v", 2, 3 * LEASE)
        await either.cancel(Filter(ids=(held[1].id,)))
        clock.advance(LEASE)
        beaten = [short[0], *held[:3], theirs[0], changed(held[3], epoch=2), changed(held[3], id=numbered(99))]
        pulses = await either.heartbeat("w", beaten, 5 * LEASE)
        shorter = await either.heartbeat("w", held, LEASE)
        impossible = await either.heartbeat("w", [held[0], changed(held[2], epoch=10**30)], LEASE)
        answers.append((pulses, shorter, impossible, [await either.get(job.id) for job in jobs]))
        clock.advance(-LEASE)
    assert answers[0] == answers[1]
    held_, asked, lost = Pulse.HELD, Pulse.CANCEL, Pulse.LOST
    assert answers[0][:3] == (
        [lost, held_, asked, held_, lost, lost, lost],
        [held_, asked, held_, held_],
        [held_, lost],
    )


async def test_leases_renewed_among_many_stand_in_line_no_more(store: SQLiteStore, clock: FakeClock) -> None:
    """A claim has seen that they expired; then the clock was set back."""
    await store.enqueue([NewJob(task="t") for _ in range(3)])
    claims = await store.claim("default", "w", 3, LEASE)
    clock.advance(LEASE)
    assert await store.claim("default", "v", 3, LEASE, ["other"]) == []
    clock.advance(-LEASE)
    in_line = "SELECT count(*) FROM dibs_jobs WHERE ready = 1"
    assert raw(store).execute(in_line).fetchall() == [(3,)]
    assert await store.heartbeat("w", claims, LEASE) == [Pulse.HELD] * 3
    assert raw(store).execute(in_line).fetchall() == [(0,)]
