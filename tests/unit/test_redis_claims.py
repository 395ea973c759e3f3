"""Claims on Redis under pressure: several processes, both ways of claiming, and large queues."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.job import Filter, NewJob, State
from dibs.outcome import Pulse, Retry, Succeeded, Verdict
from dibs.store import CHUNK
from dibs.stores.redis import RedisStore
from dibs.stores.redis.scripts import Script
from dibs.testing.labs.redis import RedisLab
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.servers import RedisServer

LEASE = timedelta(seconds=60)

HANDLED = {"enqueue": 20_000, "claim": 2_500, "heartbeat": 2_500, "settle": 2_500, "find": 23_000, "change": 13_000}
"""How many jobs the calls of `_all_verbs` look at, by the script that does: what each takes is for bench/scripts.py."""

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
def url(request: pytest.FixtureRequest, redis_database: DatabaseFactory) -> str:
    """An empty database on each kind of server."""
    return redis_database(request.param)


def jobs(count: int, **fields: Any) -> list[NewJob]:
    return [NewJob(task="t", args={"n": n}, **fields) for n in range(count)]


# Takes jobs until there are none, and prints which; some go back on the way.
CLAIMER = """
import asyncio, json, random, sys
from datetime import timedelta
from dibs.outcome import Released, Succeeded
from dibs.store import CHUNK
from dibs.stores.redis import RedisStore

async def main(url, way, name):
    store = RedisStore(url, claim=way)
    dice = random.Random(name)
    log = []
    while claims := await store.claim("default", name, limit := dice.choice((1, 3, 20)), timedelta(seconds=60)):
        assert len(claims) <= limit
        log += [(str(claim.id), claim.epoch) for claim in claims]
        outcomes = [Released() if claim.epoch == 1 and dice.random() < 0.1 else Succeeded() for claim in claims]
        verdicts = await store.settle([c.settled(o) for c, o in zip(claims, outcomes)])
        assert set(verdicts) == {"accepted"}, verdicts
    await store.close()
    print(json.dumps(log))

asyncio.run(main(*sys.argv[1:]))
"""


async def _claimer(url: str, way: str, name: str) -> list[tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLAIMER, url, way, name, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [(job, epoch) for job, epoch in json.loads(out)]


@pytest.mark.parametrize("ways", [("watch",) * 3, ("watch", "script", "watch", "script")])
async def test_processes_that_race_take_every_job_and_none_twice(url: str, ways: tuple[str, ...]) -> None:
    store = RedisStore(url)
    made = await store.enqueue(jobs(600))
    logs = await asyncio.gather(*(_claimer(url, way, f"w{n}") for n, way in enumerate(ways)))
    issued = Counter(entry for log in logs for entry in log)
    assert max(issued.values()) == 1
    assert {job for job, _ in issued} == {str(one.id) for one in made}
    [counts] = await store.counts()
    assert counts.states[State.SUCCEEDED] == 600
    assert [worker.running for worker in await store.workers()] == []
    await store.close()


async def test_a_watching_claim_goes_on_when_others_change_its_jobs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its transaction, half of the jobs are cancelled and the queue is resumed."""
    store, other = RedisStore(url, claim="watch"), RedisStore(url)
    made = await store.enqueue(jobs(10))
    assert store._watch is not None
    watch, calls = store._watch._watch, 0

    async def disturbed(*args: Any) -> bool:
        nonlocal calls
        calls += 1
        answer = await watch(*args)
        if calls == 1:
            await other.cancel(Filter(ids=(made[0].id, made[2].id)))
        if calls == 2:
            await other.resume("default")
        return answer

    monkeypatch.setattr(store._watch, "_watch", disturbed)
    claims = await store.claim("default", "w", 4, LEASE)
    wanted = [made[n].id for n in (1, 3, 4, 5)]
    assert calls > 2
    assert [claim.id for claim in claims] == wanted[: len(claims)]
    assert len(claims) == 4
    await store.close()
    await other.close()


async def test_a_watching_claim_gives_nothing_of_a_queue_paused_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = RedisStore(url, claim="watch"), RedisStore(url)
    await store.enqueue(jobs(3))
    assert store._watch is not None
    watch = store._watch._watch

    async def paused(*args: Any) -> bool:
        answer = await watch(*args)
        await other.pause("default")
        return answer

    monkeypatch.setattr(store._watch, "_watch", paused)
    assert await store.claim("default", "w", 2, LEASE) == []
    await store.close()
    await other.close()


