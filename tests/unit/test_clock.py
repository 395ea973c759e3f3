"""Instants as whole microseconds."""

from datetime import UTC, datetime

from dibs.clock import from_micros, micros_of, system_clock, to_micros


def test_the_system_clock_tells_the_same_in_microseconds() -> None:
    micros = micros_of(system_clock)
    for _ in range(1_000):
        before, between, after = to_micros(system_clock()), micros(), to_micros(system_clock())
        # One of them may round where the other cuts off.
        assert before - 1 <= between <= after + 1


def test_any_other_clock_is_asked_each_time() -> None:
    moments = iter([datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)])
    micros = micros_of(lambda: next(moments))
    assert [from_micros(micros()), micros()] == [datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC), 0]
