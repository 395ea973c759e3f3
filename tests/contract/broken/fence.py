"""Stores whose fence has a hole."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from dibs.job import (
    Claim,
    State,
)
from dibs.limits import Settled
from dibs.outcome import Verdict
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from tests.contract.broken.base import Wanted, WrongClaim, caught_by


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
class ClaimTakesLeasesTooLate(WrongClaim):
    """``locked_until < now`` where ``<=`` is right."""

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        for record in self._jobs.values():
            if record.state is State.RUNNING and record.locked_until == self._clock():
                record.locked_until += timedelta(microseconds=1)
        return await self.right(wanted)


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


def _a_broken_store_is_a_store() -> Store:
    """Never called: keeps the overrides above true to the protocol."""
    return LooseFence()
