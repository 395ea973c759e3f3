"""The thread of a test that has no event loop, put at the disposal of handlers.

What a test opened belongs to its thread: the transaction that Django's TestCase rolls back, an SQLite connection, a
debugger. So while a test waits in ``harness.sync``, plain handlers run right there.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Order = tuple[Callable[[], Any], "Future[Any]"]

desk: ContextVar["Desk | None"] = ContextVar("dibs_test_desk", default=None)
"""Who waits for the present code in a thread of their own, if anybody does."""


def in_a_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Desk:
    """A thread that waits for an awaitable, and runs what it is handed meanwhile."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._cancel: Callable[[], object] = lambda: None

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have the waiting thread call the function, in the present context."""
        future: Future[Any] = Future()
        self._orders.put((partial(copy_context().run, function, *args, **kwargs), future))
        return await asyncio.wrap_future(future)

    def wait_for(self, awaitable: Awaitable[T], run: Callable[[Awaitable[T]], T]) -> T:
        """Have ``run`` run the awaitable in another thread; serve until it has ended."""
        ended: Future[T] = Future()

        def elsewhere() -> None:
            try:
                ended.set_result(run(self._watched(awaitable)))
            except BaseException as problem:
                ended.set_exception(problem)
            finally:
                self._orders.put(None)

        threading.Thread(target=copy_context().run, args=(elsewhere,), name="dibs-test", daemon=True).start()
        try:
            while (order := self._orders.get()) is not None:
                _carry_out(*order)
        except BaseException:  # somebody pressed Ctrl-C
            self._cancel()
            raise
        return ended.result()

    async def _watched(self, awaitable: Awaitable[T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)

        self._cancel = cancel
        desk.set(self)
        return await awaitable


def _carry_out(function: Callable[[], Any], future: "Future[Any]") -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = function()
    except StopIteration as problem:  # no future can carry it
        future.set_exception(RuntimeError(f"the handler raised {problem!r}"))
    except KeyboardInterrupt as problem:
        future.set_exception(problem)
        raise
    except BaseException as problem:
        future.set_exception(problem)
    else:
        future.set_result(answer)
