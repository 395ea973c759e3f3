"""A flow as a graph: layer by layer from left to right, each step behind all that it needs."""

from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from dibs.http.dashboard.svg import picture, tag, text, title

BOX, GAP, ROW, ROW_GAP, MARGIN = 150.0, 56.0, 38.0, 14.0, 8.0
MOST = 300
"""Steps that are drawn one by one; a flow with more is drawn by layer."""
_SWEEPS = 4


class Node(msgspec.Struct, frozen=True):
    """One step to be drawn."""

    name: str
    state: str
    needs: tuple[str, ...] = ()
    link: str = ""
    words: str = ""
    """What a pointer that rests on it is told."""


def layers(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The names by how many steps stand before them at most; those that are not there any more do not count."""
    depth: dict[str, int] = {}
    waiting = {name: [need for need in wanted if need in needs] for name, wanted in needs.items()}
    while waiting:
        ready = [name for name, wanted in waiting.items() if all(need in depth for need in wanted)]
        if not ready:  # a circle cannot be stored; what cannot be must not hang a page
            ready = list(waiting)
        for name in ready:
            depth[name] = max((depth[need] + 1 for need in waiting[name] if need in depth), default=0)
        waiting = {name: wanted for name, wanted in waiting.items() if name not in depth}
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in needs:
        found[depth[name]].append(name)
    return found


def arranged(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Layers whose steps stand close to what they need, so that few lines cross."""
    found = layers(needs)
    behind: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            if need in behind:
                behind[need].append(name)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        places = {name: n / max(1, len(layer)) for layer in found for n, name in enumerate(layer)}
        for layer in found if forward else reversed(found):
            near = needs if forward else behind
            layer.sort(key=lambda name: _mean([places[other] for other in near[name] if other in places], places[name]))
            places |= {name: n / max(1, len(layer)) for n, name in enumerate(layer)}
    return found


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def draw(nodes: Sequence[Node]) -> Markup:
    """The graph; by layers, with how many are in each state, if there are too many steps to look at."""
    if len(nodes) > MOST:
        nodes = _by_layer(nodes)
    by_name = {node.name: node for node in nodes}
    found = arranged({node.name: node.needs for node in nodes})
    rows = max((len(layer) for layer in found), default=1)
    height = rows * (ROW + ROW_GAP) - ROW_GAP + 2 * MARGIN
    width = len(found) * (BOX + GAP) - GAP + 2 * MARGIN
    spots = {}
    for column, layer in enumerate(found):
        free = height - 2 * MARGIN - len(layer) * (ROW + ROW_GAP) + ROW_GAP
        for row, name in enumerate(layer):
            spots[name] = (MARGIN + column * (BOX + GAP), MARGIN + free / 2 + row * (ROW + ROW_GAP))
    edges = [
        _edge(spots[need], spots[node.name], by_name[need]) for node in nodes for need in node.needs if need in spots
    ]
    boxes = [_box(by_name[name], x, y) for name, (x, y) in spots.items()]
    label = f"{len(nodes)} steps in {len(found)} layers"
    drawing = picture((width, height), [*edges, *boxes], label, "graph", width=width, height=height)
    return tag("div", [drawing], class_="graph-frame", tabindex=0)


def _edge(start: tuple[float, float], end: tuple[float, float], need: Node) -> Markup:
    x1, y1 = start[0] + BOX, start[1] + ROW / 2
    x2, y2 = end[0], end[1] + ROW / 2
    bend = (x2 - x1) / 2
    course = f"M{x1:.0f} {y1:.0f} C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return tag("path", d=course, class_=f"edge {'met' if need.state == 'succeeded' else 'open'}")


def _box(node: Node, x: float, y: float) -> Markup:
    shown = node.name if len(node.name) <= 16 else f"{node.name[:15]}…"
    inside = [
        title(node.words or f"{node.name}: {node.state}"),
        tag("rect", x=x, y=y, width=BOX, height=ROW, rx=6.0),
        text(x + 10, y + 16, shown, "name"),
        text(x + 10, y + 31, node.state, "state"),
    ]
    box = tag("g", inside, class_=f"step {node.state.partition(' ')[0]}")
    return tag("a", [box], href=node.link) if node.link else box


def _by_layer(nodes: Sequence[Node]) -> list[Node]:
    by_name = {node.name: node for node in nodes}
    drawn, before = list[Node](), ""
    for number, layer in enumerate(layers({node.name: node.needs for node in nodes}), 1):
        states = [by_name[name].state for name in layer]
        worst = next((each for each in _WORST if each in states), states[0])
        counted = ", ".join(f"{states.count(each)} {each}" for each in _WORST if each in states)
        name = f"{len(layer):,} steps"
        drawn.append(
            Node(f"{number}. {name}", f"{worst} {states.count(worst):,}", (before,) if before else (), words=counted)
        )
        before = drawn[-1].name
    return drawn


_WORST = ("failed", "cancelled", "running", "queued", "waiting", "succeeded")
