"""One run of a worker: its parts, put together, started and ended."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

from dibs.ending import end
from dibs.errors import StoreUnavailable
from dibs.outcome import Failed, Outcome, Retry, Verdict, kind
from dibs.store import Store
from dibs.task import Tasks
from dibs.telemetry.health import Vitals
from dibs.telemetry.sampler import Sampler
from dibs.telemetry.tally import Tally
from dibs.worker.cancels import Cancels
from dibs.worker.claiming import Claimer
from dibs.worker.declaring import Declaring
from dibs.worker.heartbeat import Heartbeat
from dibs.worker.hooks import Hooks
from dibs.worker.log import about, log
from dibs.worker.lookout import Lookout
from dibs.worker.maintenance import Maintenance
from dibs.worker.outage import Backoff, Weather
from dibs.worker.plan import Callers, Plan
from dibs.worker.processes import ProcessPool
from dibs.worker.run import Run, Why
from dibs.worker.running import Runner
from dibs.worker.scheduling import Scheduling
from dibs.worker.settings import Settings
from dibs.worker.settling import Ended, Settler
from dibs.worker.stats import Stats
from dibs.worker.threads import Threads

PATIENCE = 5.0
"""Seconds that interrupted handlers, last outcomes and hooks get when the worker ends."""
STALE = 2.0
"""Seconds that a claim waits for a slot before it is given back."""
HASTE = 1.0
"""The same when it has to end now."""
HEED = 1.0
"""Seconds that a handler in a thread gets to see that it shall end."""

_EVENTS = {"retry": "retried"}


class Shift:
    """Made in the loop that it works in."""

    def __init__(
        self,
        tasks: Tasks,
        settings: Settings,
        stats: Stats,
        open_store: Callable[[], Store],
        info: Callable[[], dict[str, Any]],
        *,
        tally: Tally,
        vitals: Vitals,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._tally = tally
        self._vitals = vitals
        self._loop = asyncio.get_running_loop()
        self.asked = False
        """Whether somebody asked for the end through the store."""
        self._stopping = asyncio.Event()
        self._now = asyncio.Event()
        self._up = False
        self._held: set[Run] = set()
        self._weather = Weather(settings.name)
        self._hooks = Hooks(tasks.hooks)
        self._threads = Threads(f"dibs-{settings.name}")
        self._processes: ProcessPool | None = None
        self._plans = {name: Plan(task, settings.lease) for name, task in tasks.by_name.items()}
        callers = Callers(tasks.middleware, self._threads, self._process_pool)
        for plan in self._plans.values():
            callers.equip(plan)
        self._lease = timedelta(
            seconds=min([plan.lease for plan in self._plans.values()], default=settings.lease.total_seconds())
        )
        self._store, beating = open_store(), open_store()
        self._shared = self._store is beating
        self._scheduling = Scheduling(settings.name, self._store, tasks.schedules, self._weather)
        self._declaring = Declaring(settings.name, self._store, tasks.limits, self._weather)
        self._assemble(beating, info)

    def _assemble(self, beating: Store, info: Callable[[], dict[str, Any]]) -> None:
        settings, store, weather, held = self._settings, self._store, self._weather, self._held
        self._settler = Settler(settings.name, store, weather, self._settled)
        self._runner = Runner(
            settings.concurrency,
            settings.processes,
            held=held,
            settler=self._settler,
            stats=self._stats,
            hooks=self._hooks,
            tally=self._tally,
        )
        self._heartbeat = Heartbeat(
            settings.name,
            beating,
            held,
            self._lease.total_seconds(),
            weather=weather,
            info=info,
            tell=self._told,
            close=not self._shared,
        )
        self._cancels = Cancels(settings.name, store, held, weather, self._heartbeat.beat_now)
        self._claimer = Claimer(
            settings,
            store,
            self._runner,
            plans=self._plans,
            lease=self._lease,
            held=held,
            stats=self._stats,
            tally=self._tally,
            weather=weather,
            taken=self._cancels.look,
        )
        self._lookout = Lookout(settings.queues, store, weather, self._claimer.look, self._claimer.offer)
        sampler = Sampler(settings.name, store, self._tally, self._asked) if settings.samples else None
        self._maintenance = Maintenance(store, weather, self._lease, settings.retention, sampler)
        self._tally.lease = self._lease.total_seconds()
        self._vitals.turned = self._tally.catch_up
        self._vitals.heartbeat_at = lambda: self._heartbeat.turned_at
        self._vitals.store_away = lambda: weather.down

    def _process_pool(self) -> ProcessPool:
        if self._processes is None:
            self._processes = ProcessPool(self._settings.processes)
        return self._processes

    # --- working --------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """From the first claim to the last settle."""
        beside: list[asyncio.Task[None]] = []
        self._vitals.begin()
        try:
            if not await self._open():
                return
            self._up = True
            await self._declaring.first()
            await self._hooks.call("startup")
            self._heartbeat.start()
            log.info("%s: works on %s", self._settings.name, ", ".join(self._settings.queues))
            claiming = self._loop.create_task(self._claimer.claim(self._lookout))
            beside = [self._loop.create_task(each) for each in self._beside()]
            self._vitals.phase = "stopping" if self._stopping.is_set() else "working"
            try:
                await asyncio.shield(claiming)
            except asyncio.CancelledError:
                self.stop(2)
                raise
            finally:
                await self._end(claiming)
        finally:
            await self._close(beside)

    def _beside(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on while claims are made."""
        if self._settings.until_empty:
            return [self._lookout.watch(), self._cancels.watch(), self._maintenance.sample()]
        return [
            self._lookout.watch(),
            self._cancels.watch(),
            self._declaring.run(),
            self._maintenance.sample(),
            self._maintenance.sweep(),
            self._maintenance.prune(),
            self._scheduling.run(),
            self._return_stale(),
        ]

    async def _return_stale(self) -> None:
        """When handlers have become slow all of a sudden, what was claimed for fast ones is for others to take."""
        while self._settings.prefetch is None:
            await asyncio.sleep(STALE / 2)
            self._claimer.return_stale(monotonic() - STALE)

    async def _open(self) -> bool:
        """Wait for a store that is away; one that cannot be worked with is the caller's business.

        False if the worker was stopped before.
        """
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                await self._store.setup()
            except StoreUnavailable as problem:
                self._weather.failed("setup", problem)
                await backoff.pause(self._stopping)
            else:
                self._weather.fine("setup")
                return True
        return False

    def _settled(self, batch: Sequence[Ended], verdicts: Sequence[Verdict]) -> None:
        """The store has answered."""
        hooks, stats = self._hooks, self._stats
        self._held.difference_update([run for run, _ in batch])
        others = self._tally.succeeded(batch, verdicts)
        stats.succeeded += len(batch) - len(others)
        for (run, outcome), verdict in zip(batch, verdicts, strict=True) if "succeeded" in hooks else others:
            event = _event(run, outcome)
            if verdict is Verdict.LOST:
                self._runner.lost(run)
                continue
            if event != "succeeded":
                stats.count(event)
                self._tally.ended(run, event)
                _tell(run, event, outcome)
            if event in hooks:
                hooks.fire(event, run, outcome)
        for run, _ in batch:
            if run.plan.batch is not None:
                run.part()
        self._claimer.settled()
        self._lookout.freed()
        if not self._held:
            self._lookout.idle()

    def _told(self, run: Run, why: Why) -> None:
        """The heartbeat has learned something; called from its thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._runner.interrupt, run, why)

    def running(self) -> Iterator[Run]:
        """The attempts that run now; may be asked from any thread."""
        return self._runner.going()

    # --- ending ---------------------------------------------------------------------------------------------

    def stop_soon(self, times: int) -> None:
        """As ``stop``, from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.stop, times)

    def stop(self, times: int) -> None:
        """Asked for once: end when what runs has ended. Twice: end now."""
        if times >= 1 and not self._stopping.is_set():
            self._say_goodbye()
            self._vitals.phase = "stopping"
            self._stopping.set()
            self._claimer.stop()
        if times >= 2:
            self._now.set()

    def _say_goodbye(self) -> None:
        going, grace = len(list(self._runner.going())), self._settings.grace.total_seconds()
        left = f"{going} running, with {grace:g} s to end; asked again, it ends them now" if going else "nothing runs"
        log.info("%s: stopping: %s", self._settings.name, left)

    def _asked(self) -> None:
        log.warning("%s: an operator asked it to stop", self._settings.name)
        self.asked = True
        self.stop(1)

    async def _end(self, claiming: "asyncio.Task[None]") -> None:
        """Stop claiming, release what has not started, wait for what has, interrupt what takes too long."""
        await self._lookout.retract()
        self._runner.give_back()
        await asyncio.wait([claiming], timeout=PATIENCE)
        await end([claiming])  # a claim that hangs; what it took comes back when its lease expires
        self._runner.give_back()
        await self._until_ended(self._runner.going(), self._settings.grace.total_seconds(), self._now)
        going = list(self._runner.going())
        for run in going:
            self._runner.interrupt(run, Why.STOP)
        seconds, never = HASTE if self._now.is_set() else PATIENCE, asyncio.Event()
        await asyncio.gather(
            self._until_ended([run for run in going if run.plan.interruptible], seconds, never),
            # Threads may never end: only those are waited for that look at their flag.
            self._until_ended([run for run in going if not run.plan.interruptible], min(seconds, HEED), never),
        )
        left = self._runner.abandon()
        await asyncio.sleep(0)
        if left:
            log.warning("%s: %d handlers could not be ended; their leases will expire", self._settings.name, left)
        unsent = await self._settler.close(HASTE if self._now.is_set() else PATIENCE)
        if unsent:
            log.warning("%s: %d outcomes could not be recorded; their leases will expire", self._settings.name, unsent)

    async def _until_ended(self, runs: Iterable[Run], seconds: float, unless: asyncio.Event) -> None:
        """Wait for these handlers. One that shares its task may go on in another."""
        waited_for = list(runs)
        cut = asyncio.ensure_future(unless.wait())
        deadline = self._loop.time() + seconds
        try:
            while not cut.done() and (left := deadline - self._loop.time()) > 0:
                handles = {run.handle for run in waited_for if run.handle is not None and not run.handle.done()}
                if not handles:
                    break
                await asyncio.wait([*handles, cut], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()

    async def _close(self, beside: list["asyncio.Task[None]"]) -> None:
        await end(beside)
        if self._up:
            await self._maintenance.leave()
        if self._processes is not None:
            await self._processes.close()
        await asyncio.to_thread(self._heartbeat.stop)
        await self._hooks.close(HASTE)
        if self._up:
            await self._hooks.call("shutdown")
        self._threads.close()
        if not self._shared:
            with suppress(StoreUnavailable):
                await self._store.close()
        self._vitals.end()
        log.info("%s: ended: %s", self._settings.name, self._stats)


def _event(run: Run, outcome: Outcome) -> str:
    """The name of what happened, as the store has it: a retry with no attempts left is a failure."""
    if isinstance(outcome, Retry) and run.attempt >= run.max_attempts:
        return "failed"
    word = kind(outcome)
    return _EVENTS.get(word, word)


def _tell(run: Run, event: str, outcome: Outcome) -> None:
    """One line about what went wrong. What an error says may be secret: the job has it, the line only its kind."""
    if isinstance(outcome, Retry | Failed):
        level = logging.WARNING if event == "failed" else logging.INFO
        words = "job %s (%s) %s in attempt %d of %d: %s"
        said = outcome.error.partition(":")[0]
        what = said if said.replace(".", "").isidentifier() else "see the job"
        log.log(level, words, run.id, run.task, event, run.attempt, run.max_attempts, what, extra=about(run))
