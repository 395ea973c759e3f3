"""Flows in the tests of users: the harness runs them to their end, with crashes and delays on demand."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dibs import Fail
from dibs.job import State
from dibs.testing import Harness, use_memory
from tests.unit.flow_handlers import app, fail, fan_async, say


@pytest.fixture
def harness() -> Iterator[Harness]:
    with use_memory(app) as harness:
        yield harness


async def test_the_harness_runs_a_flow_to_its_end(harness: Harness) -> None:
    plan = app.flow("fan")
    plan.step("fan", fan_async.job(2))
    plan.step("late", say.options(queue="other", delay=timedelta(days=1)).job("late"), needs="fan")
    handle = await plan.start()
    await harness.drain()
    assert await handle.progress() == 0.8
    await harness.drain(until_done=True)
    assert (await handle.result(0))["late"] == "2late"


async def test_the_harness_lists_steps_as_enqueued(harness: Harness) -> None:
    plan = app.flow("fan")
    plan.step("fan", fan_async.job(2))
    await plan.start()
    await harness.drain()
    harness.assert_enqueued(fan_async, count=2, times=1)
    assert [job.step for job in harness.enqueued()] == ["fan", "part-0", "part-1", "whole"]
    assert [job.state for job in harness.enqueued()] == [State.QUEUED, *[State.WAITING] * 3]


async def test_a_step_that_fails_in_the_harness_is_raised(harness: Harness) -> None:
    plan = app.flow("bad")
    plan.sequential(fail.job("in a test"), say.job("a"))
    await plan.start()
    with pytest.raises(Fail, match="in a test"):
        await harness.drain()
    assert [job.state for job in harness.jobs()] == [State.FAILED, State.CANCELLED]


async def test_a_worker_that_dies_in_a_step_holds_the_flow_until_its_lease_ends(harness: Harness) -> None:
    plan = app.flow("crash")
    plan.sequential(say.job("a"), say.job("b"))
    handle = await plan.start()
    crashed = await harness.crash((await handle.steps())["say"])
    await harness.drain()
    assert {name: job.state.value for name, job in (await handle.steps()).items()} == {
        "say": "running",
        "say-2": "waiting",
    }
    harness.advance(timedelta(seconds=31))
    await harness.drain()
    assert await handle.result(0) == {"say": "a", "say-2": "ab"}
    assert harness.job(crashed).epoch == 2
