"""An event loop on a thread of its own, for callers that have none: scripts, Flask, Django, a prompt."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any, Generic, TypeVar

from dibs import forks

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
        if not hasattr(self, "_loop"):
            raise RuntimeError("no event loop could be started in the background: its thread has said why")

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for the awaitable. An interrupt of the caller, such as Ctrl-C, cancels it."""
        call = _Call(awaitable)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.answer.result()
        except BaseException:
            if not call.answer.done():
                self._loop.call_soon_threadsafe(call.give_up)
            raise

    def close(self) -> None:
        """End the loop and wait for it, for a while."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except RuntimeError:
            # Python 3.12.0 and 3.12.1 start no thread any more when the interpreter ends, not even the one by which
            # asyncio waits for others. All that matters is closed by then.
            if not hasattr(self, "_over") or not self._over.is_set():
                raise
        finally:
            self._ready.set()  # also if there was no loop to be had: nobody is to wait for ever

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._over.wait()
        self._loop.set_default_executor(_Here())


class _Here(ThreadPoolExecutor):
    """Does what it is given on the spot: this loop ends, nobody else is kept waiting."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as problem:
            done.set_exception(problem)
        return done


class _Call(Generic[T]):
    """One awaitable on its way through the loop; there before it starts, so that an interrupt at any time finds it."""

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.answer: Future[T] = Future()
        self._awaitable = awaitable
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._deliver)

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> T:
        return await self._awaitable

    def _deliver(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.answer.cancel()
        elif (problem := task.exception()) is not None:
            self.answer.set_exception(problem)
        else:
            self.answer.set_result(task.result())


class _Shared:
    """The one background loop of this process, made when first asked for."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._background: Background | None = None
        forks.tell(self)

    def get(self) -> Background:
        if self._pid != os.getpid():  # a server that forks behind Python's back
            self.forked()
        with self._lock:
            if self._background is None:
                self._background = Background()
                _at_end(self._background.close)
            return self._background

    def forked(self) -> None:
        """This is a child: the parent's thread is not here, and its loop is not to be touched."""
        forks.abandon(self._background)
        self._pid, self._lock, self._background = os.getpid(), threading.Lock(), None


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
background = _shared.get
"""The background loop of this process."""
