"""Stores that lose the order, a key, or half of a call."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from dibs import limits as rules
from dibs.job import Change, Enqueued, NewJob, OnConflict, Requeue, State
from dibs.limits import Admitted
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from tests.contract.broken.base import caught_by


@caught_by(
    "test_order::test_jobs_of_one_bulk_call_are_claimed_in_their_order",
    "test_order::test_jobs_of_one_bulk_call_are_claimed_in_their_order_one_by_one",
)
class BulkWithoutOrder(MemoryStore):
    """As if each row of a bulk call had been written at a time of its own, in no order."""

    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        return super()._add(job, now - timedelta(microseconds=hash(job.id) % 7))


@caught_by("test_enqueue::test_one_refused_job_keeps_the_whole_call_out")
class HalfStored(MemoryStore):
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        rules.bulk(len(jobs), "jobs")
        return [answer for job in jobs for answer in await super(HalfStored, self).enqueue([job])]


@caught_by(
    "test_enqueue::test_a_known_id_is_not_stored_again",
    "test_enqueue::test_an_id_sent_again_leaves_a_finished_job_alone",
)
class IdSentAgainStartsOver(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        if job.id in self._jobs:
            self._drop(self._jobs[job.id])
        return super()._add(job, now)


@caught_by("test_enqueue::test_run_at_keeps_its_microseconds", "test_order::test_one_microsecond_decides")
class Milliseconds(MemoryStore):
    def _put_back(self, record: Record, run_at: datetime) -> None:
        super()._put_back(record, run_at.replace(microsecond=run_at.microsecond // 1000 * 1000))


@caught_by("test_enqueue::test_arguments_come_back_as_they_were")
class NumbersAsFloats(MemoryStore):
    """What comes of decoding arguments in Lua or JavaScript."""

    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        answer = super()._add(job, now)
        record = self._jobs[answer.id]
        if record.args.lstrip("-").isdigit():
            record.args = f"{float(record.args):.0f}"
        return answer


@caught_by("test_keys::test_a_key_is_free_when_its_job_is_finished")
class KeysStayBusy(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        had = [record for record in self._jobs.values() if job.key is not None and record.key == job.key]
        return Enqueued(had[0].id, created=False) if had else super()._add(job, now)


@caught_by("test_keys::test_one_key_in_two_queues_is_two_keys")
class KeysForTheWholeStore(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        for lane in self._lanes.values():
            if (holder := lane.holder(job.key, now)) is not None:
                return Enqueued(holder.id, created=False)
        return super()._add(job, now)


@caught_by(
    "test_key_windows::test_a_key_is_busy_until_the_window_ends_to_the_microsecond",
    "test_key_windows::test_a_window_is_of_one_queue_and_one_key",
)
class WindowsEndWithTheirJob(MemoryStore):
    def _close(self, record: Record, state: State, now: datetime) -> None:
        super()._close(record, state, now)
        self._lanes[record.queue].free_key(record)


@caught_by("test_key_windows::test_windows_do_not_hinder_a_requeue")
class WindowsHinderOperators(MemoryStore):
    def _alter(self, record: Record, change: Change, now: datetime) -> bool:
        holder = self._lanes[record.queue].holder(record.key, now)
        hindered = isinstance(change, Requeue) and holder not in (None, record)
        return not hindered and super()._alter(record, change, now)


@caught_by(
    "test_key_conflicts::test_a_debounced_job_is_due_at_the_later_of_both_within_the_cap",
    "test_key_conflicts::test_asking_again_and_again_puts_a_job_off_up_to_the_cap",
)
class DebounceWithoutCap(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        return super()._add(replace(job, max_delay=None), now)


@caught_by("test_key_conflicts::test_a_running_or_finished_job_is_left_alone")
class ReplaceTouchesRunningJobs(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        holder = self._lane(job.queue).holder(job.key, now)
        if holder is not None and holder.state is State.RUNNING and job.on_conflict is not OnConflict.EXISTING:
            holder.become(job, now)
        return super()._add(job, now)


@caught_by("test_key_conflicts::test_a_replaced_job_is_what_was_asked_for_last")
class ReplaceKeepsTheAttempts(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        holder = self._lane(job.queue).holder(job.key, now)
        attempts = 0 if holder is None else holder.attempts
        answer = super()._add(job, now)
        if answer.changed:
            self._jobs[answer.id].attempts = attempts
        return answer


@caught_by("test_key_conflicts::test_requests_of_one_call_take_effect_one_after_another")
class OneRequestOfAKeyInACall(MemoryStore):
    """Looks at the keys of a call once, before it stores the first of them."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        last = {(job.queue, job.key): job.id for job in jobs if job.key is not None}
        once = [job for job in jobs if job.key is None or last[job.queue, job.key] == job.id]
        answers = dict(zip((job.id for job in once), await super().enqueue(once), strict=True))
        return [answers[job.id if job.key is None else last[job.queue, job.key]] for job in jobs]
