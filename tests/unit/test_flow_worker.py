"""Flows as the worker runs them: order, inputs, added steps, failures, cancels."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs import App, Constant, FlowCancelled, FlowFailed, Retry, current
from dibs.job import FlowState, State
from dibs.stores import open_store
from tests.unit.flow_handlers import FANS, app, fail, fan_async, fetch, measure, ran, say, say_in_process, total
from tests.unit.working import until


@pytest.fixture(params=["memory", "sqlite"], autouse=True)
async def on_a_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[None]:
    store = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    await store.setup()
    ran.clear()
    with app.using(store):
        yield
    await store.close()


def states(steps: dict[str, Any]) -> dict[str, str]:
    return {name: job.state.value for name, job in steps.items()}


# --- order and inputs ---------------------------------------------------------------------------------------


async def test_a_diamond_runs_in_order_and_passes_results_on() -> None:
    plan = app.flow("diamond")
    top = plan.step("top", say.job("t"))
    sides = plan.parallel(say.job("l"), say.job("r"), needs=top)
    plan.step("bottom", say.job("b"), needs=sides)
    handle = await plan.start()
    drained = await app.drain()
    assert drained.succeeded == 4
    assert (ran[0], set(ran[1:3]), ran[3]) == ("top", {"say", "say-2"}, "bottom")
    assert (await handle.result(10))["bottom"] == "tltrb"


async def test_a_plain_job_has_no_inputs_and_is_no_step() -> None:
    seen: list[Any] = []

    async def look(attempt: Any, call_next: Any) -> Any:
        seen.append((attempt.inputs, attempt.flow, attempt.step))
        return await call_next()

    app.tasks.middleware.append(look)
    try:
        await (await say.enqueue("a")).job()
        await app.drain()
    finally:
        app.tasks.middleware.remove(look)
    assert seen == [({}, None, None)]


async def test_results_reach_the_next_step_as_the_types_that_they_were() -> None:
    plan = app.flow("words")
    plan.step("total", total.job(), needs=plan.parallel(fetch.job("a"), fetch.job("bbb")))
    handle = await plan.start()
    await app.drain()
    assert (await handle.result(10))["total"] == 4


async def test_a_step_in_a_process_of_its_own_gets_its_inputs_too() -> None:
    plan = app.flow("apart")
    plan.sequential(say.job("a"), say_in_process.job("b"), say.job("c"))
    handle = await plan.start()
    await app.drain()
    assert await handle.result(10) == {"say": "a", "say_in_process": "ab", "say-2": "abc"}


async def test_steps_go_through_queues_that_only_they_name() -> None:
    plan = app.flow("lanes")
    plan.sequential(*(say.options(queue=queue).job(queue) for queue in ("x", "y", "x", "z", "y")))
    handle = await plan.start()
    await app.drain()
    assert (await handle.result(10))["say-5"] == "xyxzy"


async def test_batch_tasks_are_steps_each_with_its_own_result() -> None:
    plan = app.flow("batch")
    names = plan.parallel(measure.job("a"), measure.job("more"), measure.job("cc"))
    plan.step("last", say.job("."), needs=names)
    handle = await plan.start()
    await app.drain()
    assert ran[0] == "measure,measure-2,measure-3"
    results = await handle.result(10)
    assert [results[name] for name in names] == [1, 4, 2]
    assert (results["more-said"], results["last"]) == ("4!", "142.")


async def test_a_step_that_is_tried_again_holds_back_those_that_need_it() -> None:
    own = App(store=await app.store())

    @own.task(retry=Constant(0))
    async def flaky() -> int:
        if current().attempt < 3:
            raise Retry(0)
        return current().attempt

    @own.task
    async def last() -> Any:
        return current().inputs

    plan = own.flow("flaky")
    plan.sequential(flaky.job(), last.job())
    handle = await plan.start()
    await own.drain()
    assert await handle.result(10) == {"flaky": 3, "last": {"flaky": 3}}


# --- steps that are added -----------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", FANS)
async def test_a_running_step_adds_steps_to_its_flow(executor: str) -> None:
    plan = app.flow("fan")
    plan.step("fan", FANS[executor].job(3))
    handle = await plan.start()
    await app.drain()
    assert (await handle.result(10))["whole"] == "303132."
    steps = await handle.steps()
    assert {step.meta.get("added_by") for step in steps.values()} == {None, "fan"}
    assert steps["whole"].needs == ("part-0", "part-1", "part-2")


@pytest.mark.parametrize("executor", FANS)
async def test_a_step_that_fails_after_it_has_added_steps_adds_nothing(executor: str) -> None:
    plan = app.flow("fan")
    plan.step("fan", FANS[executor].job(3, "fail"))
    handle = await plan.start()
    await app.drain()
    with pytest.raises(FlowFailed, match="fan: after it has added"):
        await handle.result(10)
    assert list(await handle.steps()) == ["fan"]


async def test_a_name_that_the_flow_has_already_fails_the_step_with_that_reason() -> None:
    plan = app.flow("fan")
    plan.step("fan", fan_async.job(1))
    plan.step("whole", say.options(delay=86_400).job("taken"))
    handle = await plan.start()
    await app.drain()
    with pytest.raises(FlowFailed, match='fan: the steps cannot be added: the flow has a step "whole" already'):
        await handle.result(10)
    assert list(await handle.steps()) == ["fan", "whole"]


async def test_what_cannot_be_added_is_refused_where_it_is_written() -> None:
    own, said = App(store=await app.store()), list[str]()

    def refused(*args: Any, **kwargs: Any) -> None:
        try:
            current().add_step(*args, **kwargs)
        except Exception as problem:
            said.append(f"{type(problem).__name__}: {problem}")

    @own.task
    async def adder() -> int:
        refused("adder", say.job("a"))
        refused("new", say)
        refused("new", say.job("a"), needs="new")
        return len(current().added)

    @own.task
    async def plain() -> None:
        refused("new", say.job("a"))

    plan = own.flow("adds")
    plan.step("adder", adder.job())
    handle = await plan.start()
    await plain.enqueue()
    await own.drain()
    assert (await handle.result(10)) == {"adder": 0}
    assert sorted(each.partition(":")[0] for each in said) == ["Refused"] * 3 + ["RuntimeError"]
    assert "there is a step 'adder' already: give each a name of its own" in said[0]
    assert any("is no step of a flow: there is nothing to add a step to" in each for each in said)


# --- failures -----------------------------------------------------------------------------------------------


async def test_a_step_that_fails_stops_the_flow() -> None:
    plan = app.flow("stops")
    plan.sequential(say.job("a"), fail.job(), say.job("b"))
    plan.step("later", say.options(delay=3_600).job("c"))
    handle = await plan.start()
    await app.drain()
    with pytest.raises(FlowFailed, match="failed: fail: broken"):
        await handle.result(10)
    expected = {"say": "succeeded", "fail": "failed", "say-2": "cancelled", "later": "cancelled"}
    assert states(await handle.steps()) == expected
    assert sorted(ran) == ["fail", "say"]


async def test_with_continue_only_what_needs_the_failed_step_is_cancelled() -> None:
    plan = app.flow("goes on", on_failure="continue")
    plan.sequential(fail.job(), say.job("a"), say.job("b"))
    plan.sequential(say.job("c"), say.job("d"))
    handle = await plan.start()
    await app.drain()
    with pytest.raises(FlowFailed) as failed:
        await handle.result(10)
    assert states(failed.value.steps) == {
        "fail": "failed",
        "say": "cancelled",
        "say-2": "cancelled",
        "say-3": "succeeded",
        "say-4": "succeeded",
    }


async def test_a_retry_begins_at_the_failed_step() -> None:
    own, called, broken = App(store=await app.store()), list[str](), [True]

    @own.task(max_attempts=1)
    async def work(name: str) -> str:
        called.append(name)
        if name == "b" and broken:
            raise ValueError("no")
        return "".join([*current().inputs.values(), name])

    plan = own.flow("again")
    plan.sequential(work.job("a"), work.job("b"), work.job("c"))
    handle = await plan.start()
    await own.drain()
    assert (await handle.ended(10)).state is FlowState.FAILED
    broken.clear()
    assert await handle.retry() == 2
    await own.drain()
    assert await handle.result(10) == {"work": "a", "work-2": "ab", "work-3": "abc"}
    assert called == ["a", "b", "b", "c"]


# --- cancels ------------------------------------------------------------------------------------------------


async def test_cancelling_a_flow_reaches_its_running_handlers() -> None:
    own, begun, ends = App(store=await app.store()), list[str](), list[str]()

    @own.task
    async def on_the_loop() -> None:
        begun.append("loop")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("loop")
            raise

    @own.task
    def in_a_thread() -> None:
        attempt = current()
        begun.append("thread")
        while not attempt.cancelled:
            threading.Event().wait(0.005)
        ends.append("thread")

    plan = own.flow("long")
    plan.parallel(on_the_loop.job(), in_a_thread.job())
    plan.step("after", on_the_loop.job(), needs=["in_a_thread"])
    handle = await plan.start()
    worker = own.worker(lease=timedelta(seconds=1))
    going = asyncio.create_task(worker.run())
    await until(lambda: len(begun) == 2)
    assert await handle.cancel()
    with pytest.raises(FlowCancelled):
        await handle.result(20)
    worker.stop()
    await asyncio.wait_for(going, 20)
    assert sorted(ends) == ["loop", "thread"]
    assert (await handle.steps())["after"].state is State.CANCELLED


async def test_a_failed_step_interrupts_those_that_run_beside_it() -> None:
    own, begun = App(store=await app.store()), asyncio.Event()

    @own.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @own.task(max_attempts=1)
    async def breaks() -> None:
        await begun.wait()
        raise ValueError("no")

    plan = own.flow("pair")
    plan.parallel(endless.job(), breaks.job())
    handle = await plan.start()
    worker = own.worker(lease=timedelta(seconds=1))
    going = asyncio.create_task(worker.run())
    with pytest.raises(FlowFailed, match="breaks: ValueError: no"):
        await handle.result(20)
    worker.stop()
    await asyncio.wait_for(going, 20)
    assert states(await handle.steps()) == {"endless": "cancelled", "breaks": "failed"}


async def test_what_a_step_adds_that_was_asked_to_stop_and_goes_on_to_its_end_is_cancelled_at_once() -> None:
    own, begun = App(store=await app.store()), threading.Event()

    @own.task
    def adds() -> None:
        attempt = current()
        attempt.add_step("more", say.job("a"))
        begun.set()
        while not attempt.cancelled:
            threading.Event().wait(0.005)

    plan = own.flow("alone")
    plan.step("adds", adds.job())
    handle = await plan.start()
    worker = own.worker(lease=timedelta(seconds=1))
    going = asyncio.create_task(worker.run())
    await until(begun.is_set)
    assert await handle.cancel()
    with pytest.raises(FlowCancelled):
        await handle.result(20)
    worker.stop()
    await asyncio.wait_for(going, 20)
    assert states(await handle.steps()) == {"adds": "succeeded", "more": "cancelled"}
