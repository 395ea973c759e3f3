"""Needs: circles and strangers are found in any graph."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dibs.limits.needs import cycle, outside

names = st.sampled_from("abcdefg")
graphs = st.dictionaries(names, st.lists(names, max_size=4, unique=True).map(tuple), max_size=7)


def _reaches(graph: dict[str, tuple[str, ...]], start: str) -> set[str]:
    """All that a step needs, directly or not."""
    found: set[str] = set()
    while new := {need for name in found or {start} for need in graph.get(name, ())} - found:
        found |= new
    return found


@given(graphs)
def test_a_circle_is_found_exactly_if_a_step_needs_itself_in_the_end(graph: dict[str, tuple[str, ...]]) -> None:
    assert bool(cycle(graph)) == any(name in _reaches(graph, name) for name in graph)


@given(graphs)
def test_each_of_a_circle_needs_the_next_and_the_last_the_first(graph: dict[str, tuple[str, ...]]) -> None:
    found = cycle(graph)
    for name, need in pairwise([*found, *found[:1]]):
        assert need in graph[name]
    assert len(set(found)) == len(found)


@given(graphs)
def test_strangers_are_those_that_are_needed_and_not_there(graph: dict[str, tuple[str, ...]]) -> None:
    assert sorted(outside(graph)) == sorted({need for needs in graph.values() for need in needs} - set(graph))


def test_a_chain_of_ten_thousand_has_no_circle_until_its_ends_are_joined() -> None:
    chain = {str(n): (str(n - 1),) for n in range(1, 10_000)}
    assert cycle({"0": (), **chain}) == []
    assert len(cycle({"0": ("9999",), **chain})) == 10_000
