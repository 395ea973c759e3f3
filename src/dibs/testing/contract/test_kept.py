"""What is set at run time and is no job: kept by kind and name, replaced, forgotten, and who may replace whom."""

import asyncio
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.limits import RANKS
from dibs.store import Store
from dibs.testing.contract.helpers import picture
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

VALUE = {"text": 'ü\n"', "list": [1, 2.5, None, True, {"deep": [[]]}], "big": 2**63 - 1, "exact": 0.1, "": {}}


async def values(store: Store, kind: str = "colour") -> dict[str, dict[str, Any]]:
    return (await store.kept([kind])).values[kind]


async def test_a_value_comes_back_as_it_was(store: Store, lab: Lab) -> None:
    await store.keep("colour", {"sky": VALUE, "nothing": {}})
    assert await values(store) == {"sky": VALUE, "nothing": {}}
    assert await values(await lab.open()) == {"sky": VALUE, "nothing": {}}
    assert type((await values(store))["sky"]["big"]) is int


async def test_nothing_is_kept_at_first_and_every_kind_that_was_asked_for_is_named(store: Store) -> None:
    assert (await store.kept(["colour", "shape"])).values == {"colour": {}, "shape": {}}
    assert (await store.kept([])).values == {}


async def test_the_answer_tells_the_time_of_the_stores_clock(store: Store, lab: Lab) -> None:
    assert (await store.kept(["colour"])).now == lab.now
    await store.keep("colour", {"sky": {}, "sea": {}})
    await lab.advance(0.000_001)
    assert (await store.kept(["colour", "shape"])).now == lab.now
    assert (await store.kept([])).now == lab.now


async def test_a_value_replaces_the_one_before_as_a_whole(store: Store) -> None:
    await store.keep("colour", {"sky": {"r": 1, "g": 2}, "sea": {"b": 3}})
    await store.keep("colour", {"sky": {"g": 5}})
    assert await values(store) == {"sky": {"g": 5}, "sea": {"b": 3}}


async def test_none_forgets_and_may_do_so_again(store: Store) -> None:
    await store.keep("colour", {"sky": {"r": 1}, "sea": {"b": 3}})
    for _ in range(2):
        await store.keep("colour", {"sky": None, "never": None})
        assert await values(store) == {"sea": {"b": 3}}


async def test_one_call_keeps_some_and_forgets_others(store: Store) -> None:
    await store.keep("colour", {"sky": {"r": 1}})
    await store.keep("colour", {"sky": None, "sea": {"b": 3}})
    assert await values(store) == {"sea": {"b": 3}}
    await store.keep("colour", {})
    assert await values(store) == {"sea": {"b": 3}}


async def test_the_same_name_in_two_kinds_is_two_values(store: Store) -> None:
    await store.keep("colour", {"sky": {"is": "blue"}})
    await store.keep("shape", {"sky": {"is": "round"}})
    await store.keep("colour", {"sky": None})
    assert (await store.kept(["shape", "colour"])).values == {"shape": {"sky": {"is": "round"}}, "colour": {}}


async def test_names_are_kept_to_the_letter(store: Store) -> None:
    names = ["a", "A", "ä", "a\u0308", "a:b", "{a}", "%", "_", "'", "x" * 200, "日本"]
    for kind in ("k", "K", "k:x", "日"):
        await store.keep(kind, {name: {"name": name, "kind": kind} for name in names})
    for kind in ("k", "K", "k:x", "日"):
        assert await values(store, kind) == {name: {"name": name, "kind": kind} for name in names}


async def test_thousands_of_values_fit_into_one_call(store: Store) -> None:
    many = {f"n{number}": {"number": number} for number in range(3_000)}
    await store.keep("colour", many)
    assert await values(store) == many
    await store.keep("colour", dict.fromkeys(many))
    assert await values(store) == {}


async def test_what_is_kept_is_no_job_and_no_queue(store: Store) -> None:
    await store.keep("colour", {"sky": VALUE})
    assert await picture(store) == ([], [], [])


# --- rank -------------------------------------------------------------------------------------


