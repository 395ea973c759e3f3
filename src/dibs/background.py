"""An event loop on a thread of its own, for callers that have none: scripts, Flask, Django, a prompt."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 5.0
"""Seconds for connections to close when the interpreter ends. The thread is a daemon: it keeps nobody longer."""


class Background:
    """Runs awaitables for threads that wait for them. Ends its tasks and closes what they opened at the end."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dibs-sync", daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for the awaitable. An interrupt of the caller, such as Ctrl-C, cancels it."""
        future = asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and wait for it, for a while."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._over.wait()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


class _Shared:
    """The one background loop of this process, made when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._inherited: list[Background | None] = []

    def get(self) -> Background:
        with self._lock:
            if self._background is None:
                self._background = Background()
                _at_end(self._background.close)
            return self._background

    def forked(self) -> None:
        """This is a child: the parent's thread is not here, and its loop must neither be used nor torn down."""
        self._inherited.append(self._background)
        self._lock, self._background = threading.Lock(), None


def _at_end(close: Callable[[], None]) -> None:
    """Call it when the interpreter ends, in this process only, while threads can still be started.

    ``atexit`` comes too late for that: closing an SQLite file uses a thread pool, which is gone by then.
    """
    import_module("concurrent.futures.thread")  # the last to come is the first to go: this registers its own end
    here = os.getpid()

    def end() -> None:
        if os.getpid() == here:
            close()

    threading._register_atexit(end)  # type: ignore[attr-defined]


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.forked)
background = _shared.get
"""The background loop of this process."""
