"""How values read on a page of the dashboard."""

from datetime import UTC, datetime, timedelta

import pytest

from dibs.errors import Refused
from dibs.http.dashboard import words

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "now"),
        (-0.4, "now"),
        (-1, "1 s ago"),
        (-59, "59 s ago"),
        (-61, "1 min ago"),
        (-7300, "2 h ago"),
        (-200_000, "2 d ago"),
        (90, "in 1 min"),
        (86_400, "in 1 d"),
    ],
)
def test_moments_are_told_by_their_distance(seconds: float, told: str) -> None:
    assert words.ago(NOON + timedelta(seconds=seconds), NOON) == told


def test_what_is_not_there_is_a_dash() -> None:
    assert {words.ago(None, NOON), words.clock(None), words.span(None), words.number(None), words.share(None)} == {"–"}


def test_long_errors_are_cut_to_a_line() -> None:
    assert words.line("ValueError: no\n  at home") == "ValueError: no"
    assert len(words.line("x" * 1000)) == 160


def test_json_keeps_its_letters() -> None:
    assert words.pretty({"name": "Zoë"}) == '{\n  "name": "Zoë"\n}'


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("10min", 600), ("10 m", 600), ("2h", 7200), ("1.5d", 129_600), ("2026-03-01T12:00:07", 7)],
)
def test_moments_can_be_typed(text: str, seconds: float) -> None:
    assert words.moment_of(text, NOON, past=False) == NOON + timedelta(seconds=seconds)


def test_a_span_can_mean_the_past() -> None:
    assert words.moment_of("2h", NOON, past=True) == NOON - timedelta(hours=2)


@pytest.mark.parametrize("text", ["", "soon", "2 fortnights", "9" * 400 + "d", "2026-13-01", "\x00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no time"):
        words.moment_of(text, NOON, past=False)
