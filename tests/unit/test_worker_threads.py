"""Plain functions run in threads: a thread for each that takes its time, one for all that are brief."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from dibs.worker.threads import BRIEF, LATE, SOON, TOGETHER, Pace, Threads
from tests.unit.working import Shop

LONG = 20
"""Seconds after which a test is given up."""


def brief() -> Pace:
    """That of a function whose last call was brief."""
    pace = Pace()
    pace.took(BRIEF / 2, now=0)
    assert pace.brief
    return pace


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads("test")
    yield made
    made.close()


async def all_of(calls: "list[asyncio.Future[Any]]") -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), LONG)


async def test_each_call_has_a_thread_while_nobody_knows_how_long_it_takes(threads: Threads) -> None:
    meeting = threading.Barrier(5)
    pace = Pace()
    places = await all_of([threads.call(partial(meeting.wait, LONG), pace) for _ in range(5)])
    assert sorted(places) == list(range(5))


async def test_brief_calls_share_a_thread_and_are_made_in_turn(threads: Threads) -> None:
    order: list[int] = []

    def note(number: int) -> int:
        order.append(number)
        return threading.get_ident()

    pace, many = brief(), range(3 * TOGETHER + 7)
    idents = await all_of([threads.call(partial(note, number), pace) for number in many])
    assert len(set(idents)) == 1
    assert order == list(many)
    assert threads.count == 0


async def test_a_call_in_line_gets_through_what_it_raised(threads: Threads) -> None:
    def fail(problem: BaseException) -> None:
        raise problem

    problems = [KeyError("gone"), SystemExit(3), StopIteration(1), KeyboardInterrupt()]
    pace = brief()
    calls = [threads.call(partial(fail, problem), pace) for problem in problems]
    last = threads.call(lambda: "still here", pace)
    await asyncio.wait([*calls, last], timeout=LONG)
    assert [repr(call.exception()) for call in calls] == [
        "KeyError('gone')",
        "SystemExit(3)",
        "RuntimeError('the handler raised StopIteration(1)')",
        "KeyboardInterrupt()",
    ]
    assert last.result() == "still here"


async def test_nobody_waits_for_one_that_is_not_brief_after_all(threads: Threads) -> None:
    pace, other, over = brief(), brief(), threading.Event()
    first = [threads.call(partial(int, number), pace) for number in range(3)]
    slow = threads.call(partial(over.wait, LONG), pace)
    behind = [threads.call(partial(int, number), other) for number in range(3, 6)]
    assert await all_of([*first, *behind]) == list(range(6))
    assert not slow.done()
    assert (pace.brief, other.brief) == (False, True)
    # While it runs, calls that are brief go to others at once.
    assert await all_of([threads.call(partial(int, 6), other)]) == [6]
    over.set()
    assert await all_of([slow]) == [True]
    before = threads.count
    assert await all_of([threads.call(partial(int, number), other) for number in range(100)]) == list(range(100))
    assert threads.count == before


async def test_what_is_done_before_one_that_takes_its_time_is_told_meanwhile(threads: Threads) -> None:
    pace, over = brief(), threading.Event()
    done = threads.call(partial(int, 1), pace)
    slow = threads.call(partial(over.wait, LONG), pace)
    last = threads.call(partial(int, 2), pace)
    assert await all_of([done]) == [1]
    over.set()
    assert await all_of([slow, last]) == [True, 2]


async def test_a_call_that_nobody_waits_for_any_more_is_not_made(threads: Threads) -> None:
    pace, begun, over, made = brief(), threading.Event(), threading.Event(), list[int]()

    def hold() -> None:
        begun.set()
        over.wait(LONG)

    held = threads.call(hold, pace)
    unwanted = threads.call(partial(made.append, 1), pace)
    begun.wait(LONG)
    unwanted.cancel()
    over.set()
    await all_of([held, threads.call(partial(made.append, 2), pace)])
    assert made == [2]


async def test_those_before_one_that_nobody_waits_for_are_told_all_the_same(threads: Threads) -> None:
    pace, begun, over = brief(), threading.Event(), threading.Event()

    def hold() -> int:
        begun.set()
        over.wait(LONG)
        return 1

    calls = [threads.call(hold, pace), threads.call(partial(int, 2), pace)]
    unwanted = threads.call(partial(int, 3), pace)
    begun.wait(LONG)
    unwanted.cancel()
    over.set()
    assert await all_of(calls) == [1, 2]


async def test_what_is_in_line_when_it_is_closed_is_done_and_told() -> None:
    threads, pace, over = Threads("closing"), brief(), threading.Event()
    calls = [threads.call(partial(over.wait, LONG), pace), threads.call(partial(int, 2), pace)]
    threads.close()
    over.set()
    assert await all_of(calls) == [True, 2]


async def test_all_threads_end_when_it_is_closed() -> None:
    threads = Threads("closing")
    await all_of([threads.call(partial(int, 1), Pace()), threads.call(partial(int, 2), brief())])
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("closing-")]
    assert len(mine) == 2
    threads.close()
    for thread in mine:
        await asyncio.to_thread(thread.join, LONG)
    assert not any(thread.is_alive() for thread in mine)


def until_brief(pace: Pace, now: float) -> float:
    """Seconds for which it is doubted, however brief its calls."""
    return next(step for step in count(0, SOON / 8) if brief_at(pace, now + step))


def brief_at(pace: Pace, now: float) -> bool:
    pace.took(BRIEF / 2, now)
    return pace.brief


def test_a_pace_is_learnt_from_one_call_and_doubted_longer_each_time() -> None:
    pace, now = Pace(), 100.0
    pace.took(BRIEF * 2, now)
    assert pace.brief is False
    pauses: list[float] = []
    for _ in range(12):
        pace.took(BRIEF / 2, now)
        pace.held_up(now)
        pace.held_up(now)  # nobody is blamed twice for the same
        pauses.append(until_brief(pace, now) / SOON)
        now += pauses[-1] * SOON
    assert pauses[:4] == pytest.approx([2, 4, 8, 16], abs=0.2)
    assert pauses[-1] == pytest.approx(LATE / SOON, abs=0.2)


def test_one_that_was_brief_for_long_is_doubted_for_a_moment_only() -> None:
    pace = Pace()
    pace.took(0, now=0)
    pace.held_up(now=0)
    pace.took(0, now=2 * SOON)
    pace.held_up(now=1_000)
    pace.took(0, now=1_000 + SOON / 2)
    assert not pace.brief
    pace.took(0, now=1_000 + SOON)
    assert pace.brief


async def test_a_worker_runs_brief_plain_handlers_in_one_thread() -> None:
    shop, seen = Shop(), list[tuple[int, str]]()

    @shop.task
    def note(number: int) -> int:
        seen.append((number, threading.current_thread().name))
        return number

    jobs = [await shop.enqueue(note, number) for number in range(300)]
    await shop.drain(concurrency=20)
    assert sorted(number for number, _ in seen) == list(range(300))
    assert [(await shop.job(each)).result for each in jobs] == list(range(300))
    assert any(name.endswith("-0") for _, name in seen)
