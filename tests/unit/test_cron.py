"""Cron expressions: which are taken, what they mean, and what they do when clocks change."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dibs import Refused, cron

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

# The days on which clocks change: back, forward. Kolkata's do not.
CHANGES = {
    "Europe/Berlin": (date(2026, 10, 25), date(2026, 3, 29)),
    "America/New_York": (date(2026, 11, 1), date(2026, 3, 8)),
    "Australia/Lord_Howe": (date(2026, 4, 5), date(2026, 10, 4)),
    "Africa/Casablanca": (date(2026, 2, 15), date(2026, 3, 22)),
    # At midnight, where a day begins with a gap:
    "Africa/Cairo": (date(2026, 10, 30), date(2026, 4, 24)),
    "America/Santiago": (date(2026, 4, 5), date(2026, 9, 6)),
    # Two hours:
    "Antarctica/Troll": (date(2026, 10, 25), date(2026, 3, 29)),
}
ALL_CHANGES = [(zone, day) for zone, days in CHANGES.items() for day in days]


def midnight(zone: str, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def of_day(expression: str, zone: str, day: date) -> list[str]:
    """The moments of one local day, as clocks there show them, with the offset."""
    found = cron.after(expression, zone, midnight(zone, day) - timedelta(microseconds=1))
    end = midnight(zone, day + DAY)
    return [f"{one.astimezone(ZoneInfo(zone)):%H:%M%z}" for one in takewhile(lambda one: one < end, found)]


def first(expression: str, count: int, start: datetime) -> list[str]:
    return [f"{one:%Y-%m-%d %H:%M}" for one in islice(cron.after(expression, "UTC", start), count)]


# --- what an expression means ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["2024-01-01 02:30", "2024-01-02 02:30"]),
        ("0 9 * * MON-FRI", ["2024-01-01 09:00", "2024-01-02 09:00"]),
        ("0 0 1,15 * *", ["2024-01-15 00:00", "2024-02-01 00:00"]),
        ("*/20 5 * * *", ["2024-01-01 05:00", "2024-01-01 05:20", "2024-01-01 05:40", "2024-01-02 05:00"]),
        ("0 0 13 * FRI", ["2024-01-05 00:00", "2024-01-12 00:00", "2024-01-13 00:00"]),
        ("0 12 * jan,jul sun", ["2024-01-07 12:00", "2024-01-14 12:00"]),
        ("0 0 * * MON#1", ["2024-02-05 00:00", "2024-03-04 00:00"]),
        ("0 0 * * 5L", ["2024-01-26 00:00", "2024-02-23 00:00"]),
        ("0 0 LW * *", ["2024-01-31 00:00", "2024-02-29 00:00", "2024-03-29 00:00"]),
    ],
)
def test_an_expression_means_what_it_means_in_cron(expression: str, expected: list[str]) -> None:
    assert first(expression, len(expected), datetime(2024, 1, 1, tzinfo=UTC)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("@hourly", "2024-05-15 13:00"),
        ("@daily", "2024-05-16 00:00"),
        ("@midnight", "2024-05-16 00:00"),
        ("@weekly", "2024-05-19 00:00"),
        ("@monthly", "2024-06-01 00:00"),
        ("@yearly", "2025-01-01 00:00"),
        ("@Annually", "2025-01-01 00:00"),
    ],
)
def test_a_name_stands_for_an_expression(name: str, expected: str) -> None:
    assert cron.check(name) == name
    assert first(name, 1, datetime(2024, 5, 15, 12, 30, tzinfo=UTC)) == [expected]


def test_the_29th_of_february_comes_in_leap_years_only() -> None:
    found = first("0 0 29 2 *", 4, datetime(2095, 1, 1, tzinfo=UTC))
    assert found == ["2096-02-29 00:00", "2104-02-29 00:00", "2108-02-29 00:00", "2112-02-29 00:00"]


def test_the_last_day_of_the_month_comes_in_every_month() -> None:
    found = first("0 0 L * *", 4, datetime(2026, 1, 1, tzinfo=UTC))
    assert found == ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00", "2026-04-30 00:00"]


def test_the_31st_is_left_out_in_shorter_months() -> None:
    found = first("0 0 31 * *", 3, datetime(2026, 2, 1, tzinfo=UTC))
    assert found == ["2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"]


def test_the_moment_itself_is_not_after_it_and_the_microsecond_before_is() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert next(cron.after("0 12 * * *", "UTC", noon)) == noon + DAY
    assert next(cron.after("0 12 * * *", "UTC", noon - timedelta(microseconds=1))) == noon


def test_the_end_of_time_ends_the_moments_without_an_error() -> None:
    assert list(cron.after("0 0 1 1 *", "UTC", datetime(9998, 1, 1, tzinfo=UTC))) == [datetime(9999, 1, 1, tzinfo=UTC)]


# --- fixed times when clocks change ----------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "day", "time", "runs"),
    [
        ("Europe/Berlin", date(2026, 3, 29), "30 2", "03:00+0200"),
        ("America/New_York", date(2026, 3, 8), "30 2", "03:00-0400"),
        ("Australia/Lord_Howe", date(2026, 10, 4), "15 2", "02:30+1100"),
        ("Africa/Casablanca", date(2026, 3, 22), "30 2", "03:00+0100"),
        ("Africa/Cairo", date(2026, 4, 24), "30 0", "01:00+0300"),
    ],
)
def test_a_fixed_time_in_a_gap_runs_once_as_the_gap_ends(zone: str, day: date, time: str, runs: str) -> None:
    assert of_day(f"{time} * * *", zone, day) == [runs]


@pytest.mark.parametrize(
    ("zone", "day", "time", "runs"),
    [
        ("Europe/Berlin", date(2026, 10, 25), "30 2", "02:30+0200"),
        ("America/New_York", date(2026, 11, 1), "30 1", "01:30-0400"),
        ("Australia/Lord_Howe", date(2026, 4, 5), "45 1", "01:45+1100"),
        ("Africa/Casablanca", date(2026, 2, 15), "30 2", "02:30+0100"),
        ("Africa/Cairo", date(2026, 10, 29), "30 23", "23:30+0300"),
    ],
)
def test_a_fixed_time_in_a_fold_runs_once_the_first_time(zone: str, day: date, time: str, runs: str) -> None:
    assert of_day(f"{time} * * *", zone, day) == [runs]


def test_a_fixed_time_runs_once_on_every_day_where_clocks_never_change() -> None:
    days = [date(2026, 1, 1) + number * DAY for number in range(365)]
    assert {tuple(of_day("30 2 * * *", "Asia/Kolkata", day)) for day in days} == {("02:30+0530",)}


def test_several_times_in_one_gap_run_once_together() -> None:
    assert of_day("0-59/10 2 * * *", "Europe/Berlin", date(2026, 3, 29)) == ["03:00+0200"]
    assert of_day("0 2,3 * * *", "Europe/Berlin", date(2026, 3, 29)) == ["03:00+0200"]


@given(
    change=st.sampled_from(ALL_CHANGES),
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
)
def test_a_daily_time_runs_once_between_two_noons_whatever_the_clocks_do(
    change: tuple[str, date], minute: int, hour: int
) -> None:
    zone, day = change
    noon = midnight(zone, day - DAY) + timedelta(hours=12)
    found = list(islice(cron.after(f"{minute} {hour} * * *", zone, noon - DAY), 5))
    dates = [one.astimezone(ZoneInfo(zone)).date() for one in found]
    assert [after - before for before, after in pairwise(dates)] == [DAY] * 4


# --- times that follow the wall ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "back", "forward"),
    [
        ("Europe/Berlin", 25, 23),
        ("America/New_York", 25, 23),
        ("Africa/Casablanca", 25, 23),
        ("Africa/Cairo", 24, 23),  # the hour that comes twice belongs to the day before
        ("Antarctica/Troll", 26, 22),
        ("Australia/Lord_Howe", 24, 23),  # of the half hour 01:30 to 02:00, no full hour comes twice
    ],
)
def test_an_hourly_one_runs_once_for_every_hour_that_clocks_show(zone: str, back: int, forward: int) -> None:
    found = [len(of_day("0 * * * *", zone, day)) for day in CHANGES[zone]]
    assert found == [back, forward]
    assert len(of_day("@hourly", "Asia/Kolkata", CHANGES[zone][0])) == 24


def test_half_past_comes_twice_in_the_half_hour_that_comes_twice() -> None:
    assert of_day("30 * * * *", "Australia/Lord_Howe", date(2026, 4, 5))[:4] == [
        "00:30+1100",
        "01:30+1100",
        "01:30+1030",
        "02:30+1030",
    ]


def test_a_star_runs_twice_in_a_fold_in_order_and_not_in_a_gap() -> None:
    assert of_day("*/30 2 * * *", "Europe/Berlin", date(2026, 10, 25)) == [
        "02:00+0200",
        "02:30+0200",
        "02:00+0100",
        "02:30+0100",
    ]
    assert of_day("*/30 2 * * *", "Europe/Berlin", date(2026, 3, 29)) == []


def shown(minutes: set[int], hours: set[int], zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """The plain meaning of a star, minute by minute."""
    for number in range((end - start) // MINUTE):
        wall = (start + number * MINUTE).astimezone(ZoneInfo(zone))
        if wall.minute in minutes and wall.hour in hours:
            yield wall.astimezone(UTC)


@settings(max_examples=200, deadline=None)
@given(
    change=st.sampled_from(ALL_CHANGES),
    step=st.sampled_from([1, 7, 10, 15, 30]),
    hours=st.sets(st.integers(0, 23), min_size=1),
    begin=st.integers(-30 * 60, 30 * 60),
)
@example(change=("Australia/Lord_Howe", date(2026, 4, 5)), step=10, hours={2}, begin=-60)
@example(change=("Africa/Cairo", date(2026, 4, 24)), step=15, hours={0, 1}, begin=-60)
def test_a_star_is_every_minute_that_clocks_show_wherever_one_starts(
    change: tuple[str, date], step: int, hours: set[int], begin: int
) -> None:
    zone, day = change
    start = midnight(zone, day) + begin * MINUTE
    end = midnight(zone, day) + 2 * DAY
    expression = f"*/{step} {','.join(map(str, sorted(hours)))} * * *"
    found = takewhile(lambda one: one < end, cron.after(expression, zone, start - timedelta(microseconds=1)))
    assert list(found) == list(shown(set(range(0, 60, step)), hours, zone, start, end))


@settings(max_examples=200, deadline=None)
@given(
    change=st.sampled_from(ALL_CHANGES),
    expression=st.sampled_from(
        [
            "30 2 * * *",
            "*/10 * * * *",
            "0 */2 * * *",
            "15,45 0-23 * * *",
            "*/15 0 {day} {month} *",
            "0 0 * * SUN",
            "0 * * * *",
        ]
    ),
    seconds=st.integers(-30 * 3600, 30 * 3600),
)
def test_a_later_start_only_leaves_out_the_earlier_moments(
    change: tuple[str, date], expression: str, seconds: int
) -> None:
    zone, day = change
    expression = expression.format(day=day.day, month=day.month)
    begin, end = midnight(zone, day) - 2 * DAY, midnight(zone, day) + 3 * DAY
    start = midnight(zone, day) + timedelta(seconds=seconds)
    whole = list(takewhile(lambda one: one < end, cron.after(expression, zone, begin)))
    assert whole == sorted(set(whole))
    late = list(takewhile(lambda one: one < end, cron.after(expression, zone, start)))
    assert late == [one for one in whole if one > start]


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 30 2 * * *", "has 6 fields"),
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * MOON", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 */20 * 1L", "never comes"),
        ("@reboot", "no known name"),
        ("1\n2 * *", "has 4 fields"),
    ],
)
def test_a_bad_expression_is_refused_with_advice_on_one_line(expression: str, advice: str) -> None:
    with pytest.raises(Refused, match=advice) as refusal:
        cron.check(expression)
    assert "\n" not in str(refusal.value)


@given(st.text(alphabet="0123456789*/,-#LWMONTUE @", max_size=30))
def test_any_text_is_either_taken_and_has_a_moment_or_refused(text: str) -> None:
    try:
        cron.check(text)
    except Refused:
        return
    assert next(cron.after(text, "Europe/Berlin", datetime(2026, 1, 1, tzinfo=UTC)), None) is not None


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "Europe", "../etc/passwd", "/etc/localtime", "localtime", "right/UTC", "Ber\0lin", "ü"]
)
def test_an_unknown_zone_is_refused_and_so_is_one_that_depends_on_the_machine(zone: str) -> None:
    with pytest.raises(Refused, match="is no known time zone: use a name such as"):
        cron.check_zone(zone)


def test_zones_are_known_on_a_machine_without_a_database_of_its_own() -> None:
    code = "from dibs import cron; print(cron.check_zone('Australia/Lord_Howe'))"
    environment = os.environ | {"PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("Australia/Lord_Howe", "")
