"""Threads for plain functions. They are daemons: one that never ends does not keep the process from ending."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

BRIEF = 50e-6
"""Seconds that a call may take to pass for brief. It takes about as long to wake another thread for the next one."""
LOOK = 0.005
"""Seconds between two looks at the line of brief calls. As long as Python lets one thread run while others wait."""
TOGETHER = 50
"""Brief calls of which the loop hears together, if as many are in line."""
SLOW = 10
"""Calls that have to be begun between two looks while others wait, or those that wait go to threads of their own."""
SOON, LATE = 0.1, 60.0
"""Seconds for which a task that was slow in the line is not put there again, at first and at most."""


class Pace:
    """How long calls of one function take: as the last one, so will the next. Times are monotonic seconds.

    One that held up others is doubted for a while, and for twice as long if it does so again soon.
    """

    __slots__ = ("_brief_since", "_doubted_until", "_pause", "brief")

    def __init__(self) -> None:
        self.brief = False
        self._brief_since = 0.0
        self._doubted_until = 0.0
        self._pause = SOON

    def took(self, seconds: float, now: float) -> None:
        """A call that had a thread to itself is over."""
        if seconds < BRIEF and not self.brief and now >= self._doubted_until:
            self._brief_since = now
            self.brief = True

    def held_up(self, now: float) -> None:
        """Others waited for a call that was thought to be brief."""
        if not self.brief:
            return  # already doubted
        soon = now - self._brief_since < 10 * self._pause
        self._pause = min(2 * self._pause, LATE) if soon else SOON
        self._doubted_until = now + self._pause
        self.brief = False


class _Order:
    """A call, and who waits for it."""

    __slots__ = ("function", "future", "has_thread", "pace")

    def __init__(self, function: Callable[[], Any], future: "asyncio.Future[Any]", pace: Pace) -> None:
        self.function = function
        self.future = future
        self.pace = pace
        self.has_thread = False
        """It does not stand in line, or no longer."""


class _Line:
    """Orders for the one thread. The loop puts them in, and takes them out again if it goes too slowly."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self.put = self._orders.put
        self.empty = self._orders.empty
        self.begun = 0
        """Calls that the thread has begun, and those that are over."""
        self.over = 0
        self.pace: Pace | None = None
        """That of the call that was begun last."""
        self._stuck_in = 0

    @property
    def stuck(self) -> bool:
        """The call that held up the others still runs."""
        return self.over < self._stuck_in

    def clear(self) -> Iterator[_Order]:
        """Those that wait; the one that runs is to blame for it."""
        self._stuck_in = self.begun
        if self.pace is not None:
            self.pace.held_up(monotonic())
        with suppress(Empty):
            while (order := self._orders.get_nowait()) is not None:
                yield order

    def work_off(self, do: Callable[[_Order], None]) -> None:
        while (order := self._orders.get()) is not None:
            self.pace = order.pace
            self.begun += 1
            do(order)
            self.over += 1
            del order  # or an idle thread keeps alive what the last call was about


class Threads:
    """Grows to as many threads as there are calls at the same time; whoever calls keeps them few.

    Calls that are brief stand in line for one thread: to wake a thread for each, and have all of them ask for the
    interpreter, takes longer than the calls. Should one not be brief after all, those behind it do not wait for it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._desk: SimpleQueue[_Order | None] = SimpleQueue()
        self._done: deque[tuple[_Order, Any, BaseException | None]] = deque()
        self._rung = False
        self._busy = 0
        self.count = 0
        """Threads, but for the one that brief calls stand in line for."""
        self._line: _Line | None = None
        self._looking = False
        self._closed = False

    def call(self, function: Callable[[], Any], pace: Pace) -> "asyncio.Future[Any]":
        """Have the function called; the future gets what it returned or raised, whatever that is."""
        order = _Order(function, self._loop.create_future(), pace)
        if pace.brief:
            self._put_in_line(order)
        else:
            self._put_on_desk(order)
        return order.future

    def close(self) -> None:
        """Let idle threads go at once, and the others when they are done."""
        self._closed = True
        if self._line is not None:
            self._line.put(None)
        for _ in range(self.count):
            self._desk.put(None)

    # --- a thread for each ----------------------------------------------------------------------------------

    def _put_on_desk(self, order: _Order) -> None:
        order.has_thread = True
        self._busy += 1
        if self._busy > self.count:
            self.count += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self.count}", daemon=True).start()
        self._desk.put(order)

    def _work(self) -> None:
        while (order := self._desk.get()) is not None:
            began = monotonic()
            self._do(order)
            ended = monotonic()
            order.pace.took(ended - began, ended)
            del order  # or an idle thread keeps alive what the last call was about

    # --- one thread for all that are brief ------------------------------------------------------------------

    def _put_in_line(self, order: _Order) -> None:
        line = self._line
        if line is None:
            line = self._line = _Line()
            threading.Thread(target=line.work_off, args=[self._do], name=f"{self._name}-0", daemon=True).start()
        if line.stuck:
            self._put_on_desk(order)
            return
        line.put(order)
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK, self._look, line, line.begun, False)

    def _look(self, line: _Line, begun: int, doubtful: bool) -> None:
        """See to it that nobody waits long behind a call that is not brief.

        Seen once, it may be the loop that kept the thread from going on.
        """
        if line.empty() or self._closed:
            self._looking = False
            return
        slow = line.begun - begun < SLOW
        if slow and doubtful:
            for order in line.clear():
                self._put_on_desk(order)
        self._deliver()  # those before a call that is not brief, which nobody rang for
        self._loop.call_later(LOOK, self._look, line, line.begun, slow)

    def _due(self) -> bool:
        """Whether the loop should hear of brief calls that are done: it would ask for the interpreter."""
        assert self._line is not None
        return len(self._done) >= TOGETHER or self._line.empty() or self._closed

    # --- what comes of it -----------------------------------------------------------------------------------

    def _do(self, order: _Order) -> None:
        if order.future.done():  # whoever called went away; those before it in the line are still to be told
            self._hand_in(order, None, None)
            return
        try:
            self._hand_in(order, order.function(), None)
        except BaseException as problem:  # SystemExit too is what the function raised, not the end of this thread
            self._hand_in(order, None, problem)

    def _hand_in(self, order: _Order, value: Any, problem: BaseException | None) -> None:
        self._done.append((order, value, problem))
        if self._rung or not (order.has_thread or self._due()):
            return  # one call wakes the loop for all that are done by then
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        self._rung = False
        while self._done:
            order, value, problem = self._done.popleft()
            self._busy -= order.has_thread
            future = order.future
            if future.done():
                continue  # whoever called went away
            if problem is None:
                future.set_result(value)
            elif isinstance(problem, StopIteration):  # no future can carry it
                future.set_exception(RuntimeError(f"the handler raised {problem!r}"))
            else:
                future.set_exception(problem)
