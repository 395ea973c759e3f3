"""The steps of a flow as a tree: each below the last that it needs, a chain straight down, a fork in branches."""

from collections.abc import Iterator, Sequence

import msgspec

from dibs.flow import needed
from dibs.job import Job

DEEPEST = 24
"""Branches are not drawn further to the right than this."""


class Line(msgspec.Struct, frozen=True):
    """One step in the drawing."""

    job: Job
    head: str
    """What stands before its name."""
    tail: str
    """What stands before further lines about it."""
    more: tuple[str, ...]
    """What it needs besides the step above it."""


def draw(jobs: Sequence[Job]) -> Iterator[Line]:
    """The steps from the top to the bottom of the drawing. Steps that are gone are left out."""
    steps = {job.step: job for job in jobs if job.step is not None}
    needs = {name: [*needed(job, steps)] for name, job in steps.items()}
    levels = _levels(needs)
    above = {name: _above(name, needs, levels) for name in steps}
    below: dict[str | None, list[str]] = {}
    for name in steps:
        below.setdefault(above[name], []).append(name)
    # Not by recursion: a chain may have thousands of steps.
    stack = [(name, "", "") for name in reversed(below.get(None, []))]
    while stack:
        name, head, base = stack.pop()
        children = below.get(name, [])
        job = steps[name]
        more = tuple(need for need in job.needs if need != above[name])
        yield Line(job, head, base + ("│" if len(children) > 1 else " ") + "  ", more)
        stack += reversed(list(_branches(children, base)))


def _branches(children: Sequence[str], base: str) -> Iterator[tuple[str, str, str]]:
    if len(children) == 1:
        yield children[0], f"{base}↓ ", base
        return
    for at, name in enumerate(children, 1):
        last = at == len(children)
        beside = base if len(base) >= DEEPEST else base + ("   " if last else "│  ")
        yield name, base + ("└─ " if last else "├─ "), beside


def _levels(needs: dict[str, list[str]]) -> dict[str, int]:
    """How many steps have to end one after the other before each can start."""
    levels: dict[str, int] = {}
    begun = set[str]()
    stack = list(reversed(needs))
    while stack:
        name = stack[-1]
        begun.add(name)
        # What has begun and has no level yet is further down: a circle, which cannot be stored, must not hang the page.
        open_ = [need for need in needs[name] if need not in begun]
        if open_:
            stack += open_
        elif stack.pop() not in levels:
            levels[name] = max((levels[need] + 1 for need in needs[name] if need in levels), default=0)
    return levels


def _above(name: str, needs: dict[str, list[str]], levels: dict[str, int]) -> str | None:
    """Of what it needs, the last of those that come last."""
    before = [need for need in needs[name] if levels[need] < levels[name]]
    return max(reversed(before), key=lambda need: levels[need], default=None)
