"""The heartbeat: a thread with a loop and a store handle of its own.

So a handler that blocks the worker's loop keeps its lease.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

from dibs.clock import system_clock
from dibs.ending import end
from dibs.outcome import Pulse
from dibs.store import Store
from dibs.worker.outage import Backoff, Weather
from dibs.worker.reports import beat
from dibs.worker.run import Run, Why

VISIBLE = 10.0
"""Seconds after which a worker shows itself again, also when it holds nothing."""
TICK = 1.0
"""Seconds between two looks at what is due, and at what handlers said."""
CHUNK = 1_000
"""How many leases one call renews."""


class Heartbeat:
    """Renews the lease of everything held when a third of it has passed; learns of cancels and losses.

    A lease that was not renewed in time is lost, whether or not anybody can be asked: the monotonic clock says so.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        held: set[Run],
        claim_lease: float,
        *,
        weather: Weather,
        info: Callable[[], dict[str, Any]],
        tell: Callable[[Run, Why], None],
        close: bool,
    ) -> None:
        self._name = name
        self._store = store
        self._held = held
        self._lease = claim_lease
        self._tick = min(TICK, claim_lease / 6)
        self._weather = weather
        self._backoff = Backoff(longest=max(claim_lease / 6, 0.2))
        self._info = info
        self._tell = tell
        self._close = close
        self._shown_at = -VISIBLE
        self.turned_at: float | None = None
        """When the thread last looked at the clock; None before it began."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._setting_up: asyncio.Future[None] | None = None
        self._up = threading.Event()
        self._over = asyncio.Event()
        self._asked = asyncio.Event()
        """Beat for all that is held, now."""
        self._stirred = asyncio.Event()
        """There is no time to rest until the next look."""
        self._thread = threading.Thread(target=self._run, name=f"dibs-heartbeat-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; blocks until the call that it may be in is over, or a few seconds."""
        if self._thread.ident is None:
            return  # it was never started
        self._up.wait()
        assert self._loop is not None
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stir, self._over)
        self._thread.join(timeout=5)

    def beat_now(self) -> None:
        """Beat for all that is held, at once: one of them may have been asked to end. To be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stir, self._asked)

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._main())

    def _stir(self, event: asyncio.Event) -> None:
        event.set()
        self._stirred.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._up.set()
        beats = asyncio.create_task(self._beat_for_ever())
        try:
            # The clock is watched while a call hangs: that is when leases run out.
            while not self._over.is_set():
                self.turned_at = time.monotonic()
                self._give_up_expired()
                await self._wait(self._tick, self._over)
        finally:
            await asyncio.wait([beats], timeout=1)  # rather than cut off a call that is about to be answered
            await end([beats])
            await self._leave()

    async def _wait(self, seconds: float, until: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until.wait()

    async def _set_up(self) -> None:
        """Not to be cancelled: half set up, a store could not be closed."""
        self._setting_up = asyncio.ensure_future(self._store.setup())
        await asyncio.shield(self._setting_up)

    async def _leave(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(3):
                if self._setting_up is not None:
                    await asyncio.wait([self._setting_up])
                    await self._say_goodbye()
                if self._close:
                    await self._store.close()

    async def _say_goodbye(self) -> None:
        """So that nobody counts on a worker that ended, until its silence gives it away."""
        gone = {**self._info(), "stopped_at": system_clock().isoformat()}
        with suppress(Exception):
            async with asyncio.timeout(1):
                await self._store.heartbeat(self._name, [], timedelta(seconds=self._lease), gone)

    def _give_up_expired(self) -> None:
        now = time.monotonic()
        for run in self._held.copy():
            if run.until <= now and not run.ended and not run.lost:
                self._lose(run)

    async def _beat_for_ever(self) -> None:
        ready = False
        while not self._over.is_set():
            try:
                if not ready:
                    await self._set_up()
                    ready = True
                async with asyncio.timeout(self._lease / 2):
                    await self._beat()
            except Exception as problem:
                self._weather.failed("heartbeats", problem)
                await self._wait(self._backoff.next(), self._over)
            else:
                self._weather.fine("heartbeats")
                self._backoff.reset()
                await self._wait(self._tick, self._stirred)

    async def _beat(self) -> None:
        """Renew what is due, or all if that was asked for; if nothing is, show from time to time that we are there."""
        soon, everything = time.monotonic() + self._tick, self._asked.is_set()
        self._asked.clear()
        self._stirred.clear()
        by_lease: dict[float, list[Run]] = {}
        for run in self._held.copy():
            if (everything or run.beat_at <= soon or run.unsent) and not run.lost:
                by_lease.setdefault(run.plan.lease, []).append(run)
        try:
            for lease, runs in by_lease.items():
                for start in range(0, len(runs), CHUNK):
                    await self._renew(runs[start : start + CHUNK], lease)
        except BaseException:
            if everything:
                self._asked.set()  # the next try is for all of them, too
            raise
        if time.monotonic() - self._shown_at >= VISIBLE:
            await self._renew([], self._lease)

    async def _renew(self, runs: Collection[Run], lease: float) -> None:
        asked_at = time.monotonic()
        info = self._info() if asked_at - self._shown_at >= VISIBLE else None
        pulses = await beat(self._store, self._name, runs, timedelta(seconds=lease), info)
        self._shown_at = asked_at if info is not None else self._shown_at
        for run, pulse in zip(runs, pulses, strict=True):
            self._learn(run, pulse, asked_at, lease)

    def _learn(self, run: Run, pulse: Pulse, asked_at: float, lease: float) -> None:
        if run.ended:
            return  # it was being settled meanwhile: what the settle answers counts
        if pulse is Pulse.LOST:
            self._lose(run)
            return
        run.renewed(asked_at, lease, self._lease)
        if pulse is Pulse.CANCEL and not run.cancelled:
            run.cancelled = True
            self._tell(run, Why.CANCEL)

    def _lose(self, run: Run) -> None:
        run.cancelled = run.lost = True
        self._tell(run, Why.LOST)
