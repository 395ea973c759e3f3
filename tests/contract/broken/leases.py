"""Stores that count attempts or keep leases wrongly."""

from datetime import datetime, timedelta

from dibs import limits as rules
from dibs.job import (
    Claim,
    State,
)
from dibs.limits import Settled
from dibs.outcome import Pulse
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from tests.contract.broken.base import Beat, WrongHeartbeat, caught_by


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
    def _is_over(self, record: Record, now: datetime) -> bool:
        return record.cancel_asked and super()._is_over(record, now)


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
class ReportsAreNotFenced(WrongHeartbeat):
    """Takes what a handler says by the id of its job alone."""

    async def wrong(self, beat: Beat) -> list[Pulse]:
        pulses = await self.right(beat)
        for job, report in rules.reports(beat.reports, beat.claims).items():
            if job in self._jobs:
                self._jobs[job].report = report
        return pulses


@caught_by("test_sweep::test_an_expired_job_goes_back_to_queued")
class SweepLosesJobs(MemoryStore):
    async def sweep(self, limit: int = 1_000, *, not_within: timedelta | None = None) -> int:
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
    async def sweep(self, limit: int = 1_000, *, not_within: timedelta | None = None) -> int:
        rules.limit(limit)
        return await super().sweep(rules.BULK)


@caught_by("test_settle::test_a_job_keeps_its_last_ten_errors")
class FirstTenErrors(MemoryStore):
    def _end_attempt(self, record: Record, item: Settled, now: datetime) -> None:
        before = record.errors
        super()._end_attempt(record, item, now)
        record.errors = (*before, *record.errors[-1:])[:10] if item.error else before
