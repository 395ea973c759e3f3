"""When a caller may write by itself, without the writer's thread: two hand-overs can cost more than a commit."""

import asyncio
import time
from typing import Any

from dibs.stores.sqlite.connect import Patience

BRIEF = 10
"""A verb about more jobs than this always goes to the writer's thread."""
SWIFT = 0.001
"""An event loop may be held up for this long at any time: by one commit, or by one caller that makes many."""
DETOUR = 20
"""What is slower has to be made good by so many times as long without it: a twentieth is the worst."""
SLACK = 0.1
"""Everybody takes the long way while more than this is to be made good: one commit of 3 ms is no slow disk."""
CROWDED_SECONDS = 0.01
"""Another process that was in the way so lately may be there still. One that writes all the time is: it comes again
within a commit or two. One that comes six times a second must not make everybody else polite for half of the time."""


class Shortcut:
    """Open while commits are quick, no other process writes, and callers come one at a time.

    Callers that come together do better by the writer's thread, which gives them one commit for all. A caller is a
    task of asyncio; one that comes again before its event loop went round is not together with anybody, and need not
    go round the loop each time. A guess that was wrong costs time, never a promise.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._caller: asyncio.Task[Any] | None = None
        self._turn = -1.0
        """When the caller came first since its event loop went round."""
        self._began = 0.0
        self._good_at = 0.0
        """When everything slow will have been made good."""
        self._crowded = False

    def take(self) -> bool:
        """Whether to try; who is turned away because of another caller makes a crowd."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        caller = asyncio.current_task(loop)
        alone = self._caller is None or now - self._turn > CROWDED_SECONDS  # that one's loop may have ended
        if not alone and self._caller is not caller:
            self._crowded = True
        if self._crowded or self._good_at - now > SLACK or now - self._patience.waited_at <= CROWDED_SECONDS:
            return False
        if alone:
            self._caller, self._turn = caller, now
            loop.call_soon(self._gone_round, caller)
        self._began = now
        return True

    def leave(self) -> bool:
        """The verb that was tried is over; whether the caller should now let others have their turn."""
        now = time.monotonic()
        if now - self._began > SWIFT:
            self._good_at = max(self._good_at, now) + DETOUR * (now - self._began)
        return now - self._turn > SWIFT

    def _gone_round(self, caller: asyncio.Task[Any] | None) -> None:
        """Those who wanted to come at the same time have come."""
        if self._caller is caller:
            self._caller = None

    def group_of(self, size: int) -> None:
        """The writer's thread worked for this many callers at once."""
        if size < 2:
            self._crowded = False
