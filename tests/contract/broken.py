"""Stores with one fault each. The contract has to catch every one of them: see test_broken_stores.

``@caught_by`` names the tests that must fail; each fault is one that a real store could have.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from dibs import limits as rules
from dibs.errors import Refused
from dibs.job import (
    UNFINISHED,
    Change,
    Changed,
    Claim,
    Delete,
    Enqueued,
    Filter,
    NewJob,
    Page,
    Report,
    Requeue,
    Settlement,
    State,
)
from dibs.limits import Admitted, Settled
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from dibs.testing.labs.memory import MemoryLab

S = TypeVar("S", bound=type[MemoryStore])
CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {}
"""Every broken store, and the tests (module::name) that must fail on it."""


def caught_by(*tests: str) -> Callable[[S], S]:
    def note(store: S) -> S:
        CAUGHT_BY[store] = tests
        return store

    return note


def lab_of(store: type[MemoryStore]) -> type[MemoryLab]:
    """A lab in which that store is tested."""

    class BrokenLab(MemoryLab):
        race_jobs = 3_000

        def __init__(self) -> None:
            super().__init__()
            self._store = store(clock=self._clock)

    return BrokenLab


# --- the fence --------------------------------------------------------------------------------


class LooseFence(MemoryStore):
    """Settles whatever ``fits`` says; the others are built on it."""

    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return record.held_by(item.worker, item.epoch, now)

    def _settle(self, item: Settled, now: datetime) -> Verdict:
        record = self._jobs.get(item.id)
        if record is not None and record.state is State.RUNNING and self.fits(record, item, now):
            self._end_attempt(record, item, now)
            record.outcome = item.kind
            return Verdict.ACCEPTED
        return super()._settle(item, now)


@caught_by(
    "test_settle::test_a_settle_with_another_epoch_changes_nothing_and_is_told_lost",
    "test_settle::test_a_settle_by_another_worker_changes_nothing_and_is_told_lost",
    "test_settle::test_a_late_settle_changes_nothing_and_is_told_lost",
    "test_settle::test_a_settle_after_somebody_else_claimed_changes_nothing",
    "test_races::test_a_late_owner_changes_nothing_however_the_race_goes",
)
class FinishByIdAlone(LooseFence):
    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return True


@caught_by(
    "test_settle::test_a_settle_with_another_epoch_changes_nothing_and_is_told_lost",
    "test_lease::test_a_restarted_worker_of_the_same_name_is_fenced_by_the_epoch",
)
class FenceWithoutEpoch(LooseFence):
    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return record.held_by(item.worker, record.epoch, now)


@caught_by("test_settle::test_a_settle_by_another_worker_changes_nothing_and_is_told_lost")
class FenceWithoutWorker(LooseFence):
    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return record.held_by(record.worker or "", item.epoch, now)


@caught_by(
    "test_settle::test_a_late_settle_changes_nothing_and_is_told_lost",
    "test_lease::test_a_lease_is_expired_at_the_instant_of_its_end_for_a_settle",
    "test_races::test_a_late_owner_changes_nothing_however_the_race_goes",
    "test_races::test_verbs_that_race_for_one_job_take_effect_one_after_another",
)
class FenceWithoutLease(LooseFence):
    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return (record.worker, record.epoch) == (item.worker, item.epoch)


@caught_by(
    "test_settle::test_a_late_settle_changes_nothing_and_is_told_lost",
    "test_lease::test_a_lease_is_expired_at_the_instant_of_its_end_for_a_settle",
)
class LeaseValidAtItsEnd(LooseFence):
    """``locked_until >= now`` where ``>`` is right."""

    def fits(self, record: Record, item: Settled, now: datetime) -> bool:
        return record.held_by(item.worker, item.epoch, now - timedelta(microseconds=1))


@caught_by("test_lease::test_a_lease_is_expired_at_the_instant_of_its_end_for_a_claim")
class ClaimTakesLeasesTooLate(MemoryStore):
    """``locked_until < now`` where ``<=`` is right."""

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        for record in self._jobs.values():
            if record.state is State.RUNNING and record.locked_until == self._clock():
                record.locked_until += timedelta(microseconds=1)
        return await super().claim(queue, worker, limit, lease, tasks)


@caught_by("test_settle_again::test_a_settle_sent_twice_is_accepted_twice_and_counted_once")
class SettleSentTwiceIsLost(MemoryStore):
    def _settle(self, item: Settled, now: datetime) -> Verdict:
        verdict = super()._settle(item, now)
        if (record := self._jobs.get(item.id)) is not None:
            record.outcome = None
        return verdict


@caught_by("test_settle_again::test_a_settle_sent_twice_is_accepted_twice_and_counted_once")
class SettleSentTwiceIsCountedTwice(MemoryStore):
    def _settle(self, item: Settled, now: datetime) -> Verdict:
        record = self._jobs.get(item.id)
        if record is not None and record.outcome == item.kind and item.error is not None:
            record.blame(now, item.error, item.traceback)
        return super()._settle(item, now)


@caught_by(
    "test_settle_again::test_a_settle_sent_again_after_a_requeue_is_lost",
    "test_settle_again::test_a_settle_sent_again_after_the_next_claim_is_lost",
)
class SettleIsRememberedForEver(MemoryStore):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ever: set[tuple[UUID, int, str, str]] = set()

    def _settle(self, item: Settled, now: datetime) -> Verdict:
        mark = (item.id, item.epoch, item.worker, item.kind)
        if mark in self._ever:
            return Verdict.ACCEPTED
        verdict = super()._settle(item, now)
        if verdict is Verdict.ACCEPTED:
            self._ever.add(mark)
        return verdict


# --- claiming ---------------------------------------------------------------------------------


@caught_by(
    "test_claim::test_concurrent_claims_share_the_jobs_out",
    "test_races::test_64_claimers_in_8_processes_never_share_a_job_in_a_race",
)
class ClaimNotAtomic(MemoryStore):
    """Looks first, takes later, with no lock between: two claimers get the same job."""

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        known = rules.claimable(queue, worker, limit, lease, tasks)
        now = self._clock()
        with self._lock:
            lane = self._lanes.get(queue)
            seen = [
                record
                for record in self._jobs.values()
                if record.queue == queue and record.claimable(now) and (known is None or record.task in known)
            ]
            seen.sort(key=self._lane(queue).place)
        await asyncio.sleep(0)
        if lane is None or lane.paused:
            return []
        claims = []
        with self._lock:
            for record in seen[:limit]:
                if record.state in UNFINISHED:
                    self._take(record, worker, now, lease)
                    claims.append(record.as_claim())
        return claims


@caught_by(
    "test_claim::test_a_claim_never_returns_more_than_its_limit",
    "test_lease::test_exhausted_jobs_do_not_use_up_the_limit",
)
class OneMoreThanLimit(MemoryStore):
    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        rules.claimable(queue, worker, limit, lease, tasks)
        return await super().claim(queue, worker, min(limit + 1, rules.BULK), lease, tasks)


@caught_by(
    "test_order::test_a_future_job_of_smaller_priority_never_hides_a_due_one",
    "test_order::test_future_jobs_of_many_priorities_never_hide_a_due_one",
)
class FutureJobsHideDueOnes(MemoryStore):
    """Looks at the first hundred by priority, and only then at what is due."""

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        first = [record for record in self._jobs.values() if record.state is State.QUEUED]
        first.sort(key=lambda record: (record.priority, record.id))
        hidden = [record for record in first[100:] if record.run_at <= self._clock()]
        if any(record.run_at > self._clock() for record in first[:100]):
            for record in hidden:
                record.state = State.WAITING
        claims = await super().claim(queue, worker, limit, lease, tasks)
        for record in hidden:
            if record.state is State.WAITING:
                self._put_back(record, record.run_at)
        return claims


@caught_by("test_claim::test_a_claim_takes_only_the_tasks_that_it_knows")
class UnknownTasksAreFailed(MemoryStore):
    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        claims = await super().claim(queue, worker, limit, lease, tasks)
        for record in list(self._jobs.values()) if tasks else []:
            if record.state is State.QUEUED and record.task not in (tasks or ()):
                self._finish(record, State.FAILED, self._clock())
        return claims


@caught_by("test_claim::test_an_exhausted_job_of_an_unknown_task_is_left_alone")
class ExhaustedJobsOfUnknownTasksAreFailed(MemoryStore):
    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        now = self._clock()
        for record in self._jobs.values():
            if record.state is State.RUNNING and record.claimable(now):
                self._recover(record, now)
        return await super().claim(queue, worker, limit, lease, tasks)


@caught_by("test_queues::test_a_paused_queue_gives_nothing_until_it_is_resumed")
class PauseIsIgnored(MemoryStore):
    async def pause(self, queue: str) -> None:
        with self._lock:
            self._settings(queue)


@caught_by("test_claim::test_a_queue_is_named_to_the_letter")
class QueueNamesWithoutCase(MemoryStore):
    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        names = [name for name in self._lanes if name.lower() == queue.lower()]
        found = [await super(QueueNamesWithoutCase, self).claim(n, worker, limit, lease, tasks) for n in names]
        return [claim for claims in found for claim in claims][:limit]


# --- attempts and leases ----------------------------------------------------------------------


@caught_by(
    "test_lease::test_a_job_that_dies_each_time_is_claimed_max_attempts_times",
    "test_claim::test_a_claimed_job_is_running_and_counted",
)
class AttemptsCountedAtTheEnd(MemoryStore):
    def _take(self, record: Record, worker: str, now: datetime, lease: timedelta) -> None:
        super()._take(record, worker, now, lease)
        record.attempts -= 1

    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        record.attempts += 1
        super()._end_attempt(record, item, now)


@caught_by("test_lease::test_a_job_that_dies_each_time_is_claimed_max_attempts_times")
class ExpiredJobsRunForEver(MemoryStore):
    def _recover(self, record: Record, now: datetime) -> bool:
        if record.state is State.RUNNING and not record.cancel_asked:
            record.blame(now, rules.LEASE_EXPIRED)
            return True
        return super()._recover(record, now)


@caught_by(
    "test_settle::test_a_retry_with_no_attempts_left_is_failed",
    "test_lease::test_a_job_that_raises_each_time_is_claimed_max_attempts_times",
)
class RetriesForEver(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        most, record.max_attempts = record.max_attempts, 10_000
        super()._end_attempt(record, item, now)
        record.max_attempts = most


@caught_by(
    "test_settle::test_a_released_job_gets_its_attempt_back_but_not_its_epoch",
    "test_settle::test_a_snoozed_job_gets_its_attempt_back_and_is_due_later",
)
class ReleasesAreCounted(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        counted = record.attempts
        super()._end_attempt(record, item, now)
        record.attempts = counted


@caught_by("test_heartbeat::test_a_heartbeat_never_revives_an_expired_job")
class HeartbeatRevives(MemoryStore):
    def _beat(self, worker: str, claim: Claim, now: datetime, lease: timedelta) -> Pulse:
        record = self._jobs.get(claim.id)
        if record is not None and record.state is State.RUNNING and record.epoch == claim.epoch:
            record.locked_until = max(record.locked_until or now, now + timedelta(microseconds=1))
        return super()._beat(worker, claim, now, lease)


@caught_by("test_heartbeat::test_a_heartbeat_never_shortens_a_lease")
class HeartbeatShortens(MemoryStore):
    def _beat(self, worker: str, claim: Claim, now: datetime, lease: timedelta) -> Pulse:
        pulse = super()._beat(worker, claim, now, lease)
        if pulse is not Pulse.LOST:
            self._jobs[claim.id].locked_until = now + lease
        return pulse


@caught_by("test_heartbeat::test_another_worker_cannot_renew_a_claim")
class AnybodyRenews(MemoryStore):
    def _beat(self, worker: str, claim: Claim, now: datetime, lease: timedelta) -> Pulse:
        return super()._beat(claim.worker, claim, now, lease)


@caught_by(
    "test_report::test_a_report_with_another_epoch_changes_nothing",
    "test_report::test_a_report_by_another_worker_changes_nothing",
    "test_report::test_a_report_that_comes_after_the_lease_changes_nothing",
    "test_report::test_a_report_on_a_settled_claim_changes_nothing",
    "test_report::test_a_lost_claim_does_not_keep_the_others_from_reporting",
)
class ReportsAreNotFenced(MemoryStore):
    """Takes what a handler says by the id of its job alone."""

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        pulses = await super().heartbeat(worker, claims, lease, info, reports)
        for job, report in rules.reports(reports, claims).items():
            if job in self._jobs:
                self._jobs[job].report = report
        return pulses


@caught_by("test_sweep::test_an_expired_job_goes_back_to_queued")
class SweepLosesJobs(MemoryStore):
    async def sweep(self, limit: int = 1_000) -> int:
        expired = [
            record
            for record in self._jobs.values()
            if record.state is State.RUNNING and record.claimable(self._clock())
        ]
        for record in expired[:limit]:
            self._drop(record)
        return len(expired[:limit])


@caught_by("test_sweep::test_a_sweep_takes_at_most_its_limit_the_longest_expired_first")
class SweepWithoutLimit(MemoryStore):
    async def sweep(self, limit: int = 1_000) -> int:
        rules.limit(limit)
        return await super().sweep(rules.BULK)


@caught_by("test_settle::test_a_job_keeps_its_last_ten_errors")
class FirstTenErrors(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        before = record.errors
        super()._end_attempt(record, item, now)
        record.errors = (*before, *record.errors[-1:])[:10] if item.error else before


# --- enqueueing, order, keys ------------------------------------------------------------------


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
    def _free_key(self, record: Record) -> None:
        pass


@caught_by("test_keys::test_one_key_in_two_queues_is_two_keys")
class KeysForTheWholeStore(MemoryStore):
    def _add(self, job: Admitted, now: datetime) -> Enqueued:
        for lane in self._lanes.values():
            if job.key is not None and job.key in lane.keys:
                return Enqueued(lane.keys[job.key], created=False)
        return super()._add(job, now)


# --- operators --------------------------------------------------------------------------------


@caught_by("test_requeue::test_the_epoch_goes_on_rising")
class RequeueStartsTheEpochOver(MemoryStore):
    def _alter(self, record: Record, change: Change, now: datetime) -> bool:
        done = super()._alter(record, change, now)
        if isinstance(change, Requeue) and done:
            record.epoch = 0
        return done


@caught_by("test_requeue::test_a_job_whose_key_is_busy_stays_finished_and_uncounted")
class RequeueTakesABusyKey(MemoryStore):
    def _alter(self, record: Record, change: Change, now: datetime) -> bool:
        if isinstance(change, Requeue) and record.key is not None:
            self._lanes[record.queue].keys.pop(record.key, None)
        return super()._alter(record, change, now)


@caught_by("test_cancel::test_an_asked_job_ends_unless_its_handler_ended_it")
class RetryForgetsTheCancel(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        record.cancel_asked = False
        super()._end_attempt(record, item, now)


@caught_by(
    "test_change::test_force_deletes_a_running_job_and_fences_its_owner_out",
    "test_change::test_running_jobs_are_not_deleted_without_force",
)
class DeleteOnlyHides(MemoryStore):
    """Force deletes later, and without force deletes running jobs too."""

    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        if isinstance(change, Delete):
            change = Delete(force=not change.force)
        return await super()._change(which, change, after, limit)


@caught_by("test_change::test_a_dry_run_counts_all_and_changes_nothing")
class DryRunIsWet(MemoryStore):
    async def _count(self, which: Filter, change: Change, after: UUID | None) -> int:
        return (await self._change(which, change, after, rules.BULK)).count


@caught_by("test_change::test_chunks_go_newest_first_and_say_where_to_go_on")
class ChunksWithoutLimit(MemoryStore):
    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        return await super()._change(which, change, after, rules.BULK)


@caught_by("test_find::test_pages_show_every_job_once")
class PagesSkipOne(MemoryStore):
    async def find(self, which: Filter, after: UUID | None = None, limit: int = 100) -> Page:
        page = await super().find(which, after, limit)
        return Page(page.jobs[1:], page.after) if after is not None else page


@caught_by("test_kept::test_a_lower_rank_does_not_replace_a_higher_one")
class RankIsIgnored(MemoryStore):
    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        await super().keep(kind, dict.fromkeys(values))
        await super().keep(kind, values, rank=rank)


@caught_by("test_kept::test_what_cannot_be_kept_is_refused_and_nothing_of_the_call_is_kept")
class HalfKept(MemoryStore):
    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        for name, value in values.items():
            await super().keep(kind, {name: value}, rank=rank)


# --- what a handler gave ----------------------------------------------------------------------


@caught_by("test_limits::test_a_result_that_cannot_be_stored_fails_the_job")
class BadResultsLeaveTheJobRunning(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        for item in settlements:
            if isinstance(item.outcome, Succeeded):
                rules.to_json(item.outcome.result, "result")
        return await super().settle(settlements)


@caught_by("test_limits::test_bad_arguments_are_refused")
class OtherWordsOfRefusal(MemoryStore):
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        try:
            return await super().enqueue(jobs)
        except Refused:
            raise Refused("bad job") from None


@caught_by("test_workers::test_info_is_kept_until_it_is_replaced")
class InfoIsForgotten(MemoryStore):
    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        return await super().heartbeat(worker, claims, lease, info or {}, reports)


@caught_by("test_wait::test_a_timeout_of_nothing_only_looks")
class NobodyIsWoken(MemoryStore):
    async def wait(self, queues: Sequence[str], timeout: timedelta) -> frozenset[str]:
        return frozenset()


def _a_broken_store_is_a_store() -> Store:
    """Never called: keeps the overrides above true to the protocol."""
    return LooseFence()
