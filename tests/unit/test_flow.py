"""A flow as its sender sees it: planning it, starting it, its result, and what can be done about it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

from dibs import App, FlowCancelled, FlowFailed, FlowUnknown, Refused, StoreUnavailable, new_id
from dibs.job import FlowState, State
from dibs.outcome import Failed, Succeeded
from dibs.stores import open_store
from dibs.testing.flaky import FlakyStore
from dibs.transaction import start_in
from tests.unit.flow_handlers import Page, app, fail, fan_async, fetch, ran, say, total

LEASE = timedelta(seconds=30)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FlakyStore]:
    store = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    await store.setup()
    flaky = FlakyStore(store)
    ran.clear()
    with app.using(flaky):
        yield flaky
    await store.close()


# --- planning -----------------------------------------------------------------------------------------------


def test_a_step_runs_after_those_that_it_needs_and_may_be_planned_before_them() -> None:
    plan = app.flow("import")
    assert plan.step("total", total.job(), needs=["fetch"]) == "total"
    assert plan.step("fetch", fetch.job("a")) == "fetch"
    assert [(step.name, step.needs) for step in plan.value().steps] == [("total", ("fetch",)), ("fetch", ())]


def test_one_need_is_given_by_its_name_and_one_that_is_named_twice_counts_once() -> None:
    plan = app.flow("import")
    first = plan.step("first", fetch.job("a"))
    plan.step("second", fetch.job("b"), needs=first)
    plan.step("third", fetch.job("c"), needs=[first, first])
    assert [step.needs for step in plan.steps] == [(), ("first",), ("first",)]


def test_sequential_steps_each_need_the_one_before() -> None:
    plan = app.flow("import")
    start = plan.step("start", say.job("a"))
    assert plan.sequential(fetch.job("a"), say.job("b"), say.job("c"), needs=start) == ["fetch", "say", "say-2"]
    assert [step.needs for step in plan.steps] == [(), ("start",), ("fetch",), ("say",)]


def test_parallel_steps_all_need_the_same() -> None:
    plan = app.flow("import")
    start = plan.step("say-2", say.job("a"))
    assert plan.parallel(say.job("b"), say.job("c"), needs=(name for name in [start])) == ["say", "say-3"]
    assert [step.needs for step in plan.steps] == [(), ("say-2",), ("say-2",)]


def test_ten_thousand_parallel_steps_are_planned_in_no_time() -> None:
    plan = app.flow("wide")
    names = plan.parallel(*(say.job("x") for _ in range(9_999)))
    plan.step("last", total.job(), needs=names)
    assert len(plan.value().steps) == 10_000
    assert names[-1] == "say-9999"


def test_what_can_never_be_a_step_is_refused_where_it_is_written() -> None:
    plan = app.flow("import")
    job = fetch.job("a")
    plan.step("one", job)
    keyed = fetch.options(key="k").job("a")
    for name, given, needs, said in (
        ("one", fetch.job("b"), (), "there is a step 'one' already: give each a name of its own"),
        ("", fetch.job("b"), (), "step must"),
        ("two", fetch, (), "step 'two' must be given a job, not <task fetch>: write task.job(…)"),
        ("two", job, (), "steps 'one' and 'two' have one and the same job: make a job for each"),
        ("two", keyed, (), "step 'two' has a key, and its flow runs it once: write fetch.options(key=None).job(…)"),
        ("two", fetch.job("b"), "two", "step 'two' cannot need itself"),
        ("two", fetch.job("b"), [7], "step 'two': needs are names of steps, not int"),
    ):
        with pytest.raises(Refused) as refused:
            plan.step(name, given, needs=needs)  # type: ignore[arg-type]
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
    with pytest.raises(Refused, match="must be given a job, not int"):
        plan.parallel(7)  # type: ignore[arg-type]
    assert [step.name for step in plan.steps] == ["one"]


def test_options_of_a_task_are_those_of_its_step() -> None:
    plan = app.flow("import")
    plan.step("slow", fetch.options(queue="slow", priority=7, max_attempts=2, key=None, meta={"m": 1}).job("a"))
    [step] = plan.steps
    assert (step.job.queue, step.job.priority, step.job.max_attempts) == ("slow", 7, 2)
    assert step.job.meta == {"m": 1}


@pytest.mark.parametrize("name", ["", "a\nb", 7, None], ids=repr)
def test_a_flow_has_a_name_by_the_rule_of_names(name: str) -> None:
    with pytest.raises(Refused, match="flow"):
        app.flow(name)


def test_there_are_two_ways_to_take_a_failure() -> None:
    assert app.flow("a", on_failure="continue").steps == ()
    with pytest.raises(Refused, match="one of stop, continue, not 'ignore'"):
        app.flow("a", on_failure="ignore")  # type: ignore[arg-type]


# --- starting -----------------------------------------------------------------------------------------------


async def test_a_plan_that_cannot_end_is_refused_when_it_is_started_and_nothing_is_stored(store: FlakyStore) -> None:
    empty, lost, round_ = app.flow("empty"), app.flow("lost"), app.flow("round")
    lost.step("a", say.job("a"), needs="b")
    round_.step("a", say.job("a"), needs="c")
    round_.step("b", say.job("b"), needs="a")
    round_.step("c", say.job("c"), needs="b")
    with pytest.raises(Refused, match=r"flow 'empty' has no steps: add one with plan.step\(…\)"):
        await empty.start()
    with pytest.raises(Refused, match="flow 'lost': step 'a' needs 'b', which is no step of it"):
        await lost.start()
    with pytest.raises(Refused, match=r"flow 'round' goes in a circle and could never end: '.' needs '.' needs '.' n"):
        await round_.start()
    assert (await store.flows()).flows == ()
    assert await store.counts() == []


async def test_a_start_whose_answer_got_lost_can_be_sent_again(store: FlakyStore) -> None:
    plan = app.flow("import", meta={"order": 7})
    plan.step("a", say.job("a"))
    store.fail_next("start", after_effect=True)
    with pytest.raises(StoreUnavailable):
        await plan.start()
    again = await plan.start()
    assert (again.id, again.created) == (plan.id, False)
    [flow] = (await store.flows()).flows
    assert (flow.id, flow.name, flow.meta, flow.steps[State.QUEUED]) == (plan.id, "import", {"order": 7}, 1)


async def test_a_plan_that_was_started_takes_no_more_steps(store: FlakyStore) -> None:
    plan = app.flow("import")
    plan.step("a", say.job("a"))
    assert (await plan.start()).created
    with pytest.raises(Refused, match="flow 'import' was started"):
        plan.step("b", say.job("b"))


def test_a_flow_is_started_and_waited_for_without_an_event_loop(tmp_path: Path) -> None:
    own = App(f"sqlite:///{tmp_path}/jobs.db")

    @own.task
    def double(n: int) -> int:
        return n * 2

    plan = own.flow("sums")
    plan.sequential(double.job(1), double.job(2))
    handle = own.sync(plan.start())
    own.sync(own.drain())
    assert own.sync(handle.result(10)) == {"double": 2, "double-2": 4}


def test_a_flow_is_started_in_the_senders_own_transaction(tmp_path: Path) -> None:
    own = App(f"sqlite:///{tmp_path}/jobs.db")
    own.sync(own.store())
    plan = own.flow("import")
    plan.step("a", say.job("a"))
    handle = own.flow_handle(plan.id)
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute("begin immediate")
    start_in(connection, plan.value())
    connection.execute("rollback")
    assert own.sync(handle.flow()) is None
    connection.execute("begin immediate")
    start_in(connection, plan.value())
    connection.execute("commit")
    connection.close()
    found = own.sync(handle.flow())
    assert found is not None and found.name == "import"


# --- looking ------------------------------------------------------------------------------------------------


async def test_the_result_of_a_flow_is_the_results_of_its_steps_by_name(store: FlakyStore) -> None:
    plan = app.flow("words")
    pages = plan.parallel(fetch.job("a"), fetch.job("bb"))
    plan.step("total", total.job(), needs=pages)
    handle = await plan.start()
    await app.drain()
    results = await handle.result(10)
    assert results == {"fetch": {"url": "a", "words": 1}, "fetch-2": {"url": "bb", "words": 2}, "total": 3}
    assert fetch.result_from(results["fetch-2"]) == Page("bb", 2)
    assert await app.flow_handle(str(handle.id)).result(0) == results


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_flow_goes_on(store: FlakyStore) -> None:
    plan = app.flow("words")
    plan.sequential(say.job("a"), say.job("b"))
    handle = await plan.start()
    with pytest.raises(TimeoutError, match=r"\(words\) has 2 unfinished steps after 0 s; it goes on"):
        await handle.result(0)
    await app.drain()
    assert await handle.result(0) == {"say": "a", "say-2": "ab"}


async def test_a_flow_that_failed_raises_with_its_reasons_and_its_steps(store: FlakyStore) -> None:
    plan = app.flow("bad", on_failure="continue")
    plan.parallel(*(fail.job(f"reason {n}") for n in range(5)))
    plan.step("good", say.job("a"))
    handle = await plan.start()
    await app.drain()
    with pytest.raises(FlowFailed) as failed:
        await handle.result(10)
    assert str(failed.value).endswith("failed: fail: reason 0; fail-2: reason 1; fail-3: reason 2; and 2 more steps")
    assert failed.value.flow.state is FlowState.FAILED
    assert failed.value.steps["good"].result == "a"
    assert msgspec.structs.asdict(failed.value.flow)["name"] == "bad"


async def test_progress_is_how_many_steps_have_ended(store: FlakyStore) -> None:
    plan = app.flow("halves")
    plan.step("now", say.job("a"))
    plan.step("tomorrow", say.options(delay=86_400).job("b"))
    handle = await plan.start()
    assert await handle.progress() == 0
    await app.drain()
    assert await handle.progress() == 0.5


async def test_a_flow_that_is_not_there_is_unknown(store: FlakyStore) -> None:
    handle = app.flow_handle(new_id())
    assert await handle.flow() is None
    assert await handle.steps() == {}
    for question in (handle.result, handle.ended, handle.progress, handle.restart):
        with pytest.raises(FlowUnknown, match="there is no flow"):
            await question()
    assert (await handle.cancel(), await handle.retry()) == (False, 0)
    with pytest.raises(Refused, match="'x' is no flow id"):
        app.flow_handle("x")


async def test_two_handles_of_one_flow_are_equal(store: FlakyStore) -> None:
    id_ = new_id()
    assert app.flow_handle(id_) == app.flow_handle(str(id_))
    assert len({app.flow_handle(id_), app.flow_handle(id_), app.flow_handle(new_id())}) == 2
    assert app.flow_handle(id_) != app.handle(id_)


# --- changing -----------------------------------------------------------------------------------------------


async def test_a_cancelled_flow_runs_no_step(store: FlakyStore) -> None:
    plan = app.flow("words")
    plan.sequential(say.job("a"), say.job("b"))
    handle = await plan.start()
    assert await handle.cancel()
    assert not await handle.cancel()
    await app.drain()
    assert ran == []
    with pytest.raises(FlowCancelled, match=r"\(words\) was cancelled"):
        await handle.result(10)


async def test_a_retry_runs_the_failed_step_and_those_behind_it_and_no_other(store: FlakyStore) -> None:
    plan = app.flow("words")
    plan.sequential(say.job("a"), say.job("b"), say.job("c"))
    plan.step("other", say.options(delay=86_400).job("d"))
    handle = await plan.start()
    [claim] = await store.claim("default", "w", 1, LEASE)
    await store.settle([claim.settled(Succeeded("a"))])
    [claim] = await store.claim("default", "w", 1, LEASE)
    await store.settle([claim.settled(Failed("no"))])
    assert [job.state.value for job in (await handle.steps()).values()] == [
        "succeeded",
        "failed",
        "cancelled",
        "cancelled",
    ]
    assert await handle.retry() == 3
    await app.drain()
    assert sorted(ran) == ["other", "say-2", "say-3"]
    assert await handle.result(10) == {"say": "a", "say-2": "ab", "say-3": "abc", "other": "d"}


async def test_a_restart_runs_every_step_again(store: FlakyStore) -> None:
    plan = app.flow("words")
    plan.sequential(say.job("a"), say.job("b"))
    handle = await plan.start()
    with pytest.raises(Refused, match=r"\(words\) has not ended: cancel it first"):
        await handle.restart()
    await app.drain()
    assert await handle.restart() == 2
    await app.drain()
    assert ran == ["say", "say-2"] * 2
    assert await handle.result(10) == {"say": "a", "say-2": "ab"}


async def test_a_restart_leaves_it_to_the_steps_to_add_others_again(store: FlakyStore) -> None:
    plan = app.flow("fan")
    plan.step("fan", fan_async.job(2))
    handle = await plan.start()
    await app.drain()
    first = await handle.result(10)
    assert await handle.restart() == 1
    await app.drain()
    assert await handle.result(10) == first == {"fan": 2, "part-0": "20", "part-1": "21", "whole": "2021."}
