"""Calls that go together: many small ones that come at the same time, as few large ones."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from dibs.errors import Refused

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Caller(Generic[Item, Answer]):
    """Somebody whose items wait until others are back."""

    __slots__ = ("answers", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()

    def tell(self, answers: list[Answer]) -> None:
        if not self.answers.done():  # nobody may wait any more
            self.answers.set_result(answers)

    def fail(self, problem: Exception) -> None:
        if not self.answers.done():
            self.answers.set_exception(problem)


class Together(Generic[Item, Answer]):
    """Up to ``lines`` calls are under way. Who comes meanwhile goes with the next one, up to ``most`` items in each.

    ``send`` takes items and gives an answer for each, in order. If it refuses what several callers have brought, each
    is sent alone: nobody is refused for what another has brought.
    """

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[list[Answer]]], *, lines: int, most: int) -> None:
        self._send = send
        self._free = lines
        self._most = most
        self._waiting: deque[_Caller[Item, Answer]] = deque()  # nobody waits while a line is free
        self._under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to one's items. Items of a caller who is cancelled are not sent if they still wait."""
        if not self._free:
            caller: _Caller[Item, Answer] = _Caller(items)
            self._waiting.append(caller)
            return await caller.answers
        self._free -= 1
        try:
            return await self._send(items)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """A call is over: its line is for those who wait."""
        callers = self._next()
        if callers:
            task = asyncio.get_running_loop().create_task(self._carry(callers))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        else:
            self._free += 1

    def _next(self) -> list[_Caller[Item, Answer]]:
        callers: list[_Caller[Item, Answer]] = []
        room = self._most
        while self._waiting and room > 0:
            caller = self._waiting.popleft()
            if not caller.answers.done():
                callers.append(caller)
                room -= len(caller.items)
        return callers

    async def _carry(self, callers: list[_Caller[Item, Answer]]) -> None:
        try:
            await self._answer(callers)
        except asyncio.CancelledError:  # the loop ends
            for caller in callers:
                caller.answers.cancel()
            raise
        finally:
            self._go_on()

    async def _answer(self, callers: list[_Caller[Item, Answer]]) -> None:
        try:
            answers = iter(await self._send([item for caller in callers for item in caller.items]))
        except Exception as problem:
            if isinstance(problem, Refused) and len(callers) > 1:
                for caller in callers:
                    await self._answer([caller])
            else:
                for caller in callers:
                    caller.fail(problem)
        else:
            for caller in callers:
                caller.tell(list(islice(answers, len(caller.items))))
