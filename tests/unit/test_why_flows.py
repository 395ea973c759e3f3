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
