"""Calls that go together: each caller gets its own answers, and nothing of what became of the others."""

import asyncio
from collections.abc import Sequence

import pytest

from dibs.errors import StoreUnavailable
from dibs.stores.together import Together


class Ferry:
    """Takes letters across and answers in capitals. Each load leaves when it may."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self._may_leave = asyncio.Semaphore(0)

    def leave(self, loads: int = 9) -> None:
        for _ in range(loads):
            self._may_leave.release()

    async def __call__(self, letters: Sequence[str]) -> list[str]:
        load = "".join(letters)
        self.loads.append(load)
        await self._may_leave.acquire()
        if "!" in load:
            raise StoreUnavailable(load)
        if "?" in load:
            raise LookupError(load)
        return [letter.upper() for letter in letters]


@pytest.fixture
async def ferry() -> Ferry:
    return Ferry()


async def under_way(together: Together[str, str], *callers: str) -> list[asyncio.Task[list[str]]]:
    """Each has called, and nobody has an answer yet."""
    tasks = [asyncio.create_task(together(caller)) for caller in callers]
    await asyncio.sleep(0)
    return tasks


async def test_while_there_is_a_line_each_goes_alone(ferry: Ferry) -> None:
    calls = await under_way(Together(ferry, lines=3, most=9), "a", "b", "cd")
    assert ferry.loads == ["a", "b", "cd"]
    ferry.leave()
    assert await asyncio.gather(*calls) == [["A"], ["B"], ["C", "D"]]


async def test_who_comes_while_all_lines_are_taken_goes_with_the_others_in_the_next(ferry: Ferry) -> None:
    together = Together(ferry, lines=2, most=9)
    calls = await under_way(together, "a", "b", "c", "de", "f")
    assert ferry.loads == ["a", "b"]
    ferry.leave()
    assert await asyncio.gather(*calls) == [["A"], ["B"], ["C"], ["D", "E"], ["F"]]
    assert ferry.loads == ["a", "b", "cdef"]
    assert await together("g") == ["G"]


async def test_no_more_go_together_than_may(ferry: Ferry) -> None:
    calls = await under_way(Together(ferry, lines=1, most=2), *"abcdef")
    ferry.leave()
    assert await asyncio.gather(*calls) == [[letter] for letter in "ABCDEF"]
    assert ferry.loads == ["a", "bc", "de", "f"]


@pytest.mark.parametrize("bad", range(5))
async def test_nobody_fails_for_what_another_brought(ferry: Ferry, bad: int) -> None:
    together = Together(ferry, lines=1, most=9)
    letters = [*"bcdef"[:bad], "?", *"bcdef"[bad:]]
    calls = await under_way(together, "a", *letters)
    ferry.leave(20)
    _, *answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = answers.pop(bad)
    assert answers == [["B"], ["C"], ["D"], ["E"], ["F"]]
    assert isinstance(failed, LookupError)
    assert failed.args == ("?",)
    assert await together("g") == ["G"]


async def test_all_who_went_hear_that_the_store_is_away_and_the_next_try_again(ferry: Ferry) -> None:
    together = Together(ferry, lines=1, most=9)
    calls = await under_way(together, "a", "b", "!", "c")
    ferry.leave()
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert first == ["A"]
    assert [type(other) for other in others] == [StoreUnavailable] * 3
    assert ferry.loads == ["a", "b!c"]
    assert await together("d") == ["D"]


async def test_who_goes_away_while_waiting_is_not_sent(ferry: Ferry) -> None:
    calls = await under_way(Together(ferry, lines=1, most=9), "a", "b", "c")
    calls[1].cancel()
    ferry.leave()
    first, gone, last = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, type(gone), last) == (["A"], asyncio.CancelledError, ["C"])
    assert ferry.loads == ["a", "c"]


@pytest.mark.parametrize("whose", [0, 1])
async def test_who_goes_away_on_the_way_holds_up_nobody(ferry: Ferry, whose: int) -> None:
    together = Together(ferry, lines=1, most=9)
    calls = await under_way(together, "a", "b", "c")
    if whose == 1:
        ferry.leave(1)
        await calls[0]
        await asyncio.sleep(0)
        assert ferry.loads == ["a", "bc"]
    calls[whose].cancel()
    await asyncio.sleep(0)
    ferry.leave()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert type(answers.pop(whose)) is asyncio.CancelledError
    assert answers == ([["B"], ["C"]] if whose == 0 else [["A"], ["C"]])
    assert await together("d") == ["D"]


async def test_a_call_that_nobody_waits_for_any_more_is_given_up(ferry: Ferry) -> None:
    together = Together(ferry, lines=1, most=9)
    calls = await under_way(together, "a", "b", "c")
    ferry.leave(1)
    await calls[0]
    await asyncio.sleep(0)
    late = await under_way(together, "d")
    for call in calls[1:]:
        call.cancel()
    await asyncio.wait(calls)
    ferry.leave(1)
    assert await asyncio.gather(*late) == [["D"]]
    assert ferry.loads == ["a", "bc", "d"]


@pytest.mark.parametrize("begun", [True, False])
async def test_when_the_loop_ends_nobody_waits_for_ever(ferry: Ferry, begun: bool) -> None:
    together = Together(ferry, lines=1, most=9)
    calls = await under_way(together, "a", "b", "c")
    ferry.leave(1)
    await calls[0]
    if begun:
        await asyncio.sleep(0)
    assert ferry.loads == ["a", "bc"] if begun else ["a"]
    for group in together._under_way:
        group.task.cancel()  # as asyncio.run does
    answers = await asyncio.gather(*calls[1:], return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
    ferry.leave()
    assert await together("d") == ["D"]
