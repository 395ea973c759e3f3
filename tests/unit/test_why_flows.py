"""Why a step is not running: which step it needs, what became of that one, on which worker, since when."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from dibs.job import Claim, Filter, NewFlow, NewJob, NewStep, OnFailure
from dibs.outcome import Failed, Outcome, Retry, Succeeded
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import FakeClock
from dibs.why import Explanation, Reason, why

LEASE = timedelta(seconds=30)


class Desk:
    """A store with one flow, its clock, and the question."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.flow: UUID | None = None
        self.ids: dict[str, UUID] = {}

    async def start(self, on_failure: OnFailure = OnFailure.STOP, **needs: str) -> None:
        """Start a flow: ``a="", b="a"`` are two steps, of which the second needs the first."""
        steps = [NewStep(name=name, job=NewJob(task=name), needs=tuple(some.split())) for name, some in needs.items()]
        flow = NewFlow(name="import", steps=tuple(steps), on_failure=on_failure)
        await self.store.start(flow)
        self.flow, self.ids = flow.id, {step.name: step.job.id for step in steps}

    async def claim(self, worker: str = "w1", **given: Any) -> Claim:
        [claim] = await self.store.claim("default", worker, 1, LEASE, **given)
        return claim

    async def end(self, outcome: Outcome) -> None:
        claim = await self.claim()
        self.clock.advance(timedelta(seconds=2))
        await self.store.settle([claim.settled(outcome)])

    async def why(self, step: str) -> Explanation:
        return await why(self.store, self.ids[step], self.clock())


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_step_names_the_one_that_it_needs_and_who_runs_it_since_when(desk: Desk) -> None:
    await desk.start(a="", b="a")
    await desk.claim("box-7")
    desk.clock.advance(timedelta(seconds=5))
    found = await desk.why("b")
    assert found.reason is Reason.WAITING_FOR_STEP
    assert found.sentence == (
        f"It needs step a of flow import ({desk.flow}), "
        "which is running on worker box-7 since 2030-01-01 00:00:00 UTC (5 s ago)."
    )


async def test_a_needed_step_that_is_queued_can_be_asked_about(desk: Desk) -> None:
    await desk.start(a="", b="a")
    assert (await desk.why("b")).sentence.endswith(f"which is queued in default (dibs why {desk.ids['a']}).")


async def test_a_needed_step_that_is_tried_again_later_says_when(desk: Desk) -> None:
    await desk.start(a="", b="a")
    await desk.end(Retry("no answer", timedelta(minutes=1)))
    assert "which is not due until 2030-01-01 00:01:02 UTC (in 1 min)" in (await desk.why("b")).sentence


async def test_a_step_far_down_says_what_it_waits_for_in_the_end(desk: Desk) -> None:
    await desk.start(a="", b="a", c="b", d="c")
    await desk.claim()
    assert "needs step c of flow import" in (await desk.why("d")).sentence
    assert "which waits in the end for step a, which is running on worker w1" in (await desk.why("d")).sentence


async def test_of_several_needs_the_one_that_matters_most_is_named_first(desk: Desk) -> None:
    await desk.start(a="", b="", c="", d="a b c")
    await desk.end(Succeeded())
    await desk.claim()
    found = (await desk.why("d")).sentence
    assert "It needs step b of flow" in found
    assert found.endswith("; it needs c as well.")


async def test_a_requeued_step_whose_need_failed_says_so_and_what_to_do(desk: Desk) -> None:
    await desk.start(a="", b="a")
    await desk.end(Failed("no such file"))
    await desk.store.requeue(Filter(ids=(desk.ids["b"],)))
    found = await desk.why("b")
    assert found.reason is Reason.WAITING_FOR_STEP
    assert "which failed 2030-01-01 00:00:02 UTC (0 s ago): no such file" in found.sentence
    assert f"(dibs flows retry {desk.flow} runs it again)" in found.sentence


async def test_a_requeued_step_whose_need_was_cancelled_says_so(desk: Desk) -> None:
    await desk.start(a="", b="a")
    await desk.store.cancel(Filter(ids=(desk.ids["a"],)))
    await desk.store.requeue(Filter(ids=(desk.ids["b"],)))
    assert "which was cancelled 2030-01-01 00:00:00 UTC (0 s ago)" in (await desk.why("b")).sentence


async def test_a_step_that_failed_says_how_its_flow_goes_on(desk: Desk) -> None:
    await desk.start(a="", b="a")
    await desk.end(Failed("no such file"))
    found = await desk.why("a")
    assert found.reason is Reason.FAILED
    assert f"no such file (dibs flows retry {desk.flow} goes on with flow import from here)" in found.sentence


