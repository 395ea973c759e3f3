"""When a caller may write by itself, without the writer's thread: two hand-overs can cost more than a commit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dibs.stores.sqlite.connect import Patience

BRIEF = 10
"""A verb about more jobs than this always goes to the writer's thread."""
SWIFT = 0.001
"""An event loop may be held up for this long at any time."""
DETOUR = 20
"""After something slower, for this many times as long, everybody takes the long way: a twentieth is the worst."""
CROWDED_SECONDS = 0.01
"""Another process that was in the way so lately may be there still. One that writes all the time is: it comes again
within a commit or two. One that comes six times a second must not make everybody else polite for half of the time."""


class Shortcut:
    """Open while commits are quick, no other process writes, and callers come one at a time.

    Callers that come together do better by the writer's thread, which gives them one commit for all. A guess that
    was wrong costs time, never a promise.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._detour_until = 0.0
        self._taken = False
        self._crowded = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Until its end, whoever else comes takes the long way."""
        self._taken = True
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            if now - began > SWIFT:
                self._detour_until = now + DETOUR * (now - began)

    def left(self) -> None:
        """The event loop went round once: those who wanted to come at the same time have come."""
        self._taken = False

    def is_open(self) -> bool:
        """Whether to try; whoever is turned away because of another caller makes a crowd."""
        if self._taken:
            self._crowded = True
        if self._crowded:
            return False
        now = time.monotonic()
        return now > self._detour_until and now - self._patience.waited_at > CROWDED_SECONDS

    def group_of(self, size: int) -> None:
        """The writer's thread worked for this many callers at once."""
        if size < 2:
            self._crowded = False
