"""The memory store of a test: remembers what was enqueued, and can hand out a job by name."""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from dibs.clock import Clock
from dibs.errors import JobUnknown, Refused
from dibs.job import UNFINISHED, Claim, Filter, Job, State
from dibs.stores.memory import MemoryStore
from dibs.stores.memory.records import Record

T = TypeVar("T")


class Ledger(MemoryStore):
    """A memory store that can be asked without an event loop, too."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.sent: list[Job] = []
        """What was enqueued, steps of flows too, as it was then, in order."""

    def _store(self, record: Record) -> None:
        super()._store(record)
        self.sent.append(record.as_job())

    def claim_one(self, id: UUID, worker: str, lease: timedelta) -> Claim:
        """Claim this job, whatever its place in the order; Refused if nobody could claim it now."""
        with self._lock:
            now, record = self._clock(), self._jobs.get(id)
            if record is None:
                raise JobUnknown(f"there is no job {id}")
            if self._lanes[record.queue].paused:
                raise Refused(f"job {id} ({record.task}) cannot be claimed: its queue, {record.queue}, is paused")
            if not record.claimable(now):
                raise Refused(f"job {id} ({record.task}) cannot be claimed: {_why(record.as_job())}")
            if self._is_over(record, now):
                raise Refused(f"job {id} ({record.task}) cannot be claimed: {_over(record.as_job())}")
            if not self._admit(record, now):
                raise Refused(f"job {id} ({record.task}) cannot be claimed: a limit holds it back")
            self._take(record, worker, now, lease)
            return record.as_claim()

    # --- asked without a loop -------------------------------------------------------------------------------

    def at_once(self, call: Coroutine[Any, Any, T]) -> T:
        """The answer of a verb, here and now: a store in memory waits for nothing."""
        try:
            call.send(None)
        except StopIteration as answered:
            return answered.value  # type: ignore[no-any-return]
        raise RuntimeError("a verb of the memory store had to wait")

    def jobs(self, which: Filter | None = None) -> list[Job]:
        """The jobs as they are now, oldest first."""
        found: list[Job] = []
        after: UUID | None = None
        while True:
            page = self.at_once(self.find(which or Filter(), after, 1_000))
            found += page.jobs
            after = page.after
            if after is None:
                return found[::-1]

    def next_moments(self, tasks: frozenset[str]) -> list[tuple[datetime, str]]:
        """When each unfinished job of the tasks can be claimed, and in which queue; none of a queue that is paused."""
        paused = {each.queue for each in self.at_once(self.counts()) if each.paused}
        there = self.jobs(Filter(tasks=tuple(tasks), states=(State.QUEUED, State.RUNNING))) if tasks else []
        return [(job.locked_until or job.run_at, job.queue) for job in there if job.queue not in paused]


def _why(job: Job) -> str:
    if job.state not in UNFINISHED:
        return f"it is {job.state} already"
    if job.state is State.RUNNING:
        return f"it is running, with a lease until {job.locked_until}"
    return f"it is not due before {job.run_at}; advance the clock first"


def _over(job: Job) -> str:
    if job.state is State.FAILED:
        return "it had no attempts left and is failed now"
    return "a cancel was asked or its time had come, and it is cancelled now"
