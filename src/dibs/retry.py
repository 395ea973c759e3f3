"""How long a job waits before its next attempt. Pure arithmetic: the attempt and the dice are arguments.

Attempts count from 1: ``delay(1, …)`` is the wait between the first attempt and the second.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

import msgspec

from dibs.errors import ConfigurationError
from dibs.signals import Delay, span

_dice = Random()


def _seconds(delay: Delay) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)


def _check(delay: object, what: str) -> None:
    if not isinstance(delay, timedelta | int | float) or not 0 <= _seconds(delay) <= timedelta.max.total_seconds():
        raise ConfigurationError(f"{what} of a retry policy must be a timedelta or seconds, 0 or more, not {delay!r}")


class Constant(msgspec.Struct, frozen=True):
    """Always the same wait."""

    wait: Delay

    def __post_init__(self) -> None:
        _check(self.wait, "wait")

    def delay(self, attempt: int, random: Random = _dice) -> timedelta:
        """The wait after that attempt."""
        return span(self.wait)


class Linear(msgspec.Struct, frozen=True):
    """One ``step`` more after each attempt, up to ``cap``."""

    step: Delay
    cap: Delay = timedelta(hours=1)

    def __post_init__(self) -> None:
        _check(self.step, "step")
        _check(self.cap, "cap")

    def delay(self, attempt: int, random: Random = _dice) -> timedelta:
        """The wait after that attempt."""
        return timedelta(seconds=min(_seconds(self.step) * attempt, _seconds(self.cap)))


class Exponential(msgspec.Struct, frozen=True):
    """``factor`` times as long after each attempt, from ``first`` up to ``cap``, less a random part of it.

    ``jitter`` says which part of the wait is left to chance: with 0.5, the default, a wait of 8 seconds is drawn
    evenly from 4 to 8. So jobs that failed together, because something that all of them need was down, do not come
    back together. 0 is no chance at all; with 1 the wait may be anything from nothing to all of it. Jitter only ever
    shortens a wait: ``cap`` is the longest there is, and none is negative.
    """

    first: Delay = timedelta(seconds=1)
    factor: float = 2.0
    cap: Delay = timedelta(minutes=10)
    jitter: float = 0.5

    def __post_init__(self) -> None:
        _check(self.first, "first")
        _check(self.cap, "cap")
        if not self.factor >= 1:
            raise ConfigurationError(f"the factor of a retry policy must be 1 or more, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"the jitter of a retry policy must be a part from 0 to 1, not {self.jitter}")

    def delay(self, attempt: int, random: Random = _dice) -> timedelta:
        """The wait after that attempt."""
        cap = _seconds(self.cap)
        try:
            full = min(_seconds(self.first) * self.factor ** (attempt - 1), cap)
        except OverflowError:  # the thousandth power of a large factor
            full = cap
        return timedelta(seconds=full * (1 - self.jitter * random.random()))


Policy = Constant | Linear | Exponential
Rule = Callable[[int, BaseException], Delay | None]
"""Your own: gets the attempt that failed and its exception, answers the wait, or None to fail the job now."""

RetryPolicy = Policy | Rule

DEFAULT = Exponential()


def wait_after(policy: RetryPolicy, attempt: int, problem: BaseException, random: Random = _dice) -> timedelta | None:
    """How long to wait after that attempt, which ended with that exception; None means: fail the job now."""
    if isinstance(policy, Policy):
        return policy.delay(attempt, random)
    wait = policy(attempt, problem)
    return None if wait is None else span(wait)
