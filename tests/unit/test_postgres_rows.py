"""Rows of PostgreSQL as values: what the driver leaves as bytes."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from dibs.stores.postgres import rows

_FIRST = datetime(2000, 1, 1, tzinfo=UTC)


def sent(moment: datetime) -> bytes:
    """As the server sends a timestamptz: microseconds since the year 2000, eight bytes."""
    return ((moment - _FIRST) // timedelta(microseconds=1)).to_bytes(8, "big", signed=True)


def claimed(run_at: datetime, until: datetime) -> tuple[object, ...]:
    times = sent(run_at), sent(run_at)
    return (uuid4(), 1, "send", "[]", 0, *times, 1, 3, sent(until), None, None, None, "{}", None)


@pytest.mark.parametrize("year", [1970, 1999, 2000, 2026, 9998])
def test_times_of_a_claim_are_read_to_the_microsecond(year: int) -> None:
    run_at, until = datetime(year, 7, 1, 12, 30, 59, 999_999, UTC), datetime(year, 12, 31, 23, 59, 59, 1, UTC)
    claim = rows.claim(claimed(run_at, until), "default", "w1")
    assert (claim.run_at, claim.created_at, claim.locked_until) == (run_at, run_at, until)
    assert claim.run_at.tzinfo is UTC


def test_only_so_many_times_are_remembered() -> None:
    later = [_FIRST + timedelta(seconds=number) for number in range(5_000)]
    claims = [rows.claim(claimed(moment, moment), "default", "w1") for moment in later]
    assert [claim.run_at for claim in claims] == later
    assert len(rows._moments) <= rows._MOMENTS_KEPT
