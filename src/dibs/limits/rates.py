"""The arithmetic of a rate, in whole microseconds: every store counts like this.

Of each bucket a store keeps one number, ``full_at``: when it would be full again if no more jobs started; 0 for one
that was never used. Each start puts that off by ``rate.apart``, the time between two starts at that rate.
"""

from dibs.scope import Rate


def opens_at(rate: Rate, full_at: int) -> int:
    """From when on another job may start: as soon as all but one of the starts that the bucket holds are owed."""
    return full_at - (rate.count - 1) * rate.apart


def after_start(rate: Rate, full_at: int, now: int) -> int:
    """What ``full_at`` becomes when a job starts."""
    return max(full_at, now) + rate.apart