# --- large queues -------------------------------------------------------------------------------


async def _all_verbs(store: RedisStore) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    for _ in range(20):
        await store.enqueue(jobs(500))
        await store.enqueue(jobs(500, priority=-1, run_at=later))
    claims = await store.claim("default", "w", 2_500, LEASE)
    assert len(claims) == 2_500
    await store.heartbeat("w", claims, LEASE)
    await store.settle([claim.settled(Succeeded("r")) for claim in claims[:2_200]])
    await store.settle([claim.settled(Retry("e")) for claim in claims[2_200:]])
    await store.find(Filter(keys=("nobody",)))
    await store.find(Filter(), limit=3_000)
    await store.reschedule(Filter(everything=True), later, limit=3_000)
    await store.delete(Filter(everything=True), limit=10_000)


async def _commands(store: RedisStore) -> int:
    """How many commands the server has run, those of scripts among them."""
    [stats] = await store._link.exchange(("INFO", "commandstats"))
    return sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in stats.split() if b"calls=" in line)


async def test_no_script_sees_to_many_jobs_however_many_there_are(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(redis_server.url())
    call = store._link.call
    calls: Counter[str] = Counter()

    async def counted(script: Script, *args: Any, **how: Any) -> Any:
        calls[script.name] += 1
        return await call(script, *args, **how)

    monkeypatch.setattr(store._link, "call", counted)
    try:
        await _all_verbs(store)
    finally:
        await store.close()
    assert calls.keys() == HANDLED.keys()
    assert {name: HANDLED[name] / count for name, count in calls.items() if HANDLED[name] / count > 2 * CHUNK} == {}


async def test_a_claim_does_not_read_through_future_jobs_nor_those_of_other_tasks(
    redis_server: RedisServer,
) -> None:
    store = RedisStore(redis_server.url())
    later = datetime.now(UTC) + timedelta(days=1)
    for _ in range(5):
        await store.enqueue(jobs(2_000, priority=-1, run_at=later))
    await store.enqueue([NewJob(task="other") for _ in range(5_000)])
    await store.enqueue([NewJob(task="mine", priority=9)])
    await store._link.exchange(("CONFIG", "RESETSTAT"))
    [claim] = await store.claim("default", "w", 1, LEASE, ["mine"])
    assert claim.task == "mine"
    [claim] = await store.claim("default", "w", 1, LEASE)
    assert claim.task == "other"
    assert 2 < await _commands(store) < 100
    await store.close()


# --- expired leases -----------------------------------------------------------------------------


@pytest.fixture(params=["script", "watch"])
async def lab(request: pytest.FixtureRequest, url: str) -> AsyncIterator[RedisLab]:
    """Each way of claiming, on a clock that the test owns."""
    made = RedisLab(url, request.param)
    await made.start()
    yield made
    await made.stop()


async def test_expired_jobs_of_other_tasks_do_not_stop_a_claim(lab: RedisLab) -> None:
    store = await lab.open()
    await store.enqueue([NewJob(task="other", priority=-1) for _ in range(2_200)])
    assert len(await store.claim("default", "w", 2_200, timedelta(seconds=1))) == 2_200
    await lab.advance(5)
    await store.enqueue([NewJob(task="mine")])
    assert await store.claim("default", "w", 10, LEASE, ["nobody"]) == []
    assert [claim.task for claim in await store.claim("default", "w", 10, LEASE, ["mine"])] == ["mine"]
    assert len(await store.claim("default", "w", 5_000, LEASE)) == 2_200


async def test_a_lease_that_is_valid_again_after_the_clock_was_set_back_is_respected(
    lab: RedisLab,
) -> None:
    store = await lab.open()
    await store.enqueue(jobs(3))
    claims = await store.claim("default", "w", 3, timedelta(seconds=10))
    await lab.advance(20)
    assert await store.claim("default", "other", 3, LEASE, ["nobody"]) == []
    await lab.advance(-15)
    assert await store.claim("default", "other", 3, LEASE) == []
    assert await store.heartbeat("w", claims[:1], LEASE) == [Pulse.HELD]
    assert await store.settle([claims[1].settled(Succeeded())]) == [Verdict.ACCEPTED]
    await lab.advance(15)
    again = await store.claim("default", "other", 3, LEASE)
    assert [claim.id for claim in again] == [claims[2].id]
    [counts] = await store.counts()
    assert counts.states[State.RUNNING] == 2
    assert counts.states[State.SUCCEEDED] == 1
