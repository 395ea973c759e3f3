"""Stores that give out the wrong jobs."""

import asyncio

from dibs import limits as rules
from dibs.job import (
    UNFINISHED,
    Claim,
    State,
)
from dibs.stores.memory import MemoryStore
from tests.contract.broken.base import Wanted, WrongClaim, caught_by


@caught_by(
    "test_claim::test_concurrent_claims_share_the_jobs_out",
    "test_races::test_64_claimers_in_8_processes_never_share_a_job_in_a_race",
)
class ClaimNotAtomic(WrongClaim):
    """Looks first, takes later, with no lock between: two claimers get the same job."""

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        known = rules.claimable(*wanted)
        now = self._clock()
        with self._lock:
            lane = self._lanes.get(wanted.queue)
            seen = [
                record
                for record in self._jobs.values()
                if record.queue == wanted.queue and record.claimable(now) and (known is None or record.task in known)
            ]
            seen.sort(key=self._lane(wanted.queue).place)
        await asyncio.sleep(0)
        if lane is None or lane.paused:
            return []
        claims = []
        with self._lock:
            for record in seen[: wanted.limit]:
                if record.state in UNFINISHED:
                    self._take(record, wanted.worker, now, wanted.lease)
                    claims.append(record.as_claim())
        return claims


@caught_by(
    "test_claim::test_a_claim_never_returns_more_than_its_limit",
    "test_lease::test_exhausted_jobs_do_not_use_up_the_limit",
)
class OneMoreThanLimit(WrongClaim):
    async def wrong(self, wanted: Wanted) -> list[Claim]:
        rules.claimable(*wanted)
        return await self.right(wanted._replace(limit=min(wanted.limit + 1, rules.BULK)))


@caught_by(
    "test_order::test_a_future_job_of_smaller_priority_never_hides_a_due_one",
    "test_order::test_future_jobs_of_many_priorities_never_hide_a_due_one",
)
class FutureJobsHideDueOnes(WrongClaim):
    """Looks at the first hundred by priority, and only then at what is due."""

    async def wrong(self, wanted: Wanted) -> list[Claim]:
        first = [record for record in self._jobs.values() if record.state is State.QUEUED]
        first.sort(key=lambda record: (record.priority, record.id))
        hidden = [record for record in first[100:] if record.run_at <= self._clock()]
        if any(record.run_at > self._clock() for record in first[:100]):
            for record in hidden:
                record.state = State.WAITING
        claims = await self.right(wanted)
        for record in hidden:
            if record.state is State.WAITING:
                self._put_back(record, record.run_at)
        return claims


@caught_by("test_claim::test_a_claim_takes_only_the_tasks_that_it_knows")
class UnknownTasksAreFailed(WrongClaim):
    async def wrong(self, wanted: Wanted) -> list[Claim]:
        claims = await self.right(wanted)
        for record in list(self._jobs.values()) if wanted.tasks else []:
            if record.state is State.QUEUED and record.task not in (wanted.tasks or ()):
                self._finish(record, State.FAILED, self._clock())
        return claims


@caught_by("test_claim::test_an_exhausted_job_of_an_unknown_task_is_left_alone")
class ExhaustedJobsOfUnknownTasksAreFailed(WrongClaim):
    async def wrong(self, wanted: Wanted) -> list[Claim]:
        now = self._clock()
        for record in self._jobs.values():
            if record.state is State.RUNNING and record.claimable(now):
                self._is_over(record, now)
        return await self.right(wanted)


@caught_by("test_queues::test_a_paused_queue_gives_nothing_until_it_is_resumed")
class PauseIsIgnored(MemoryStore):
    async def pause(self, queue: str) -> None:
        with self._lock:
            self._settings(queue)


@caught_by("test_claim::test_a_queue_is_named_to_the_letter")
class QueueNamesWithoutCase(WrongClaim):
    async def wrong(self, wanted: Wanted) -> list[Claim]:
        names = [name for name in self._lanes if name.lower() == wanted.queue.lower()]
        found = [await self.right(wanted._replace(queue=name)) for name in names]
        return [claim for claims in found for claim in claims][: wanted.limit]
