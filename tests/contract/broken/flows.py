"""Stores that lose their way in a flow."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from dibs.errors import Refused
from dibs.job import (
    FINISHED,
    Cancel,
    Change,
    Changed,
    Enqueued,
    Filter,
    FlowState,
    NewFlow,
    Requeue,
    State,
)
from dibs.limits import AdmittedStep, Settled
from dibs.outcome import Verdict
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.flows import FlowRecord
from dibs.stores.memory.records import Record
from tests.contract.broken.base import caught_by


@caught_by(
    "test_flow_steps::test_a_step_is_let_go_by_the_settle_of_its_last_need",
    "test_flow_steps::test_a_step_with_many_needs_waits_for_all_of_them",
    "test_flow_races::test_ten_diamonds_and_many_workers_run_each_step_once_and_after_its_needs",
)
class TheFirstNeedLetsGo(MemoryStore):
    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        waiting = flow.waiting_for(record.step)
        super()._pass_on(flow, record, now)
        for step in waiting:
            if step.state is State.WAITING:
                self._put_back(step, now)


@caught_by(
    "test_flow_steps::test_a_step_is_let_go_by_the_settle_of_its_last_need",
    "test_flow_steps::test_a_chain_runs_link_by_link_to_its_end",
)
class NobodyIsLetGo(MemoryStore):
    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        for step in flow.waiting_for(record.step):
            super()._pass_on(flow, record, now)
            if step.state is State.QUEUED:
                step.state = State.WAITING


@caught_by(
    "test_flow_steps::test_needs_that_end_in_one_call_let_their_step_go_once",
    "test_flow_races::test_the_two_last_needs_that_end_at_once_let_their_step_go_once",
)
class NeedsThatEndTogetherAreMissed(MemoryStore):
    """Each looks at the other before it has ended, as two transactions without a lock do."""

    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        waiting = flow.waiting_for(record.step)
        super()._pass_on(flow, record, now)
        for step in waiting:
            ends = {flow.steps[need].finished_at for need in step.needs if need in flow.steps}
            if step.state is State.QUEUED and len(step.needs) > 1 and len(ends) == 1:
                step.state = State.WAITING


@caught_by(
    "test_flow_steps::test_a_result_reaches_those_that_need_it",
    "test_flow_requeue::test_a_flow_can_be_retried_from_the_failed_step",
    "test_flow_added::test_an_added_step_that_needs_its_adder_gets_its_result_at_once",
)
class ResultsAreNotPassedOn(MemoryStore):
    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        result, record.result = record.result, None
        super()._pass_on(flow, record, now)
        record.result = result


@caught_by("test_flow_steps::test_a_step_with_a_time_to_come_is_not_due_before_it")
class WhoIsLetGoIsDueAtOnce(MemoryStore):
    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        for step in flow.waiting_for(record.step):
            step.run_at = now
        super()._pass_on(flow, record, now)


@caught_by("test_flow_steps::test_a_step_is_due_when_it_is_let_go")
class WhoIsLetGoWasDueAllTheTime(MemoryStore):
    def _pass_on(self, flow: FlowRecord, record: Record, now: datetime) -> None:
        times = {step.id: step.run_at for step in flow.waiting_for(record.step)}
        super()._pass_on(flow, record, now)
        for job, run_at in times.items():
            if self._jobs[job].state is State.QUEUED:
                self._put_back(self._jobs[job], run_at)


# --- the end of a flow ------------------------------------------------------------------------


@caught_by(
    "test_flow_steps::test_a_flow_has_succeeded_when_its_last_step_has",
    "test_flow_races::test_the_two_last_steps_that_end_at_once_end_the_flow",
)
class FlowsNeverEnd(MemoryStore):
    def _ended(self, record: Record, now: datetime) -> None:
        super()._ended(record, now)
        flow = self._flows[record.flow or record.id]
        flow.finished_at = None
        if flow.state is FlowState.SUCCEEDED:
            flow.state = FlowState.RUNNING


@caught_by(
    "test_flow_steps::test_the_end_of_a_flow_stays_when_its_last_settle_is_sent_again",
    "test_flow_steps::test_a_settle_sent_again_changes_nothing_in_the_flow",
)
class ASettleSentAgainEndsTheFlowAgain(MemoryStore):
    def _settle(self, item: Settled, now: datetime) -> Verdict:
        verdict = super()._settle(item, now)
        record = self._jobs.get(item.id)
        if verdict is Verdict.ACCEPTED and record is not None and record.flow and record.state in FINISHED:
            for step in self._flows[record.flow].steps.values():
                if record.step in step.needs and step.state is not State.WAITING:
                    self._put_back(step, now)
            self._ended(record, now)
        return verdict


@caught_by(
    "test_flow_failure::test_running_steps_of_a_stopped_flow_are_asked",
    "test_flow_failure::test_the_last_running_step_does_not_change_how_the_flow_ended",
)
class AStoppedFlowHasEnded(MemoryStore):
    """Sets when the flow ended while a step of it is still running, and lets that one decide again."""

    def _ended(self, record: Record, now: datetime) -> None:
        flow = self._flows[record.flow or record.id]
        super()._ended(record, now)
        flow.finished_at = flow.finished_at or (None if flow.state is FlowState.RUNNING else now)
        flow.state = FlowState(record.state.value) if flow.state is not FlowState.RUNNING else flow.state


# --- failures ---------------------------------------------------------------------------------


@caught_by(
    "test_flow_failure::test_a_step_that_did_not_succeed_stops_its_flow",
    "test_flow_failure::test_a_step_that_raises_too_often_stops_its_flow",
    "test_flow_operators::test_the_cancel_of_one_step_stops_its_flow_and_counts_one",
)
class FailuresStopNothing(MemoryStore):
    def _stop(self, step: Record, now: datetime) -> None:
        pass


@caught_by("test_flow_failure::test_running_steps_of_a_stopped_flow_are_asked")
class RunningStepsAreNotAsked(MemoryStore):
    def _stop(self, step: Record, now: datetime) -> None:
        if step.state is not State.RUNNING:
            super()._stop(step, now)


@caught_by("test_flow_failure::test_running_steps_of_a_stopped_flow_are_asked")
class RunningStepsAreCancelledUnderTheirOwners(MemoryStore):
    def _stop(self, step: Record, now: datetime) -> None:
        super()._stop(step, now)
        if step.state is State.RUNNING:
            self._close(step, State.CANCELLED, now)


@caught_by(
    "test_flow_failure::test_an_expired_step_with_no_attempts_left_stops_its_flow",
    "test_flow_failure::test_a_claim_that_ends_a_step_on_its_way_does_not_give_out_those_behind_it",
)
class ExpiredStepsAreForgottenByTheirFlow(MemoryStore):
    def _is_over(self, record: Record, now: datetime) -> bool:
        flow, record.flow = record.flow, None
        over = super()._is_over(record, now)
        record.flow = flow
        return over


@caught_by(
    "test_flow_failure::test_a_flow_that_continues_cancels_only_what_needs_the_step",
    "test_flow_failure::test_a_long_chain_is_cancelled_to_its_end",
)
class OnlyTheNextStepIsCancelled(MemoryStore):
    def _ended(self, record: Record, now: datetime) -> None:
        flow = self._flows[record.flow or record.id]
        direct = flow.waiting_for(record.step)
        if record.state is not State.SUCCEEDED and flow.on_failure == "continue":
            for step in direct:
                self._stop(step, now)
        super()._ended(record, now)


@caught_by(
    "test_flow_operators::test_a_chunk_of_a_cancel_counts_what_matched_when_it_began",
    "test_flow_operators::test_a_cancelled_flow_ends_with_all_of_its_steps",
)
class CollateralIsNotCounted(MemoryStore):
    def _alter(self, record: Record, change: Change, now: datetime) -> bool:
        if isinstance(change, Cancel) and record.state in FINISHED:
            return False
        return super()._alter(record, change, now)


@caught_by("test_flow_operators::test_a_deleted_unfinished_step_stops_its_flow")
class DeletedStepsAreWaitedForForEver(MemoryStore):
    def _ended(self, record: Record, now: datetime) -> None:
        if not (record.cancel_asked and record.worker is None):
            super()._ended(record, now)


@caught_by(
    "test_flow_operators::test_a_flow_goes_with_its_last_job",
    "test_flow_operators::test_a_flow_is_pruned_with_its_last_job",
)
class EmptyFlowsStay(MemoryStore):
    def _forget_step(self, record: Record) -> None:
        flow = self._flows[record.flow or record.id]
        super()._forget_step(record)
        self._flows[flow.id] = flow


# --- flows that run again ---------------------------------------------------------------------


@caught_by(
    "test_flow_requeue::test_a_flow_can_be_run_whole_again",
    "test_flow_requeue::test_a_requeued_step_waits_for_a_need_that_did_not_succeed",
)
class RequeueForgetsTheNeeds(MemoryStore):
    def _begin_again(self, flow: FlowRecord, now: datetime) -> None:
        needs = {step.id: step.needs for step in flow.steps.values()}
        for step in flow.steps.values():
            step.needs = ()
        super()._begin_again(flow, now)
        for step in flow.steps.values():
            step.needs = needs[step.id]


@caught_by(
    "test_flow_requeue::test_a_flow_can_be_retried_from_the_failed_step",
    "test_flow_requeue::test_a_flow_runs_again_when_one_of_its_steps_does",
)
class ARequeuedStepDoesNotBringItsFlowBack(MemoryStore):
    def _begin_again(self, flow: FlowRecord, now: datetime) -> None:
        state, finished_at = flow.state, flow.finished_at
        super()._begin_again(flow, now)
        flow.state, flow.finished_at = state, finished_at


@caught_by("test_flow_requeue::test_a_queued_step_goes_back_to_waiting_when_its_need_begins_again")
class OnlyRequeuedStepsWaitAgain(MemoryStore):
    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        ready = [record for record in self._jobs.values() if record.flow and record.state is State.QUEUED]
        inputs = [record.inputs for record in ready]
        answer = await super()._change(which, change, after, limit)
        if isinstance(change, Requeue):
            for record, known in zip(ready, inputs, strict=True):
                record.state, record.inputs = State.QUEUED, known
        return answer


# --- needs that are gone ----------------------------------------------------------------------


@caught_by(
    "test_flow_needs::test_a_requeued_step_does_not_wait_for_another_of_the_name_of_its_need",
    "test_flow_needs::test_a_step_keeps_the_result_of_its_need_when_another_of_the_name_succeeds",
    "test_flow_needs::test_a_step_is_not_cancelled_because_of_another_of_the_name_of_its_need",
    "test_flow_needs::test_an_added_step_does_not_wait_for_what_a_second_adder_adds",
)
class ANameIsEnough(MemoryStore):
    """Whoever needed a step that is gone needs the next one of its name."""

    def _add_step(self, flow: FlowRecord, new: AdmittedStep, now: datetime) -> Record:
        before = [step for step in flow.steps.values() if new.name in step.needs]
        record = super()._add_step(flow, new, now)
        for step in before:
            flow.needed_by.setdefault(new.name, {})[step.id] = step
        return record


@caught_by("test_flow_ids::test_a_step_does_not_need_what_another_with_its_id_needed")
class AnIdBringsItsNeedsBack(MemoryStore):
    """Who needed what is kept by id when the job has gone, and a new one may have that id."""

    def _add_step(self, flow: FlowRecord, new: AdmittedStep, now: datetime) -> Record:
        stale = [links for links in flow.needed_by.values() if new.job.id in links]
        record = super()._add_step(flow, new, now)
        for links in stale:
            links[record.id] = record
        return record


# --- starting and adding ----------------------------------------------------------------------


@caught_by(
    "test_flow_start::test_a_flow_whose_job_is_known_is_refused_and_nothing_is_stored",
)
class HalfAFlowIsStored(MemoryStore):
    async def start(self, flow: NewFlow) -> Enqueued:
        try:
            return await super().start(flow)
        except Refused:
            await self.enqueue([step.job for step in flow.steps if not step.needs])
            raise


@caught_by("test_flow_start::test_a_flow_that_is_sent_again_is_not_stored_again")
class AFlowSentAgainStartsOver(MemoryStore):
    async def start(self, flow: NewFlow) -> Enqueued:
        if flow.id in self._flows:
            await self.delete(Filter(flows=(flow.id,)), force=True)
            await super().start(flow)
            return Enqueued(flow.id, created=False)
        return await super().start(flow)


@caught_by("test_flow_added::test_a_settle_sent_again_adds_nothing_twice")
class StepsAreAddedByEverySettle(MemoryStore):
    def _settle(self, item: Settled, now: datetime) -> Verdict:
        verdict = super()._settle(item, now)
        record = self._jobs.get(item.id)
        good = verdict is Verdict.ACCEPTED and record is not None and record.state is State.SUCCEEDED
        if record is not None and good and item.steps and self._misfit(record, item) is None:
            self._add_steps(record, item.steps, now)
        return verdict


@caught_by(
    "test_flow_added::test_the_flow_goes_on_until_the_added_steps_have_ended",
    "test_flow_added::test_an_added_step_that_needs_its_adder_gets_its_result_at_once",
)
class StepsAreAddedAfterTheEnd(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        bare = Settled(item.id, item.epoch, item.worker, item.kind, item.result, item.error, item.traceback, item.delay)
        super()._end_attempt(record, bare, now)
        if item.steps and record.state is State.SUCCEEDED:
            self._add_steps(record, item.steps, now)


@caught_by(
    "test_flow_added::test_a_plain_job_that_adds_steps_fails", "test_flow_added::test_a_known_name_cannot_be_added"
)
class BadStepsLeaveTheJobRunning(MemoryStore):
    def _settle(self, item: Settled, now: datetime) -> Verdict:
        record = self._jobs.get(item.id)
        if item.steps and record is not None and self._misfit(record, item) is not None:
            return Verdict.LOST
        return super()._settle(item, now)


@caught_by("test_flow_added::test_what_a_step_adds_whose_cancel_was_asked_is_cancelled_at_once")
class CancelledStepsAddLiveOnes(MemoryStore):
    def _add_steps(self, record: Record, steps: Iterable[AdmittedStep], now: datetime) -> None:
        asked, record.cancel_asked = record.cancel_asked, False
        super()._add_steps(record, steps, now)
        record.cancel_asked = asked
