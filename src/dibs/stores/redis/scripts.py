"""The Lua files, put together and named by their hash. Each verb is one script; see ``lua/prelude.lua``."""

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

LAYOUT = 1
"""The version of the key layout that these scripts write."""

ADDING = "settle, adding steps"
REPLACING = "enqueue, replacing"
"""Verbs with more in front of them: a server makes all functions of a script anew in each call."""

_FIRST = {"claim": ("few", "first")}
"""What is tried before anything else is made."""

_BARE = {"one": ("few", "hand")}
"""Verbs that do without the prelude, and what they need instead."""

# What a verb needs in front of it, besides the clock, stamp() and the prelude.
_PARTS: dict[str, tuple[str, ...]] = {
    "enqueue": (),
    REPLACING: ("more", "life", "replace"),
    "claim": ("more", "life", "judge", "steps", "lifo", "age", "order", "room"),
    "aside": ("more", "life", "judge", "steps", "room"),
    "settle": ("more", "life", "steps"),
    ADDING: ("more", "life", "steps", "bring", "add"),
    "heartbeat": (),
    "sweep": ("more", "life", "judge", "steps", "merge"),
    "prune": ("more", "life", "remove", "merge"),
    "get": ("look",),
    "find": ("scan", "look"),
    "count": ("scan",),
    "change": ("more", "life", "steps", "remove", "again", "scan"),
    "start": ("bring",),
    "flow": ("steps", "tell"),
    "flows": ("steps", "tell"),
    "counts": (),
    "workers": (),
    "configure": (),
    "limit": (),
    "fill": (),
    "limits": ("room",),
    "keep": (),
    "kept": (),
    "ready": (),
    "offer": (),
}


class Script(msgspec.Struct, frozen=True):
    """One verb, as the server knows it."""

    name: str
    source: bytes
    sha: bytes


@cache
def _text(name: str) -> str:
    return (files("dibs.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def clock() -> str:
    """The server's own clock, for every script."""
    return _text("clock")


@cache
def scripts(clock_text: str) -> dict[str, Script]:
    """Every verb by name, on the given clock."""
    usual = {name: (*_FIRST.get(name, ()), "prelude", *parts) for name, parts in _PARTS.items()}
    return {name: _script(name, parts, clock_text) for name, parts in (usual | _BARE).items()}


def _script(name: str, parts: tuple[str, ...], clock_text: str) -> Script:
    name = name.partition(",")[0]
    texts = [clock_text, *(_text(part) for part in ("stamp", *parts, name))]
    source = _with_numbers("\n".join(texts)).encode()
    # The server names scripts by SHA-1; nothing is kept secret by it.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


@cache
def _positions() -> dict[str, str]:
    """The names of a record's positions, and their numbers."""
    lines = re.findall(r"^local ([A-Z_, ]+) = ([0-9, ]+)", _text("prelude"), re.MULTILINE)
    return {name: number for line in lines for name, number in zip(*(part.split(", ") for part in line), strict=True)}


def _with_numbers(source: str) -> str:
    """``r[STATE]`` as ``r[1]``: a name is a variable, and a function that uses it takes longer to make in each call."""
    return re.sub(r"\[([A-Z_]+)\]", lambda found: f"[{_positions()[found[1]]}]", source)
