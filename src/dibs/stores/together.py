"""Calls that go together: many small ones that come at the same time, as few large ones."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from dibs.errors import StoreUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Caller(Generic[Item, Answer]):
    """Somebody who waits for answers, first to be sent and then with others."""

    __slots__ = ("answers", "group", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self.group: _Group[Item, Answer] | None = None

    def tell(self, answers: list[Answer]) -> None:
        if not self.answers.done():  # nobody may wait any more
            self.answers.set_result(answers)

    def fail(self, problem: Exception) -> None:
        if not self.answers.done():
            self.answers.set_exception(problem)


class _Group(Generic[Item, Answer]):
    """Callers who were sent together, and the task that does it."""

    __slots__ = ("callers", "task")

    def __init__(self, callers: Sequence[_Caller[Item, Answer]], task: asyncio.Task[None]) -> None:
        self.callers = callers
        self.task = task
        for caller in callers:
            caller.group = self

    def has_left(self) -> bool:
        return all(caller.answers.done() for caller in self.callers)


class Together(Generic[Item, Answer]):
    """Up to ``lines`` calls are under way. Who comes meanwhile goes with the next one, up to ``most`` items in each.

    ``send`` takes items and gives an answer for each, in order. If it fails for what several callers have brought, it
    is tried with half of them and then with the others: nobody fails for what another has brought. If the store is
    not there, all of them hear it.
    """

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[list[Answer]]], *, lines: int, most: int) -> None:
        self._send = send
        self._free = lines
        self._most = most
        self._waiting: deque[_Caller[Item, Answer]] = deque()  # nobody waits while a line is free
        self._under_way: set[_Group[Item, Answer]] = set()

    async def __call__(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to one's items. If all who went together are cancelled, so is the call."""
        if not self._free:
            return await self._in_company(items)
        self._free -= 1
        try:
            return await self._send(items)
        finally:
            self._go_on()

    async def _in_company(self, items: Sequence[Item]) -> list[Answer]:
        caller: _Caller[Item, Answer] = _Caller(items)
        self._waiting.append(caller)
        try:
            return await caller.answers
        except asyncio.CancelledError:
            if caller.group is None:
                self._waiting.remove(caller)
            elif caller.group.has_left():
                caller.group.task.cancel()  # or a call that nobody waits for could keep a line for ever
            raise

    def _go_on(self) -> None:
        """A call is over: its line is for those who wait."""
        if not self._waiting:
            self._free += 1
            return
        callers = self._next()
        group = _Group(callers, asyncio.get_running_loop().create_task(self._answer(callers)))
        self._under_way.add(group)
        group.task.add_done_callback(partial(self._over, group))

    def _next(self) -> list[_Caller[Item, Answer]]:
        callers: list[_Caller[Item, Answer]] = []
        room = self._most
        while self._waiting and room > 0:
            callers.append(self._waiting.popleft())
            room -= len(callers[-1].items)
        return callers

    async def _answer(self, callers: Sequence[_Caller[Item, Answer]]) -> None:
        callers = [caller for caller in callers if not caller.answers.done()]
        if not callers:
            return
        try:
            answers = iter(await self._send([item for caller in callers for item in caller.items]))
        except Exception as problem:
            if len(callers) > 1 and not isinstance(problem, StoreUnavailable):
                half = len(callers) // 2
                await self._answer(callers[:half])
                await self._answer(callers[half:])
            else:
                for caller in callers:
                    caller.fail(problem)
        else:
            for caller in callers:
                caller.tell(list(islice(answers, len(caller.items))))

    def _over(self, group: _Group[Item, Answer], task: asyncio.Task[None]) -> None:
        """Not part of the task: one that is cancelled before it has begun does nothing at all."""
        self._under_way.discard(group)
        if task.cancelled():  # nobody waits, or the loop ends
            for caller in group.callers:
                caller.answers.cancel()
        self._go_on()
