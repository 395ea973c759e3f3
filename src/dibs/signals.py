"""What a handler may raise to say how its attempt ended, when neither a result nor an error says it."""

from datetime import timedelta

Delay = timedelta | float
"""A span of time; a number means seconds."""


class Signal(Exception):
    """The root of what a handler raises on purpose. Not an error: nothing is logged as one."""


class Retry(Signal):
    """Run this job again after ``delay``, or after what the task's retry policy says.

    The attempt counts: with none left, the job is failed.
    """

    def __init__(self, delay: Delay | None = None, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = None if delay is None else span(delay)
        self.reason = reason


class Fail(Signal):
    """This job is beyond help: fail it now, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Signal):
    """Not now: run this job again after ``delay``. The attempt is not counted."""

    def __init__(self, delay: Delay) -> None:
        super().__init__(delay)
        self.delay = span(delay)


def span(delay: Delay) -> timedelta:
    """A delay as a timedelta; one that lies in the past means at once."""
    given = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    return max(given, timedelta(0))
