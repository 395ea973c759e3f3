"""A look at the store that is shared: cheap ones are always fresh, expensive ones may be some seconds old."""

import asyncio
from types import SimpleNamespace

import pytest

from dibs.clock import system_clock
from dibs.errors import StoreUnavailable
from dibs.http.service.counting import Glance


class Watch:
    """A clock that tests own, and a look that takes as long as they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.takes, self.looks = 1_000.0, 0.0, 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False
        monkeypatch.setattr("dibs.http.service.counting.time", SimpleNamespace(monotonic=lambda: self.now))

    async def look(self) -> int:
        self.looks += 1
        mine = self.looks
        await self.gate.wait()
        self.now += self.takes
        if self.away:
            raise StoreUnavailable("gone")
        return mine


async def seen(glance: Glance[int]) -> int:
    return (await glance.get())[0]


async def test_what_is_cheap_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    glance = Glance(watch.look, system_clock)
    assert await seen(glance) == 1
    watch.now += 0.001
    assert await seen(glance) == 2


async def test_a_look_is_good_for_twenty_times_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.takes = 0.04
    glance = Glance(watch.look, system_clock)
    assert await seen(glance) == 1
    watch.now += 0.79
    assert await seen(glance) == 1
    watch.now += 0.02
    assert await seen(glance) == 2


async def test_where_looking_takes_long_the_old_answer_is_given_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.takes = 2.0
    glance = Glance(watch.look, system_clock)
    assert await seen(glance) == 1
    watch.now += 30
    watch.gate.clear()
    assert [await seen(glance), await seen(glance)] == [1, 1] and watch.looks <= 2
    watch.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await seen(glance) == 2
    watch.now += 61
    assert await seen(glance) == 3, "what is older than a minute is not given any more"


async def test_after_a_change_from_here_nobody_sees_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.takes = 2.0
    glance = Glance(watch.look, system_clock)
    await seen(glance)
    watch.gate.clear()
    watch.now += 30
    await seen(glance)
    await asyncio.sleep(0)  # a look has begun
    glance.forget()  # and then something changes
    after = asyncio.create_task(seen(glance))
    await asyncio.sleep(0)
    watch.gate.set()
    assert await after == 3, "the look that had begun before does not count"


async def test_many_who_ask_at_once_share_a_look_and_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.away = True
    glance = Glance(watch.look, system_clock)
    answers = await asyncio.gather(*(seen(glance) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers) and watch.looks == 1
    watch.away = False
    assert await seen(glance) == 2


# --- no longer than somebody waits --------------------------------------------------------------------------


async def test_a_quick_look_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    glance = Glance(watch.look, system_clock)
    found = await glance.within(30)
    assert found is not None and found[0] == 1


async def test_who_does_not_wait_gets_nothing_and_the_next_one_what_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(monkeypatch)
    watch.takes = 2.0
    watch.gate.clear()
    glance = Glance(watch.look, system_clock)
    assert await glance.within(0) is None
    assert await glance.within(30) is None, "while it is looked at nobody waits"
    assert watch.looks == 1
    watch.gate.set()
    await seen(glance)
    found = await glance.within(0)
    assert found is not None and found[0] == watch.looks == 1


async def test_what_was_looked_at_before_a_change_is_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.takes = 2.0
    glance = Glance(watch.look, system_clock)
    await seen(glance)
    watch.gate.clear()
    watch.now += 30
    found = await glance.within(0)
    assert found is not None and found[0] == 1, "an old answer, while there is a new look"
    await asyncio.sleep(0)
    glance.forget()
    assert await glance.within(0) is None
    watch.gate.set()
    while watch.looks < 3:
        await glance.within(0)
        await asyncio.sleep(0)
    assert await seen(glance) == 3


async def test_an_error_of_a_look_that_nobody_waits_for_is_for_whoever_asks_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(monkeypatch)
    watch.away = True
    watch.gate.clear()
    glance = Glance(watch.look, system_clock)
    assert await glance.within(0) is None
    watch.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await glance.within(30)
