"""What the words on a command line mean, and how times and addresses are shown."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from dibs.cli import kinds, show

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("500ms", 0.5),
        ("5m", 300),
        ("5 min", 300),
        ("1h30m", 5400),
        ("1H 30M", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
    ],
)
def test_a_span_is_read(text: str, seconds: float) -> None:
    assert kinds.Span().convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5x", "5m later", "m", "1e99d", "9" * 30 + "w"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s, 5m"):
        kinds.Span().convert(text, None, None)


def test_a_moment_is_a_time_with_a_zone_or_a_distance() -> None:
    exact = kinds.Moment().convert("2030-01-31T14:30+01:00", None, None)
    assert exact == datetime(2030, 1, 31, 13, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before - kinds.Moment().convert("2h", None, None) <= timedelta(hours=2)
    assert kinds.Moment(ahead=True).convert("+10m", None, None) >= before + timedelta(minutes=10)
    assert kinds.Moment(ahead=True).convert("now", None, None) >= before


def test_a_moment_without_a_zone_is_local_time() -> None:
    assert kinds.Moment().convert("2030-07-01T12:00", None, None) == datetime(2030, 7, 1, 12).astimezone(UTC)


def test_queues_come_in_order_or_with_weights() -> None:
    read = kinds.Queues().convert
    assert read("mail,default,mail", None, None) == ("mail", "default")
    assert read("mail=3, default=1", None, None) == {"mail": 3, "default": 1}
    for wrong in ("", "mail=3,default", "mail=0", "mail=x", "=3"):
        with pytest.raises(click.BadParameter):
            read(wrong, None, None)


def test_an_argument_is_json_or_text() -> None:
    read = kinds.Pair().convert
    assert read("n=7", None, None) == ("n", 7)
    assert read("to=ada@example.com", None, None) == ("to", "ada@example.com")
    assert read('zip="08000"', None, None) == ("zip", "08000")
    assert read("x=a=b", None, None) == ("x", "a=b")
    with pytest.raises(click.BadParameter):
        read("novalue", None, None)


@pytest.mark.parametrize(
    ("apart", "shown"),
    [
        (timedelta(0), "now"),
        (timedelta(milliseconds=-700), "700 ms ago"),
        (timedelta(seconds=-3.21), "3.2 s ago"),
        (timedelta(seconds=-119), "119 s ago"),
        (timedelta(minutes=-3), "3 min ago"),
        (timedelta(minutes=100), "in 100 min"),
        (timedelta(hours=5), "in 5 h"),
        (timedelta(days=-40), "40 d ago"),
    ],
    ids=str,
)
def test_times_are_shown_by_their_distance(apart: timedelta, shown: str) -> None:
    assert show.ago(NOW + apart, NOW) == shown


def test_the_exact_time_is_in_utc() -> None:
    assert show.utc(NOW + timedelta(microseconds=1_234)) == "2030-01-01 12:00:00.001 UTC"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////srv/jobs.db?synchronous=normal", "sqlite:////srv/jobs.db?synchronous=normal"),
        ("postgresql://ada:hunter2@db:5432/shop?pool=3", "postgresql://ada@db:5432/shop?pool=3"),
        ("postgresql://ada:hun@ter2@db/shop", "postgresql://ada@db/shop"),
        ("postgresql://ada:hun/ter2@db/shop", "postgresql://ada@db/shop"),
        ("postgresql://db/shop?user=ada&password=hunter2&sslpassword=x", "postgresql://db/shop?user=ada"),
        ("redis://:hunter2@cache/0", "redis://cache/0"),
        ("unix:///run/redis.sock?db=0", "unix:///run/redis.sock?db=0"),
        ("hunter2", "(unreadable)"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert show.safe_url(url) == shown


def test_control_characters_are_made_visible() -> None:
    assert show.printable("a\x1b[31m\nb\tc\x7f") == "a\\x1b[31m\nb\tc\\x7f"
    assert show.one_line(" a \n\tb ") == "a b"


def test_a_grid_leaves_columns_out_before_it_cuts_and_never_cuts_what_must_stay() -> None:
    grid = show.Grid("ID", "NAME…", "MORE…?", ">N?")
    grid.row("0123456789", "a name of some length", "more", "7")
    shown = {width: [column.header for column in grid.fit(width).columns] for width in (60, 30, 10)}
    assert shown[60] == ["ID", "NAME", "MORE", "N"]
    assert shown[30] == ["ID", "NAME", "MORE"]
    assert shown[10] == ["ID", "NAME"]
    assert grid.fit(10).columns[0].max_width == 10
