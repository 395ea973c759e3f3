"""Claiming: never more than can start soon, and the next claim is on its way while the last one runs."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from time import monotonic

from dibs.job import Claim
from dibs.store import Offer, Store
from dibs.telemetry.tally import Tally
from dibs.worker.lookout import FALLBACK, Lookout
from dibs.worker.outage import Backoff, Weather
from dibs.worker.plan import Plan
from dibs.worker.prefetch import MOST, Prefetch
from dibs.worker.run import Run
from dibs.worker.running import Runner
from dibs.worker.settings import Settings
from dibs.worker.stats import Stats


class Claimer:
    """Keeps the runner in work. One claim is on its way at a time, and none when stopping."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        runner: Runner,
        *,
        plans: Mapping[str, Plan],
        lease: timedelta,
        held: set[Run],
        stats: Stats,
        tally: Tally,
        weather: Weather,
        taken: Callable[[], None],
    ) -> None:
        self._name = settings.name
        self._store = store
        self._runner = runner
        self._plans = plans
        self._lease = lease
        self._prefetch = Prefetch(settings.prefetch)
        self._held = held
        self._stats = stats
        self._tally = tally
        self._weather = weather
        self._until_empty = settings.until_empty
        self._taken = taken
        """Called when claims have come."""
        self._tasks = frozenset(name for name, plan in plans.items() if not plan.in_process)
        self._process_tasks = frozenset(plans) - self._tasks
        self._process_batch = max((plans[name].batch or 1 for name in self._process_tasks), default=1)
        self._starved = False
        """A queue was asked without the tasks that need a process, since none was free."""
        self._batch = max((plan.batch or 0 for plan in plans.values()), default=0)
        self._more = self._batch
        """As many claims again as a batch may take, where there are jobs that come in batches."""
        self._full = False
        """The last claim brought as many as asked for: there are more."""
        self._settles_seen = 0
        self._backoff = Backoff()
        self._news = asyncio.Event()
        self._stop = asyncio.Event()
        runner.poke = self._news.set
        self._settles = 0
        """Counts the settles that were answered: each may have made something due."""

    def look(self) -> None:
        """Something changed: there is room, or a queue is worth asking."""
        self._news.set()

    def settled(self) -> None:
        """The store has answered a settle."""
        self._settles += 1
        if self._until_empty:
            self._news.set()

    def return_stale(self, since: float) -> None:
        """Give back what has waited for a slot since before that, and begin anew to find out how much to hold."""
        if self._runner.return_stale(since):
            self._prefetch.forget()

    def stop(self) -> None:
        """Claim no more. What a claim brings that is on its way is released."""
        self._stop.set()
        self._news.set()

    def offer(self) -> Offer | None:
        """What the store may claim for us while we have nothing to do; with handlers running the loop may be busy."""
        if self._held or self._batch or self._until_empty or self._stop.is_set() or not self._tasks:
            return None
        return Offer(self._name, self._lease, self._tasks, self._handed, timedelta(seconds=FALLBACK))

    def _handed(self, claim: Claim, asked_at: float) -> None:
        self._take(claim.queue, [claim], asked_at, full=False)
        if self._runner.closed:
            self._runner.give_back()

    async def claim(self, lookout: Lookout) -> None:
        """Claim until stopped or, if that was asked for, until nothing due is left."""
        while not self._stop.is_set():
            self._news.clear()
            if self._starved and self._runner.room_for_processes:
                lookout.ask_all()
            room = self._room()
            choice = lookout.pick(room) if room else None
            if choice is not None:
                queue, limit = choice
                # Who was idle is called for one job as a rule. To claim just one takes a store less time, and those
                # behind it are asked for when it has started.
                alone = lookout.was_called(queue) and not self._batch
                await self._claim(lookout, queue, 1 if alone else limit)
                if alone or not self._full:
                    await asyncio.sleep(0)  # what has come starts before the next call is put together
            elif room and self._until_empty and self._settles_seen != self._settles:
                self._settles_seen = self._settles
                lookout.ask_all()  # a retry may be due at once, a handler may have enqueued more
            elif room and self._until_empty and not self._held:
                return
            else:
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        self._runner.poke_at = (self._prefetch.size + self._more) // 2
        await self._news.wait()
        self._runner.poke_at = -1

    def _room(self) -> int:
        """How many to claim now. Not one by one while others still wait to start: calls cost more than jobs."""
        spare, waiting = self._prefetch.size + self._more, self._runner.waiting
        room = self._runner.free + spare - waiting
        if waiting and room < (spare + 1) // 2:
            return 0
        return max(0, min(room, max(MOST, self._batch)))

    async def _claim(self, lookout: Lookout, queue: str, limit: int) -> None:
        try:
            count = await self._claim_for_processes(queue) if self._process_tasks else 0
            if self._tasks:
                count += await self._claim_some(queue, limit, self._tasks)
        except Exception as problem:
            self._weather.failed("claims", problem)
            await self._backoff.pause(self._stop)
        else:
            self._weather.fine("claims")
            self._backoff.reset()
            lookout.brought(queue, count)

    async def _claim_for_processes(self, queue: str) -> int:
        """There are fewer processes than slots, so jobs for them are claimed by themselves."""
        room = self._runner.room_for_processes
        self._starved = not room
        return await self._claim_some(queue, room * self._process_batch, self._process_tasks) if room else 0

    async def _claim_some(self, queue: str, limit: int, tasks: frozenset[str]) -> int:
        asked_at = monotonic()
        claims: list[Claim] = []
        full, self._full = self._full, False
        self._runner.more_to_come = full
        try:
            claims = await self._store.claim(queue, self._name, limit, self._lease, tasks)
            self._full = len(claims) == limit
        finally:
            self._runner.more_to_come = False
            if claims or full:
                self._take(queue, claims, asked_at, full=self._full and limit > 1)
        return len(claims)

    def _take(self, queue: str, claims: list[Claim], asked_at: float, *, full: bool) -> None:
        now, runner, prefetch, started = monotonic(), self._runner, self._prefetch, self._stats.started
        dry, waited = full and runner.free > 0 and not runner.waiting, now - runner.oldest()
        lease, plans = self._lease.total_seconds(), self._plans
        runs = [Run(claim, plans[claim.task], asked_at, now, lease) for claim in claims]
        self._tally.expect(queue, runs)
        self._held.update(runs)
        if self._batch and runs:
            self._more = self._batch if any(run.plan.batch for run in runs) else 0
        runner.take(runs)
        # Who is idle starts first and learns afterwards.
        self._taken()
        prefetch.learn(now, started, dry=dry, waited=waited)
        prefetch.mark(now, self._stats.started)
