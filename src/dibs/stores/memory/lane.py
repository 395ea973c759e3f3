"""A queue in memory: two heaps, and who has which key."""

import heapq
from datetime import datetime, timedelta
from uuid import UUID

from dibs.clock import span_micros, to_micros
from dibs.job import UNFINISHED, Order, State
from dibs.stores.memory.records import Record


class Lane:
    """One queue: its settings, its order, and the jobs that have or had a key, until it is free.

    ``later`` holds the moments at which a job may become claimable: its ``run_at``, or the end of its lease.
    ``due`` holds the places of claimable jobs. Entries are never removed when a job changes, only checked when
    they come up: an entry says "look at this job", not "this job is claimable".
    """

    def __init__(self, name: str, jobs: dict[UUID, Record]) -> None:
        self.name = name
        self.jobs = jobs
        self.configured = False
        self.paused = False
        self.order = Order.FIFO
        self.ageing: timedelta | None = None
        self.keys: dict[str, set[UUID]] = {}
        self.later: list[tuple[datetime, int, UUID]] = []
        self.due: list[tuple[tuple[int, int, int], UUID]] = []

    def find(self, job: UUID) -> Record | None:
        """The job, if it is still one of this queue: one that was deleted may be back in another."""
        record = self.jobs.get(job)
        return record if record is not None and record.queue == self.name else None

    def place(self, record: Record) -> tuple[int, int, int]:
        """Where the job stands among the claimable ones."""
        if self.ageing is not None:
            return 0, to_micros(record.run_at) + record.priority * span_micros(self.ageing), record.id.int
        if self.order is Order.FIFO:
            return record.priority, to_micros(record.run_at), record.id.int
        return record.priority, -to_micros(record.run_at), -record.id.int

    def look_at(self, record: Record, moment: datetime) -> None:
        """Come back to this job at that moment."""
        heapq.heappush(self.later, (moment, record.id.int, record.id))  # whole numbers are compared faster than ids

    def put(self, record: Record) -> None:
        """Stand in line."""
        heapq.heappush(self.due, (self.place(record), record.id))

    def ripen(self, now: datetime) -> None:
        """Bring what became claimable by now into the order."""
        while self.later and self.later[0][0] <= now:
            record = self.find(heapq.heappop(self.later)[2])
            if record is not None and record.claimable(now):
                self.put(record)

    def next(self, now: datetime) -> Record | None:
        """Take the first claimable job out of the order."""
        while self.due:
            place, job = heapq.heappop(self.due)
            record = self.find(job)
            if record is None or place != self.place(record):
                continue
            if record.claimable(now):
                return record
            if record.state is State.QUEUED or record.state is State.RUNNING:  # the clock stepped back
                self.look_at(record, record.locked_until or record.run_at)
        return None

    def reorder(self, order: Order, ageing: timedelta | None) -> None:
        """From now on, hand out in this order."""
        self.order, self.ageing = order, ageing
        found = (self.find(job) for _, job in self.due)
        self.due = [(self.place(record), record.id) for record in found if record is not None]
        heapq.heapify(self.due)

    # --- keys -----------------------------------------------------------------------------------------------

    def holder(self, key: str | None, now: datetime) -> Record | None:
        """The job that keeps the key busy: the unfinished one, or else the newest whose window is open."""
        found = [self.jobs[job] for job in self.keys.get(key or "", ())]
        for record in found:
            if not record.busy(now):
                self.free_key(record)
        busy = (record for record in found if record.busy(now))
        return max(busy, key=lambda record: (record.state in UNFINISHED, record.id), default=None)

    def take_key(self, record: Record) -> None:
        if record.key is not None:
            self.keys.setdefault(record.key, set()).add(record.id)

    def free_key(self, record: Record) -> None:
        if record.key is not None:
            holders = self.keys.get(record.key, set())
            holders.discard(record.id)
            if not holders:
                self.keys.pop(record.key, None)
