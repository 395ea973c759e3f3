"""Which step needs which: what a flow's needs may look like. Pure arithmetic on names."""

from collections.abc import Mapping, Sequence

Graph = Mapping[str, Sequence[str]]
"""The names of the steps, and for each those that it needs."""


def outside(graph: Graph) -> list[str]:
    """The names that are needed and are no step of this graph, in the order in which they are met."""
    met = (need for needs in graph.values() for need in needs)
    return list(dict.fromkeys(need for need in met if need not in graph))


def cycle(graph: Graph) -> list[str]:
    """Steps that wait for each other, each needing the next and the last the first; empty if there are none."""
    waiting = {name: sum(need in graph for need in needs) for name, needs in graph.items()}
    needed_by: dict[str, list[str]] = {name: [] for name in graph}
    for name, needs in graph.items():
        for need in needs:
            if need in graph:
                needed_by[need].append(name)
    free = [name for name, count in waiting.items() if count == 0]
    while free:
        name = free.pop()
        del waiting[name]
        for other in needed_by[name]:
            waiting[other] -= 1
            if waiting[other] == 0:
                free.append(other)
    return _round(graph, waiting)


def _round(graph: Graph, stuck: Mapping[str, int]) -> list[str]:
    """Each of the stuck needs another of them: going from one to the next comes round in the end."""
    path: list[str] = []
    seen: dict[str, int] = {}
    name = next(iter(stuck), None)
    while name is not None and name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(need for need in graph[name] if need in stuck)
    return path if name is None else path[seen[name] :]
