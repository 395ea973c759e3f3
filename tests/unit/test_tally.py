"""What a worker counts: every attempt, by queue, task and outcome, and how long it took and waited."""

import asyncio
import random
from bisect import bisect_left
from datetime import timedelta

import pytest

from dibs.job import Filter
from dibs.signals import Fail, Snooze
from dibs.telemetry.buckets import BOUNDS, COARSE, Times, coarse
from dibs.telemetry.tally import Figures
from tests.unit.working import Shop, until

_ALL = Filter(everything=True)


async def test_every_attempt_is_counted_by_queue_task_and_outcome() -> None:
    shop = Shop()

    async def work(how: str) -> None:
        match how:
            case "fail":
                raise Fail("no")
            case "retry":
                raise ValueError("again")
            case "snooze":
                raise Snooze(3600)

    task = shop.task(work, max_attempts=2)
    for how in ("fine", "fine", "fail", "retry", "snooze"):
        await shop.enqueue(task, how)
    await shop.enqueue(task, "fine", queue="mail")
    worker = shop.worker(until_empty=True, queues=["default", "mail"])
    await asyncio.wait_for(worker.run(), 20)
    places = worker.tally.places()
    assert set(places) == {("default", "work"), ("mail", "work")}
    figures = places["default", "work"]
    assert (figures.started, figures.succeeded, figures.failed) == (5, 2, 1)
    assert (figures.retried, figures.snoozed, figures.cancelled, figures.lost) == (1, 1, 0, 0)
    assert figures.ran.count == figures.waited.count == 5
    assert places["mail", "work"].succeeded == 1


async def test_a_release_counts_no_time_and_a_running_job_is_no_end() -> None:
    shop = Shop()
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    task = shop.task(hold)
    for _ in range(3):
        await shop.enqueue(task)
    async with shop.working(concurrency=1, prefetch=2) as worker:
        await until(lambda: worker.stats.started == 1)
        worker.tally.catch_up()
        assert worker.running() == {("default", "hold"): 1}
        [figures] = worker.tally.places().values()
        assert (figures.started, figures.moves, figures.ran.count) == (1, 1, 0)
        worker.stop()
        await until(lambda: worker.stats.released == 2)
        gate.set()
    [figures] = worker.tally.places().values()
    assert (figures.started, figures.succeeded, figures.released, figures.ran.count) == (1, 1, 2, 1)
    assert not worker.running()


async def test_the_time_that_a_job_waited_counts_from_when_it_was_due() -> None:
    shop = Shop()

    async def nothing() -> None: ...

    await shop.enqueue(shop.task(nothing), run_at=None)
    [job] = (await shop.store.find(_ALL)).jobs
    await shop.store.reschedule(_ALL, job.created_at - timedelta(seconds=100))
    worker = shop.worker(until_empty=True)
    await asyncio.wait_for(worker.run(), 20)
    [figures] = worker.tally.places().values()
    assert 100 <= figures.waited.seconds < 110


async def test_of_a_crowd_all_are_counted_though_only_some_are_timed() -> None:
    shop = Shop()

    async def tiny(number: int) -> None: ...

    async def rare() -> None: ...

    task, other = shop.task(tiny), shop.task(rare)
    await shop.store.enqueue([task.job(number) for number in range(2_000)])
    await shop.enqueue(other)
    worker = shop.worker(until_empty=True)
    await asyncio.wait_for(worker.run(), 20)
    places = worker.tally.places()
    assert places["default", "tiny"].started == places["default", "tiny"].succeeded == 2_000
    assert places["default", "tiny"].ran.count == places["default", "tiny"].waited.count == 2_000
    assert places["default", "rare"].ran.count == 1
    assert sum(worker.tally.settles) >= 2
    assert worker.tally.settled == 2_001


def test_a_few_stand_for_all() -> None:
    times = Times()
    times.add_like([0.001, 2.0, 2.0], 10)
    assert times.count == 10
    assert times.counts[bisect_left(BOUNDS, 2.0)] == 6
    assert times.seconds == pytest.approx(10 * 4.001 / 3)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_percentile_is_off_by_less_than_its_bucket(share: float) -> None:
    draw = random.Random(7)
    drawn = sorted(draw.lognormvariate(-2, 1.5) for _ in range(5_000))
    times = Times()
    for each in drawn:
        times.add_like([each], 1)
    found, exact = times.quantile(share), drawn[int(share * len(drawn)) - 1]
    assert found is not None
    assert exact / 1.7 < found < exact * 1.7


def test_figures_are_the_same_after_a_journey_through_json() -> None:
    figures = Figures(started=3, succeeded=2, lost=1)
    figures.ran.add_like([0.2, 30_000_000.0], 2)
    again = Figures.unpack(figures.pack())
    assert (again.started, again.succeeded, again.lost, again.failed) == (3, 2, 1, 0)
    assert again.ran == figures.ran
    assert again.waited.quantile(0.5) is None
    assert "waited" not in figures.pack()


def test_the_buckets_of_prometheus_are_some_of_ours_and_count_upwards() -> None:
    times = Times()
    times.add_like([0.004, 0.03, 400.0, 1e9], 4)
    found = dict(coarse(times))
    assert set(COARSE) <= set(BOUNDS)
    assert (found["0.005"], found["0.025"], found["0.05"], found["500"], found["+Inf"]) == (1, 1, 2, 3, 4)


def test_nothing_has_no_percentile() -> None:
    assert Times().quantile(0.5) is None
    assert Times().mean() is None
