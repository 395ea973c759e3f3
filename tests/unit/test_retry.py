"""How long a job waits before its next attempt."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import ConfigurationError
from dibs.retry import DEFAULT, Constant, Exponential, Linear, wait_after

SECOND = timedelta(seconds=1)
ATTEMPTS = st.integers(1, 1000)


class Dice(Random):
    """Always throws the same."""

    def __init__(self, throw: float) -> None:
        super().__init__()
        self.throw = throw

    def random(self) -> float:
        return self.throw


def waits(policy: Constant | Linear | Exponential, count: int, throw: float = 0.0) -> list[float]:
    return [policy.delay(attempt, Dice(throw)).total_seconds() for attempt in range(1, count + 1)]


def test_a_constant_policy_always_waits_the_same() -> None:
    assert waits(Constant(5), 3) == [5, 5, 5]
    assert waits(Constant(timedelta(minutes=1)), 2) == [60, 60]


def test_a_linear_policy_waits_a_step_longer_each_time_up_to_its_cap() -> None:
    assert waits(Linear(10, cap=25), 4) == [10, 20, 25, 25]


def test_an_exponential_policy_doubles_up_to_its_cap() -> None:
    assert waits(Exponential(1, cap=10), 6) == [1, 2, 4, 8, 10, 10]
    assert waits(Exponential(1, factor=3, cap=100), 4) == [1, 3, 9, 27]


def test_jitter_takes_up_to_its_part_off_the_wait() -> None:
    assert waits(Exponential(8, jitter=0.5), 1, throw=0.0) == [8]
    assert waits(Exponential(8, jitter=0.5), 1, throw=0.5) == [6]
    assert waits(Exponential(8, jitter=1), 1, throw=0.75) == [2]
    assert waits(Exponential(8, jitter=0), 1, throw=0.9) == [8]


@given(ATTEMPTS, st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_no_exponential_wait_is_negative_or_longer_than_its_cap(
    attempt: int, factor: float, jitter: float, throw: float
) -> None:
    policy = Exponential(1, factor=factor, cap=3600, jitter=jitter)
    assert timedelta(0) <= policy.delay(attempt, Dice(throw)) <= timedelta(hours=1)


@given(ATTEMPTS)
def test_the_default_waits_from_half_a_second_to_ten_minutes(attempt: int) -> None:
    assert SECOND / 2 <= DEFAULT.delay(attempt, Random(attempt)) <= timedelta(minutes=10)


def test_a_function_decides_by_the_attempt_and_the_exception() -> None:
    def rule(attempt: int, problem: BaseException) -> float | None:
        return None if isinstance(problem, KeyError) else attempt * 2

    assert wait_after(rule, 3, ValueError()) == timedelta(seconds=6)
    assert wait_after(rule, 3, KeyError()) is None


def test_a_policy_answers_through_the_same_door() -> None:
    assert wait_after(Constant(5), 1, ValueError()) == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Constant(-1), "wait"),
        (lambda: Constant("5"), "wait"),  # type: ignore[arg-type]
        (lambda: Constant(float("nan")), "wait"),
        (lambda: Constant(float("inf")), "wait"),
        (lambda: Linear(-1), "step"),
        (lambda: Linear(1, cap=-1), "cap"),
        (lambda: Exponential(-SECOND), "first"),
        (lambda: Exponential(cap=timedelta(seconds=-1)), "cap"),
        (lambda: Exponential(factor=0.5), "factor"),
        (lambda: Exponential(jitter=1.5), "jitter"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(make: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        make()
