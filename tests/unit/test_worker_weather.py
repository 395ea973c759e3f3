"""What a worker says about a store that is away."""

import logging

import pytest

from dibs.errors import StoreUnavailable
from dibs.worker.outage import Weather

AWAY = StoreUnavailable("the server at example:5432 cannot be reached: connection refused")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(": ")[2][:17] for record in caplog.records]


def test_an_outage_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    weather = Weather("w1")
    for part in ("claims", "heartbeats", "claims", "settles"):
        weather.failed(part, AWAY)
    weather.fine("settles")
    assert lines(caplog) == ["the store is away", "the store is back"]
    for part in ("heartbeats", "claims"):
        weather.fine(part)
    assert lines(caplog) == ["the store is away", "the store is back"]


def test_an_answer_from_before_the_outage_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    weather = Weather("w1")
    weather.failed("claims", AWAY)
    weather.fine("waits")
    assert weather.down
    assert lines(caplog) == ["the store is away"]


def test_what_is_no_outage_is_logged_as_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    Weather("w1").failed("claims", ZeroDivisionError("a fault of ours"))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "ZeroDivisionError" in caplog.text
