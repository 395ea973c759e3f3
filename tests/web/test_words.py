"""How values read on a page of the dashboard."""

from datetime import UTC, datetime, timedelta

import pytest

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