async def test_a_lower_rank_does_not_replace_a_higher_one(store: Store) -> None:
    await store.keep("colour", {"sky": {"n": 2}}, rank=10)
    await store.keep("colour", {"sky": {"n": 1}, "sea": {"n": 1}}, rank=9)
    assert await values(store) == {"sky": {"n": 2}, "sea": {"n": 1}}
    await store.keep("colour", {"sky": {"n": 0}})
    assert await values(store) == {"sky": {"n": 2}, "sea": {"n": 1}}


@pytest.mark.parametrize(("first", "second"), [(9, 10), (10, 10), (0, RANKS[1]), (RANKS[1] - 1, RANKS[1])])
async def test_an_equal_or_higher_rank_replaces(store: Store, first: int, second: int) -> None:
    await store.keep("colour", {"sky": {"n": 1}}, rank=first)
    await store.keep("colour", {"sky": {"n": 2}}, rank=second)
    assert await values(store) == {"sky": {"n": 2}}
    if first < second:
        await store.keep("colour", {"sky": {"n": 3}}, rank=first)
        assert await values(store) == {"sky": {"n": 2}}


async def test_a_replaced_value_has_the_rank_of_the_new_one(store: Store) -> None:
    for rank in (5, 7):
        await store.keep("colour", {"sky": {"n": rank}}, rank=rank)
    await store.keep("colour", {"sky": {"n": 6}}, rank=6)
    assert await values(store) == {"sky": {"n": 7}}


async def test_forgetting_asks_for_no_rank_and_takes_the_rank_along(store: Store) -> None:
    await store.keep("colour", {"sky": {"n": 1}}, rank=10)
    await store.keep("colour", {"sky": None})
    assert await values(store) == {}
    await store.keep("colour", {"sky": {"n": 2}}, rank=1)
    assert await values(store) == {"sky": {"n": 2}}


async def test_of_many_writers_at_once_the_highest_rank_is_left(store: Store, lab: Lab) -> None:
    handles = [store, await lab.open(), await lab.open()]
    names = [f"n{number}" for number in range(20)]
    turns = [names, names[::-1]]
    await asyncio.gather(
        *(
            handles[rank % 3].keep("colour", {name: {"rank": rank} for name in turns[rank % 2]}, rank=rank)
            for rank in (*range(0, 30, 2), *range(29, 0, -2))
        )
    )
    assert await values(store) == {name: {"rank": 29} for name in names}


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values_", "rank"),
    [
        ("", {"a": {}}, 0),
        (None, {"a": {}}, 0),
        ("colour", {"": {}}, 0),
        ("colour", {" a": {}}, 0),
        ("colour", {"a\n": {}}, 0),
        ("colour", {5: {}}, 0),
        ("colour", {"fine": {}, "x" * 201: {}}, 0),
        ("colour", {"fine": {}, "a": []}, 0),
        ("colour", {"fine": {}, "a": "text"}, 0),
        ("colour", {"fine": {}, "a": {"n": float("nan")}}, 0),
        ("colour", {"fine": {}, "a": {"n": 2**63}}, 0),
        ("colour", {"fine": {}, "a": {"n": "\0"}}, 0),
        ("colour", {"fine": {}, "a": {"n": "\ud800"}}, 0),
        ("colour", {"fine": {}, "a": {1: 1}}, 0),
        ("colour", {"fine": {}, "a": {"n": "x" * (1 << 20)}}, 0),
        ("colour", {"fine": {}}, -1),
        ("colour", {"fine": {}}, RANKS[1] + 1),
        ("colour", {"fine": {}}, 1.5),
        ("colour", {"fine": {}}, None),
    ],
    ids=str,
)
async def test_what_cannot_be_kept_is_refused_and_nothing_of_the_call_is_kept(
    store: Store, kind: Any, values_: Any, rank: Any
) -> None:
    with pytest.raises(Refused):
        await store.keep(kind, values_, rank=rank)
    assert await values(store) == {}


@pytest.mark.parametrize("kinds", ["colour", [""], ["a\n"], [None]], ids=repr)
async def test_a_bad_kind_is_refused_when_asked_for(store: Store, kinds: Any) -> None:
    with pytest.raises(Refused):
        await store.kept(kinds)