async def test_a_step_that_was_cancelled_names_the_step_that_failed(desk: Desk) -> None:
    await desk.start(a="", b="a", c="")
    await desk.end(Failed("no such file"))
    for step in ("b", "c"):
        found = await desk.why(step)
        assert found.reason is Reason.CANCELLED
        assert "because step a of flow import failed 2030-01-01 00:00:02 UTC (0 s ago): no such file" in found.sentence
        assert f"dibs flows retry {desk.flow}" in found.sentence


async def test_a_failure_elsewhere_in_a_flow_that_goes_on_is_not_blamed(desk: Desk) -> None:
    await desk.start(OnFailure.CONTINUE, a="", b="a", c="b", d="")
    await desk.end(Failed("no such file"))
    await desk.store.cancel(Filter(ids=(desk.ids["d"],)))
    assert "because step a of flow import failed" in (await desk.why("c")).sentence
    assert "because" not in (await desk.why("d")).sentence
    assert "as a step of flow import" in (await desk.why("d")).sentence


async def test_a_running_step_of_a_flow_that_failed_says_why_it_is_asked_to_stop(desk: Desk) -> None:
    await desk.start(a="", b="")
    running = await desk.claim("box-7", tasks=["b"])
    await desk.end(Failed("no such file"))
    assert running.id == desk.ids["b"]
    found = await desk.why("b")
    assert found.reason is Reason.CANCEL_ASKED
    assert "It runs on worker box-7, a cancel was asked, because step a of flow import failed" in found.sentence


# --- needs that are gone --------------------------------------------------------------------------------------


def another(name: str, *needs: str) -> NewStep:
    return NewStep(name=name, job=NewJob(task=name), needs=needs)


async def requeue(desk: Desk, step: str) -> None:
    await desk.store.requeue(Filter(ids=(desk.ids[step],)))


async def test_a_step_that_waits_for_one_that_is_gone_says_so_and_what_to_do(desk: Desk) -> None:
    await desk.start(OnFailure.CONTINUE, a="", b="", c="a b")
    await desk.end(Failed("no such file"))
    await requeue(desk, "c")
    await desk.store.delete(Filter(ids=(desk.ids["a"],)))
    found = await desk.why("c")
    assert found.reason is Reason.WAITING_FOR_STEP
    assert found.sentence == (
        f"It needs step a of flow import ({desk.flow}), which was deleted or pruned and had not succeeded "
        f"(dibs jobs cancel {desk.ids['c']} and then dibs flows retry {desk.flow} run it without); it needs b as well."
    )
    await desk.end(Succeeded())
    assert (await desk.why("c")).sentence.endswith("run it without).")
    await desk.store.cancel(Filter(ids=(desk.ids["c"],)))
    await requeue(desk, "c")
    assert (await desk.claim()).id == desk.ids["c"]


async def test_a_step_does_not_name_another_that_has_the_name_of_its_need(desk: Desk) -> None:
    await desk.start(a="", b="", c="a b d", d="")
    await desk.end(Succeeded())
    await desk.store.delete(Filter(ids=(desk.ids["a"],)))
    await desk.end(Succeeded("more", (another("a"),)))
    assert "It needs step d of flow import" in (await desk.why("c")).sentence
    assert "as well" not in (await desk.why("c")).sentence


async def test_a_failure_of_another_that_has_the_name_of_its_need_is_not_blamed(desk: Desk) -> None:
    await desk.start(OnFailure.CONTINUE, a="", b="", c="a")
    await desk.end(Succeeded())
    await desk.store.delete(Filter(ids=(desk.ids["a"],)))
    await desk.end(Succeeded("more", (another("a"),)))
    assert (await desk.claim(tasks=["c"])).id == desk.ids["c"]
    await desk.end(Failed("no such file"))
    await desk.store.cancel(Filter(ids=(desk.ids["c"],)), force=True)
    assert "because" not in (await desk.why("c")).sentence


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_step_that_added_another_of_the_name_of_its_need_is_told_apart(desk: Desk, seconds: int) -> None:
    """By their names the two need each other. If no time has passed nobody can tell, but the answer must come."""
    await desk.start(a="", b="a d", d="e", e="")
    jobs = {claim.task: claim for claim in await desk.store.claim("default", "w1", 9, LEASE)}
    for task in ("a", "e"):
        await desk.store.settle([jobs[task].settled(Succeeded())])
    await desk.store.settle([(await desk.claim()).settled(Succeeded())])
    await desk.store.delete(Filter(ids=(desk.ids["a"],)))
    desk.clock.advance(timedelta(seconds=seconds))
    new = another("a", "b")
    await desk.store.settle([(await desk.claim()).settled(Succeeded("more", (new,)))])
    await desk.store.requeue(Filter(flows=(desk.flow or new.job.id,)))
    desk.ids["a"] = new.job.id
    assert "It needs step b of flow" in (await desk.why("a")).sentence
    assert "It needs step d of flow" in (await desk.why("b")).sentence
    if seconds:
        assert "waits in the end for step e, which is queued" in (await desk.why("a")).sentence
