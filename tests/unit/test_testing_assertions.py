"""What a test can say about what was enqueued, and what it is told when that is not so."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from dibs import App
from dibs.testing import Harness, use_memory

app = App("postgresql://nobody@127.0.0.1:1/nowhere")  # nothing listens there


@dataclass
class User:
    name: str
    born: datetime


@app.task(queue="mail")
async def send_mail(to: str, subject: str = "Hello") -> None: ...


@app.task
def welcome(user: User) -> None: ...


@app.task
def move(queue: str, times: int = 1) -> None: ...


@app.task
def tag(name: str, **labels: str) -> None: ...


ADA = User("Ada", datetime(1815, 12, 10, tzinfo=UTC))


@pytest.fixture
def harness() -> Iterator[Harness]:
    with use_memory(app) as harness:
        yield harness


async def test_what_was_enqueued_is_listed_in_order_as_it_was_then(harness: Harness) -> None:
    await send_mail.enqueue("ada@example.org")
    await welcome.enqueue(ADA)
    await send_mail.options(queue="slow").enqueue("bob@example.org")
    await harness.drain()
    assert [job.task for job in harness.enqueued()] == ["send_mail", "welcome", "send_mail"]
    assert [job.args["to"] for job in harness.enqueued(send_mail)] == ["ada@example.org", "bob@example.org"]
    assert [job.args["to"] for job in harness.enqueued("send_mail", queue="slow")] == ["bob@example.org"]
    assert {job.state for job in harness.enqueued()} == {"queued"}
    assert {job.state for job in harness.jobs()} == {"succeeded"}


async def test_what_was_enqueued_can_be_forgotten_but_not_undone(harness: Harness) -> None:
    handle = await send_mail.enqueue("ada@example.org")
    harness.forget()
    harness.assert_not_enqueued()
    assert harness.job(handle).state == "queued"


async def test_a_job_that_was_there_already_counts_once(harness: Harness) -> None:
    for _ in range(2):
        await send_mail.options(key="ada").enqueue("ada@example.org")
    harness.assert_enqueued(send_mail, key="ada", times=1)


async def test_arguments_are_compared_as_the_handler_gets_them(harness: Harness) -> None:
    await welcome.enqueue(ADA)
    harness.assert_enqueued(welcome, user=ADA)
    harness.assert_enqueued(welcome, user={"name": "Ada", "born": ANY})
    harness.assert_enqueued(welcome, user=ANY)
    harness.assert_not_enqueued(welcome, user=User("Bob", ADA.born))


async def test_a_default_that_was_not_given_counts(harness: Harness) -> None:
    await send_mail.enqueue("ada@example.org")
    harness.assert_enqueued(send_mail, subject="Hello")
    harness.assert_not_enqueued(send_mail, subject="Bye")


async def test_options_are_compared_as_they_were_when_the_job_was_enqueued(harness: Harness) -> None:
    await send_mail.options(delay=3600, priority=-5, key="k", max_attempts=2, meta={"by": "me"}).enqueue("a")
    harness.advance(3600)
    await harness.drain()
    found = harness.assert_enqueued(
        send_mail, queue="mail", delay=3600, priority=-5, key="k", max_attempts=2, meta={"by": "me"}
    )
    assert [job.args for job in found] == [{"to": "a"}]
    harness.assert_enqueued(send_mail, delay=timedelta(hours=1), run_at=harness.now)
    harness.assert_not_enqueued(send_mail, delay=0)
    harness.assert_not_enqueued(send_mail, key=None)


async def test_a_parameter_that_is_called_like_an_option_is_named_in_args(harness: Harness) -> None:
    await move.enqueue("left", times=3)
    harness.assert_enqueued(move, args={"queue": "left", "times": 3}, queue="default", times=1)


async def test_extra_keywords_of_a_task_are_arguments_like_others(harness: Harness) -> None:
    await tag.enqueue("x", colour="red")
    harness.assert_enqueued(tag, name="x", colour="red")
    harness.assert_not_enqueued(tag, colour="blue")
    harness.assert_not_enqueued(tag, size="10")


async def test_a_task_of_another_program_is_named_by_a_string(harness: Harness) -> None:
    await app.send("theirs", {"n": 1}, queue="far")
    harness.assert_enqueued("theirs", n=1, queue="far")
    harness.assert_not_enqueued("theirs", n=2)
    await harness.drain()
    [job] = harness.jobs("theirs")
    assert job.state == "queued"


def test_a_parameter_that_the_task_does_not_have_is_an_error_and_no_success(harness: Harness) -> None:
    with pytest.raises(TypeError, match=r"send_mail has no parameter 'too'; it has to, subject"):
        harness.assert_not_enqueued(send_mail, too="ada@example.org")


def test_arguments_without_a_task_are_an_error(harness: Harness) -> None:
    with pytest.raises(TypeError, match="say which task"):
        harness.assert_not_enqueued(to="ada@example.org")


# --- what is said when it is not so -----------------------------------------------------------------------------


def test_nothing_enqueued_is_said_so(harness: Harness) -> None:
    with pytest.raises(AssertionError) as failure:
        harness.assert_enqueued(send_mail, to="ada@example.org")
    assert str(failure.value) == "a job of send_mail with to='ada@example.org' was expected, but nothing was enqueued"


async def test_what_is_different_about_each_job_of_the_task_is_shown_first(harness: Harness) -> None:
    await welcome.enqueue(ADA)
    await send_mail.options(delay=60, key="b").enqueue("bob@example.org")
    with pytest.raises(AssertionError) as failure:
        harness.assert_enqueued(send_mail, to="ada@example.org", queue="fast")
    lines = str(failure.value).splitlines()
    assert lines[:4] == [
        "a job of send_mail with to='ada@example.org', queue='fast' was expected, but enqueued were 2 jobs:",
        "  send_mail(to='bob@example.org', subject='Hello') on queue mail, due in 0:01:00, key 'b'",
        "    to: 'bob@example.org', expected 'ada@example.org'",
        "    queue: 'mail', expected 'fast'",
    ]
    assert lines[4].startswith("  welcome(user=User(name='Ada'")


async def test_a_long_value_is_shown_as_a_diff(harness: Harness) -> None:
    letter = [f"line {number} of a long letter" for number in range(5)]
    await send_mail.enqueue("ada", "\n".join(letter))
    letter[3] = "line 3 of another letter"
    with pytest.raises(AssertionError) as failure:
        harness.assert_enqueued(send_mail, subject="\n".join(letter))
    lines = [line.strip() for line in str(failure.value).splitlines()]
    assert "subject: (- expected, + enqueued)" in lines
    assert "- line 3 of another letter" in lines
    assert "+ line 3 of a long letter" in lines
    assert "line 4 of a long letter" in lines


async def test_too_many_or_too_few_are_counted(harness: Harness) -> None:
    for _ in range(3):
        await send_mail.enqueue("ada")
    with pytest.raises(AssertionError, match=r"with to='ada' was expected once and enqueued 3 times; enqueued were 3"):
        harness.assert_enqueued(send_mail, to="ada", times=1)
    with pytest.raises(AssertionError, match="was expected twice and enqueued not at all"):
        harness.assert_enqueued(send_mail, to="bob", times=2)


async def test_what_should_not_have_been_enqueued_is_shown(harness: Harness) -> None:
    await send_mail.enqueue("ada")
    with pytest.raises(AssertionError) as failure:
        harness.assert_not_enqueued()
    assert str(failure.value).splitlines() == [
        "no job was expected, but enqueued was 1 job:",
        "  send_mail(to='ada', subject='Hello') on queue mail",
    ]


async def test_a_long_list_is_cut(harness: Harness) -> None:
    await send_mail.enqueue_many((f"{number}@example.org",) for number in range(30))
    with pytest.raises(AssertionError, match=r"(?s)were 30 jobs:.*and 10 more$"):
        harness.assert_enqueued(welcome)
