"""Settling: outcomes go to the store in batches as they come, one call at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from datetime import timedelta

from dibs.ending import end
from dibs.errors import StoreUnavailable
from dibs.limits import DEFAULT, Limits, storable
from dibs.outcome import Failed, Outcome, Succeeded, Verdict
from dibs.store import Store
from dibs.worker.log import about, log
from dibs.worker.outage import Backoff, Weather
from dibs.worker.reports import beat
from dibs.worker.run import Run

BATCH = 1_000
MANY = 100
PAUSE = 0.001
"""Seconds between a call that settled many and the next: what ends meanwhile goes along. A store that answers
quickly would be asked for ever less at a time, and each call costs the worker as much as some dozen jobs do."""
UNRECORDED = "the outcome was refused by the store"

Ended = tuple[Run, Outcome]


class Settler:
    """Whatever ends while a call is on its way, or just after one that settled many, goes with the next one.

    An outcome is kept until the store has answered for it, however long the store is away.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        weather: Weather,
        settled: Callable[[Sequence[Ended], Sequence[Verdict]], None],
    ) -> None:
        self._name = name
        self._store = store
        self._limits = Limits(getattr(store, "max_bytes", DEFAULT.max_bytes))
        self._weather = weather
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._waiting: deque[Ended] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Cuts short the pause before the next try."""

    def add(self, run: Run, outcome: Outcome) -> None:
        """Have it settled, soon."""
        run.ended = True
        if type(outcome) is Succeeded and (outcome.result is not None or outcome.steps):
            outcome = self._as_recorded(run, outcome)
        self._waiting.append((run, outcome))
        if self._sending is None:
            self._sending = self._loop.create_task(self._send(), context=self._context.copy())

    def _as_recorded(self, run: Run, outcome: Succeeded) -> Outcome:
        """What the store will record: hooks and figures tell the same."""
        item = storable(run.claim.settled(outcome), self._limits)
        return outcome if item.kind == "succeeded" else Failed(item.error or "")

    async def close(self, seconds: float) -> int:
        """Settle what is left, for so long at most; answers how many outcomes did not get through."""
        self._hurry.set()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=seconds)
        if self._sending is not None:
            await end([self._sending])
        return len(self._waiting)

    async def _send(self) -> None:
        backoff = Backoff()
        unanswered: list[Ended] = []
        try:
            while self._waiting:
                unanswered = self._next()
                sent = len(unanswered)
                unanswered = await self._settle(unanswered)
                if unanswered:
                    self._waiting.extendleft(reversed(unanswered))
                    await backoff.pause(self._hurry)
                    self._hurry.clear()
                else:
                    backoff.reset()
                    if len(self._waiting) < sent >= MANY and not self._hurry.is_set():
                        await asyncio.sleep(PAUSE)
        except asyncio.CancelledError:
            self._waiting.extendleft(unanswered)
            raise
        finally:
            self._sending = None

    def _next(self) -> list[Ended]:
        """What goes with one call: all that waits, if it is not too much."""
        if len(self._waiting) > BATCH:
            return [self._waiting.popleft() for _ in range(BATCH)]
        batch = list(self._waiting)
        self._waiting.clear()
        return batch

    async def _settle(self, batch: list[Ended]) -> list[Ended]:
        """Send a batch; answers those that the store has not answered for."""
        try:
            await self._report(batch)
            verdicts = await self._store.settle([run.claim.settled(outcome) for run, outcome in batch])
        except StoreUnavailable as problem:
            self._weather.failed("settles", problem)
            return batch
        except Exception as problem:  # one of them is at fault: the others shall not suffer for it
            return await self._settle_apart(batch, problem)
        self._weather.fine("settles")
        self._settled(batch, verdicts)
        return []

    async def _report(self, batch: Sequence[Ended]) -> None:
        """Send what handlers said last: when the job has ended, no heartbeat can carry it."""
        by_lease: dict[float, list[Run]] = {}
        for run, _ in batch:
            if run.unsent:
                by_lease.setdefault(run.plan.lease, []).append(run)
        for lease, runs in by_lease.items():
            await beat(self._store, self._name, runs, timedelta(seconds=lease))

    async def _settle_apart(self, batch: list[Ended], problem: Exception) -> list[Ended]:
        if len(batch) > 1:
            middle = len(batch) // 2
            return await self._settle(batch[:middle]) + await self._settle(batch[middle:])
        [(run, outcome)] = batch
        if isinstance(outcome, Failed) and outcome.error.startswith(UNRECORDED):
            words = "job %s (%s): its outcome cannot be recorded; its lease will expire"
            log.error(words, run.id, run.task, extra=about(run))
            self._settled(batch, [Verdict.LOST])
            return []
        log.error("job %s (%s): its outcome was refused: %s", run.id, run.task, problem, extra=about(run))
        return await self._settle([(run, Failed(f"{UNRECORDED}: {problem}"))])
