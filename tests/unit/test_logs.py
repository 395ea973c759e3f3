"""Logs for programs: one JSON object a line, that says whose job it is about, and no secret."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from dibs.cli.logs import LEVELS, JsonLines, configure
from dibs.job import Filter
from dibs.redaction import Redaction
from dibs.telemetry import OpenTelemetry
from tests.unit.working import Shop

log = logging.getLogger("shop")


class Log:
    """What was logged, line by line."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.lines = JsonLines()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(self.lines)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def said() -> Iterator[Log]:
    made, root = Log(), logging.getLogger()
    root.addHandler(made.handler)
    log.setLevel(logging.INFO)
    yield made
    root.removeHandler(made.handler)


async def test_a_line_of_a_handler_says_whose_it_is_also_from_a_thread(said: Log) -> None:
    shop = Shop()

    async def send(card: str) -> None:
        log.info("sending")
        await asyncio.to_thread(log.info, "sent")

    job = await shop.enqueue(shop.task(send), "4111-1111")
    await shop.drain(name="one")
    lines = [line for line in said.read() if line["logger"] == "shop"]
    assert [line["message"] for line in lines] == ["sending", "sent"]
    for line in lines:
        assert line.pop("time").endswith("+00:00")
        assert line | {"message": ""} == {
            "level": "info",
            "logger": "shop",
            "message": "",
            "job": str(job),
            "task": "send",
            "queue": "default",
            "attempt": 1,
            "worker": "one",
        }
    assert "4111" not in said.stream.getvalue()


async def test_a_line_in_a_span_names_its_trace(said: Log) -> None:
    shop, provider = Shop(), TracerProvider(shutdown_on_exit=False)
    shop.middleware(OpenTelemetry(provider).attempt)

    async def send() -> None:
        log.info("sending")

    await shop.run_one(shop.task(send))
    [line] = [line for line in said.read() if line["logger"] == "shop"]
    assert (len(line["trace_id"]), len(line["span_id"])) == (32, 16)


async def test_a_line_of_the_worker_about_a_job_names_it(said: Log) -> None:
    shop = Shop()

    async def send() -> None:
        await shop.store.cancel(Filter(ids=(job,)), force=True)

    job = await shop.enqueue(shop.task(send))
    await shop.drain()
    [line] = [line for line in said.read() if "lease is lost" in line["message"]]
    assert (line["job"], line["task"], line["attempt"], line["level"]) == (str(job), "send", 1, "warning")


def test_secrets_are_not_written(said: Log) -> None:
    about = {"api_key": "hush", "order": {"Password": "hush", "number": 7}, "db": "postgresql://me:hush@db/shop"}
    log.info("connected to %s", "redis://user:hush@cache:6379/0", extra=about)
    try:
        raise ValueError("https://anna:hush@example.org/ did not answer")
    except ValueError:
        log.exception("so it goes")
    connected, failed = said.read()
    assert connected["message"] == "connected to redis://user:•••@cache:6379/0"
    assert connected["order"] == {"Password": "•••", "number": 7}
    assert "ValueError" in failed["traceback"]
    assert "hush" not in said.stream.getvalue()


def test_what_the_app_marks_is_not_written_either(said: Log) -> None:
    said.lines.redaction = Redaction.of(["iban"], {"pay": ["card"]})
    log.info("paid", extra={"IBAN": "hush", "order": {"card": "hush", "number": 7}})
    [line] = said.read()
    assert (line["IBAN"], line["order"]) == ("•••", {"card": "•••", "number": 7})


@pytest.mark.parametrize("level", LEVELS)
def test_what_handlers_say_follows_the_level_and_libraries_say_no_more_than_usual(level: str) -> None:
    root = logging.getLogger()
    names = ("", "dibs", "asyncio", "httpx")
    before, levels = list(root.handlers), {name: logging.getLogger(name).level for name in names}
    try:
        configure(level, as_json=True)
        wanted = getattr(logging, level.upper())
        assert logging.getLogger("bakery").isEnabledFor(logging.INFO) is (wanted <= logging.INFO)
        assert logging.getLogger("dibs.worker").getEffectiveLevel() == wanted
        assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)
    finally:
        root.handlers[:] = before
        for name, was in levels.items():
            logging.getLogger(name).setLevel(was)


async def test_what_fails_is_told_in_one_line_without_what_the_error_says(said: Log) -> None:
    shop = Shop()

    @shop.task(max_attempts=1)
    async def charge() -> None:
        raise ValueError("card 4111-1111 was refused")

    logging.getLogger("dibs.worker").setLevel(logging.INFO)
    await shop.enqueue(charge)
    await shop.drain()
    [line] = [line for line in said.read() if "failed in attempt" in line["message"]]
    assert (line["level"], line["task"]) == ("warning", "charge")
    assert line["message"].endswith("(charge) failed in attempt 1 of 1: ValueError")
    assert "4111" not in said.stream.getvalue()


def test_a_line_is_one_line_and_knows_its_worker(said: Log) -> None:
    said.lines.worker = "one"
    log.info("first\nsecond", extra={"what": object()})
    assert said.stream.getvalue().count("\n") == 1
    assert said.read()[0]["worker"] == "one"
