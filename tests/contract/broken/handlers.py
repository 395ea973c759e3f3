"""Stores that do not take what handlers and workers give them."""

from collections.abc import Sequence
from datetime import timedelta

from dibs import limits as rules
from dibs.errors import Refused
from dibs.job import (
    Enqueued,
    NewJob,
    Settlement,
)
from dibs.outcome import Pulse, Succeeded, Verdict
from dibs.stores.memory import MemoryStore
from tests.contract.broken.base import Beat, WrongHeartbeat, caught_by


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
class InfoIsForgotten(WrongHeartbeat):
    async def wrong(self, beat: Beat) -> list[Pulse]:
        return await self.right(beat._replace(info=beat.info or {}))


@caught_by("test_wait::test_a_timeout_of_nothing_only_looks")
class NobodyIsWoken(MemoryStore):
    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        return frozenset()
