"""Threads for plain functions. They are daemons: one that never ends does not keep the process from ending."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Order = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Grows to as many threads as there are calls at the same time; whoever calls keeps them few."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._desk: SimpleQueue[_Order | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._rung = False
        self._busy = 0
        self.count = 0

    def call(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Have the function called; the future gets what it returned or raised, whatever that is."""
        self._busy += 1
        if self._busy > self.count:
            self.count += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self.count}", daemon=True).start()
        future = self._loop.create_future()
        self._desk.put((function, future))
        return future

    def close(self) -> None:
        """Let idle threads go at once, and the others when they are done."""
        for _ in range(self.count):
            self._desk.put(None)

    def _work(self) -> None:
        while (order := self._desk.get()) is not None:
            function, future = order
            try:
                self._hand_in(future, function(), None)
            except BaseException as problem:  # SystemExit too is what the function raised, not the end of this thread
                self._hand_in(future, None, problem)
            del order, function, future  # or an idle thread keeps alive what the last call was about

    def _hand_in(self, future: "asyncio.Future[Any]", value: Any, problem: BaseException | None) -> None:
        self._done.append((future, value, problem))
        if self._rung:
            return  # one call wakes the loop for all that are done by then
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        self._rung = False
        while self._done:
            future, value, problem = self._done.popleft()
            self._busy -= 1
            if future.done():
                continue  # whoever called went away
            if problem is None:
                future.set_result(value)
            elif isinstance(problem, StopIteration):  # no future can carry it
                future.set_exception(RuntimeError(f"the handler raised {problem!r}"))
            else:
                future.set_exception(problem)
