"""Stores that start jobs too late, or in the wrong order."""

from datetime import datetime, timedelta

from dibs.job import Order, State
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from tests.contract.broken.base import caught_by


@caught_by("test_expiry::test_a_job_is_started_until_its_time_comes_to_the_microsecond")
class ExpiryOneMomentTooLate(MemoryStore):
    """``expires_at < now`` where ``<=`` is right."""

    def _is_over(self, record: Record, now: datetime) -> bool:
        return record.expires_at != now and super()._is_over(record, now)


@caught_by(
    "test_expiry::test_an_expired_lease_is_judged_in_one_order",
)
class ExpiryComesBeforeTheAttempts(MemoryStore):
    def _is_over(self, record: Record, now: datetime) -> bool:
        if record.expires_at is not None and record.expires_at <= now:
            record.max_attempts += 1
            over = super()._is_over(record, now)
            record.max_attempts -= 1
            return over
        return super()._is_over(record, now)


@caught_by(
    "test_expiry::test_a_job_that_comes_back_too_late_ends",
    "test_expiry::test_an_expired_lease_is_judged_in_one_order",
)
class OnlyFreshJobsExpire(MemoryStore):
    """Looks at ``expires_at`` for the first attempt alone."""

    def _is_over(self, record: Record, now: datetime) -> bool:
        expires_at = record.expires_at
        if record.epoch:
            record.expires_at = None
        over = super()._is_over(record, now)
        record.expires_at = expires_at
        return over


@caught_by(
    "test_expiry::test_a_sweep_ends_queued_jobs_wherever_they_are",
    "test_expiry::test_a_sweep_takes_leases_first_then_the_longest_over",
)
class SweepLooksAtLeasesOnly(MemoryStore):
    async def sweep(self, limit: int = 1_000, *, not_within: timedelta | None = None) -> int:
        queued = [record for record in self._jobs.values() if record.state is State.QUEUED]
        times = [record.expires_at for record in queued]
        for record in queued:
            record.expires_at = None
        count = await super().sweep(limit)
        for record, expires_at in zip(queued, times, strict=True):
            record.expires_at = expires_at
        return count


@caught_by(
    "test_ageing::test_a_priority_is_worth_so_much_waiting_to_the_microsecond",
    "test_ageing::test_a_flood_of_urgent_jobs_does_not_stop_the_others_for_ever",
)
class AgeingIsIgnored(MemoryStore):
    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        await super().configure(queue, order=order, ageing=None)


@caught_by("test_ageing::test_extreme_priorities_and_times_are_counted_exactly")
class AgeingInFloats(MemoryStore):
    """What comes of counting in seconds: far from 1970 they are some microseconds apart."""

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        await super().configure(queue, order=order, ageing=ageing)
        lane, place = self._lane(queue), self._lane(queue).place

        def rounded(record: Record) -> tuple[int, int, int]:
            first, middle, last = place(record)
            return first, middle // 8 * 8, last

        lane.place = rounded  # type: ignore[method-assign]
