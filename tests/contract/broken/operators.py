"""Stores that do to jobs what no operator asked for."""

import sys
from datetime import datetime
from uuid import UUID

from dibs import limits as rules
from dibs.job import (
    Change,
    Changed,
    Counted,
    Delete,
    Filter,
    Page,
    QueueCounts,
    Requeue,
)
from dibs.limits import Settled
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record
from tests.contract.broken.base import caught_by


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
    async def _apply(self, which: Filter, change: Change, dry_run: bool, after: UUID | None, limit: int) -> Changed:
        return await super()._apply(which, change, False, after, rules.BULK if dry_run else limit)


@caught_by("test_change::test_chunks_go_newest_first_and_say_where_to_go_on")
class ChunksWithoutLimit(MemoryStore):
    async def _change(self, which: Filter, change: Change, after: UUID | None, limit: int) -> Changed:
        return await super()._change(which, change, after, rules.BULK)


@caught_by("test_find::test_pages_show_every_job_once")
class PagesSkipOne(MemoryStore):
    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        page = await super().find(which, after, limit)
        return Page(page.jobs[1:], page.after) if after is not None else page


@caught_by("test_find::test_looking_at_few_jobs_at_a_time_finds_the_same")
class EndsWhereItStoppedLooking(MemoryStore):
    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        page = await super().find(which, after, limit)
        looked = sorted(self._jobs, reverse=True)[: most or None]
        return Page(tuple(job for job in page.jobs if job.id in looked), page.after)


@caught_by("test_counts::test_who_stops_counting_says_so_and_counted_no_more_than_there_are")
class SaysThatItCountedAll(MemoryStore):
    async def count(self, which: Filter, *, most: int | None = None) -> Counted:
        return Counted(min((await super().count(which, most=most)).count, most or sys.maxsize))


@caught_by("test_counts::test_what_is_not_counted_to_the_end_is_named_and_is_no_more_than_there_is")
class SaysNotThatThereAreMore(MemoryStore):
    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        found = await super().counts(most=most)
        for each in found if most else ():
            each.states.update({state: min(count, most or 0) for state, count in each.states.items()})
        return found
