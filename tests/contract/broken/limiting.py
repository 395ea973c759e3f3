"""Stores that let too many jobs run, or too few."""

from datetime import UTC, datetime
from typing import Any

from dibs import limits as rules
from dibs.clock import to_micros
from dibs.job import Claim, State
from dibs.scope import Limit, Scope
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.limiting import Bucket
from dibs.stores.memory.records import Record
from tests.contract.broken.base import Wanted, WrongClaim, caught_by


class Uncounted(MemoryStore):
    """Does not count some of the jobs that run; the next two are built on it."""

    def counts_for(self, job: int, bucket: Bucket) -> bool:
        return True

    def _running_in(self, bucket: Bucket, now: datetime) -> int:
        held, self._held = self._held, {j: r for j, r in self._held.items() if self.counts_for(j, bucket)}
        count = super()._running_in(bucket, now)
        self._held = held
        return count


@caught_by(
    "test_concurrency_limits::test_no_more_run_than_the_limit_allows",
    "test_limit_races::test_claimers_that_race_never_exceed_a_limit",
)
class OneLookForTheWholeCall(WrongClaim, Uncounted):
    """Asks how many run when a claim begins, and forgets those that it takes itself."""

    before: frozenset[int] = frozenset()

    def counts_for(self, job: int, bucket: Bucket) -> bool:
        return job in self.before

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        self.before = frozenset(self._held)
        return await self.right(wanted)


@caught_by("test_concurrency_limits::test_jobs_that_ran_before_there_was_a_limit_count")
class SlotsAreCountedFromTheLimitOn(Uncounted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.earlier: dict[Scope, frozenset[int]] = {}

    def counts_for(self, job: int, bucket: Bucket) -> bool:
        return job not in self.earlier.get(bucket[0], ())

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        self.earlier[scope] = frozenset(self._held)
        await super().limit(scope, limit, rank=rank)


@caught_by(
    "test_concurrency_limits::test_a_slot_is_free_however_a_job_ends_its_run",
    "test_concurrency_limits::test_a_job_that_is_claimed_again_counts_once",
    "test_limit_races::test_claimers_that_race_never_exceed_a_limit",
)
class SlotsOfTheDeadAreLost(MemoryStore):
    def _running_in(self, bucket: Bucket, now: datetime) -> int:
        return super()._running_in(bucket, datetime.min.replace(tzinfo=UTC))


@caught_by(
    "test_concurrency_limits::test_a_limit_concerns_its_scope_and_nothing_else",
    "test_rate_limits::test_a_task_has_one_rate_in_all_queues_and_a_key_one_in_each",
)
class TasksAreLimitedInEachQueue(MemoryStore):
    def _buckets(self, record: Record | None) -> list[Bucket]:
        queue = None if record is None else record.queue
        return [(scope, queue if scope.task else key) for scope, key in super()._buckets(record)]

    def _running_in(self, bucket: Bucket, now: datetime) -> int:
        scope, key = bucket
        if scope.task is None:
            return super()._running_in(bucket, now)
        held = (record for record in self._held.values() if record.holds(now) and record.task == scope.task)
        return sum(key in (None, record.queue) for record in held)


@caught_by(
    "test_concurrency_limits::test_those_behind_are_looked_at_in_their_order",
    "test_concurrency_limits::test_a_thousand_held_back_jobs_hide_nobody",
    "test_rate_limits::test_those_behind_a_job_that_must_wait_are_looked_at",
)
class HeldBackJobsBlock(WrongClaim):
    """Stops at the first job that has no room."""

    blocked = False

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        self.blocked = False
        return await self.right(wanted)

    def _admit(self, record: Record, now: datetime) -> bool:
        self.blocked = self.blocked or not super()._admit(record, now)
        return not self.blocked


@caught_by("test_concurrency_limits::test_a_job_that_is_held_back_is_left_as_it_is")
class HeldBackLeasesAreBlamed(MemoryStore):
    """Closes the books on an expired attempt before it knows whether there is room for another."""

    def _admit(self, record: Record, now: datetime) -> bool:
        admitted = super()._admit(record, now)
        if not admitted:
            self._close_books(record, now)
        return admitted


@caught_by("test_concurrency_limits::test_ends_need_no_room", "test_rate_limits::test_ends_are_not_charged")
class EndsNeedRoom(MemoryStore):
    def _is_over(self, record: Record, now: datetime) -> bool:
        return self._admit(record, now) and super()._is_over(record, now)


@caught_by("test_rate_limits::test_every_start_is_charged_whatever_becomes_of_it")
class ReclaimsAreFree(MemoryStore):
    def _admit(self, record: Record, now: datetime) -> bool:
        before = dict(self._full_at)
        admitted = super()._admit(record, now)
        if record.state is State.RUNNING:
            self._full_at = before
        return admitted


@caught_by("test_rate_limits::test_a_job_that_one_limit_holds_back_is_charged_by_none")
class EachLimitChargesForItself(MemoryStore):
    """Takes from one bucket after the other, and gives nothing back when one is empty."""

    def _admit(self, record: Record, now: datetime) -> bool:
        for bucket in self._buckets(record):
            if not self._has_room(bucket, now):
                return False
            if (rate := self._limited[bucket[0]][1].rate) is not None:
                self._full_at[bucket] = rules.after_start(rate, self._full_at.get(bucket, 0), to_micros(now))
        return True


@caught_by("test_rate_limits::test_a_bucket_fills_up_and_does_not_overflow")
class BucketsOverflow(MemoryStore):
    """What was not used of a rate is saved up for ever."""

    def _admit(self, record: Record, now: datetime) -> bool:
        before = dict(self._full_at)
        admitted = super()._admit(record, now)
        for bucket, full_at in before.items():
            if self._full_at.get(bucket) != full_at and (rate := self._limited[bucket[0]][1].rate) is not None:
                self._full_at[bucket] = full_at + rate.apart
        return admitted


@caught_by("test_rate_limits::test_the_same_rate_goes_on_and_another_begins_anew")
class EveryChangeFillsTheBucket(MemoryStore):
    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        await super().limit(scope, limit, rank=rank)
        self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if bucket[0] != scope}


@caught_by("test_concurrency_limits::test_a_limit_with_a_higher_rank_stays")
class LimitsHaveNoRank(MemoryStore):
    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        self._limited.pop(scope, None)
        await super().limit(scope, limit, rank=rank)
