"""Diamonds of ten steps, and workers that are killed on the way: every flow ends, and no step starts too early."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from random import Random
from time import monotonic
from uuid import UUID

import pytest

from dibs.attempt import Attempt, running
from dibs.job import Claim, Flow, FlowState, Job, NewFlow, NewJob, NewStep, State
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.stores import open_store
from dibs.testing import oracle
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.process.worker_main import Diary, Orders
from tests.process.worker_main import steps as written
from tests.process.workers import Process, all_jobs
from tests.unit.working import until

FULL = os.environ.get("DIBS_FAULTS") == "full"
FLOWS = 10_000 if FULL else 340
"""On each of three stores: a tenth of the full size in all."""
KILLS = 30 if FULL else 4
CREW = 3
LONG = 3.0
"""Seconds of the steps that a kill cuts short; the next run of one is as long."""
PATIENCE = 1_200 if FULL else 60

NEEDS = {
    "top": (),
    **{f"first-{n}": ("top",) for n in range(4)},
    "waist": tuple(f"first-{n}" for n in range(4)),
    **{f"second-{n}": ("waist",) for n in range(3)},
    "bottom": tuple(f"second-{n}" for n in range(3)),
}
RESULTS = {"top": 1, "first": 2, "waist": 9, "second": 10, "bottom": 31}
"""Each is one more than what it needs has together."""


def diamond(random: Random, *, first: float = 0.0) -> NewFlow:
    """Steps that take up to 20 ms; the first one of all takes so many seconds longer."""
    longer = {"top": first}
    return NewFlow(
        name="diamond",
        steps=tuple(
            NewStep(
                name=name,
                job=NewJob(
                    task="pass_on",
                    args={"seconds": longer.get(name, 0.0) + random.uniform(0, 0.02)},
                    max_attempts=100,
                ),
                needs=needs,
            )
            for name, needs in NEEDS.items()
        ),
    )


async def every_flow(store: Store) -> list[Flow]:
    flows: list[Flow] = []
    after: UUID | None = None
    while True:
        page = await store.flows(None, after, 1_000)
        flows += page.flows
        if (after := page.after) is None:
            return flows


async def run_with_kills(store: Store, url: str, folder: Path) -> None:
    """Start flows while workers work, and again and again kill the one that is in the middle of a long step."""
    random, names = Random(7), iter(range(1_000))
    with ExitStack() as stack:

        def start() -> Process:
            process = Process(url, folder, f"w{next(names)}", lease=1, concurrency=10, accepts=True)
            stack.callback(process.close)
            return process

        crew = {process.name: process for process in (start() for _ in range(CREW))}
        for kill in range(KILLS):
            for _ in range(FLOWS // KILLS - 1 + (kill < FLOWS % KILLS)):
                assert (await store.start(diamond(random))).created
            long = diamond(random, first=LONG)
            assert (await store.start(long)).created
            victim = crew.pop(await _who_runs(store, long.steps[0].job.id))
            victim.wait_until_ready()
            victim.send(signal.SIGKILL)
            victim.end()
            replaced = start()
            crew[replaced.name] = replaced
        await until(lambda: _all_ended(store), PATIENCE)
        for process in crew.values():
            process.wait_until_ready()
            process.send(signal.SIGTERM)
            process.stats()


async def _who_runs(store: Store, step: UUID) -> str:
    """Wait until somebody runs the step, and say who."""
    found: list[Job] = []

    async def runs() -> bool:
        job = await store.get(step)
        assert job is not None and job.state in (State.QUEUED, State.RUNNING), "it ended before anybody could be killed"
        found[:] = [job]
        return job.state is State.RUNNING

    await until(runs, PATIENCE)
    return found[0].worker or ""


async def _all_ended(store: Store) -> bool:
    await asyncio.sleep(0.1)
    return not (await store.flows((FlowState.RUNNING,), limit=1)).flows


async def check(store: Store, folder: Path) -> None:
    flows, jobs = await every_flow(store), await all_jobs(store)
    assert len(flows) == FLOWS
    assert {(flow.state, flow.finished_at is None, flow.steps[State.SUCCEEDED]) for flow in flows} == {
        (FlowState.SUCCEEDED, False, len(NEEDS))
    }
    assert oracle.faults(oracle.read(folder), jobs, [job.id for job in jobs]) == []
    assert list(_recorded_otherwise(jobs, folder)) == []
    assert list(_too_early(jobs, folder)) == []
    assert {job.step: job.result for job in jobs} == {name: RESULTS[name.partition("-")[0]] for name in NEEDS}
    assert {job.result == RESULTS[(job.step or "").partition("-")[0]] for job in jobs} == {True}
    assert any(job.epoch > 1 for job in jobs), "no kill cut a step short"


def _recorded_otherwise(jobs: list[Job], folder: Path) -> Iterator[str]:
    """Successes that a worker saw accepted: one for each step, by the one that the store says it was."""
    accepted = written(folder, kind="accepted")
    owners = {str(job.id): (job.epoch, job.worker) for job in jobs}
    for job, count in Counter(each.job for each in accepted).items():
        if count > 1:
            yield f"{job} succeeded {count} times"
    for each in accepted:
        if owners[each.job] != (each.epoch, each.worker):
            yield f"{each.worker} saw its success of {each.job} accepted, the store says {owners[each.job]}"


def _too_early(jobs: list[Job], folder: Path) -> Iterator[str]:
    """Steps that began before the run had ended that made a step succeed which they need."""
    by_name = {(job.flow, job.step): job for job in jobs}
    ends = {(run.job, run.epoch, run.worker): run.end for run in oracle.read(folder)}
    by_id = {str(job.id): job for job in jobs}
    for began in written(folder):
        job = by_id[began.job]
        assert job.needs == NEEDS[job.step or ""]
        for name in job.needs:
            need = by_name[job.flow, name]
            if began.at < ends[need.id, need.epoch, need.worker or ""]:
                yield f"{job.step} of flow {job.flow} began before {name} had succeeded"


async def test_the_observer_sees_a_step_that_began_too_early_and_a_success_that_counted_twice(tmp_path: Path) -> None:
    store = open_store("memory://")
    steps = tuple(NewStep(name=name, job=NewJob(task="t"), needs=needs) for name, needs in NEEDS.items())
    await store.start(NewFlow(name="diamond", steps=steps))
    while claims := await store.claim("default", "w", 10, timedelta(seconds=30)):
        await store.settle([claim.settled(Succeeded(1)) for claim in claims])
    jobs = await all_jobs(store)
    diary = Diary(Orders(name="w", url="memory://", folder=str(tmp_path)))
    for claim in (claim_of(job) for job in reversed(jobs)):  # as they were made, so each after what it needs
        running.set(Attempt(claim))
        diary.step()
        diary.end(monotonic())
        diary.accepted(Attempt(claim), Succeeded(1))
    assert (list(_too_early(jobs, tmp_path)), list(_recorded_otherwise(jobs, tmp_path))) == ([], [])
    running.set(Attempt(claim_of(jobs[-1])))
    diary.end(monotonic())  # the first step ends once more, after all that need it
    diary.accepted(Attempt(claim_of(jobs[-1])), Succeeded(1))
    assert sum("began before top" in each for each in _too_early(jobs, tmp_path)) == 4
    assert list(_recorded_otherwise(jobs, tmp_path)) == [f"{jobs[-1].id} succeeded 2 times"]


def claim_of(job: Job) -> Claim:
    """The claim that made the job succeed."""
    now = job.created_at
    return Claim(job.id, job.epoch, job.worker or "", job.queue, job.task, job.args, 0, now, now, 1, 1, now)


async def test_sqlite_with_workers_killed_on_the_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    store = open_store(url)
    await store.setup()
    await run_with_kills(store, url, tmp_path)
    await check(store, tmp_path)
    await store.close()


@pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")
async def test_postgres_with_workers_killed_on_the_way(tmp_path: Path, migrated_database: DatabaseFactory) -> None:
    url = migrated_database(POSTGRES_LABELS[-1])
    store = open_store(url)
    await store.setup()
    await run_with_kills(store, url, tmp_path)
    await check(store, tmp_path)
    await store.close()


@pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")
async def test_redis_with_workers_killed_on_the_way(tmp_path: Path, redis_database: DatabaseFactory) -> None:
    url = redis_database(REDIS_LABELS[-1])
    store = open_store(url)
    await store.setup()
    await run_with_kills(store, url, tmp_path)
    await check(store, tmp_path)
    await store.close()
