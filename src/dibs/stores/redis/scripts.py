"""The Lua files, put together and named by their hash. Each verb is one script; see ``lua/prelude.lua``."""

from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

LAYOUT = 1
"""The version of the key layout that these scripts write."""

ADDING = "settle, adding steps"
REPLACING = "enqueue, replacing"
"""Verbs with more in front of them: a server makes all functions of a script anew in each call."""

# What a verb needs in front of it, besides the clock and the prelude.
_PARTS: dict[str, tuple[str, ...]] = {
    "enqueue": (),
    REPLACING: ("life", "replace"),
    "claim": ("life", "steps", "age", "order", "room"),
    "aside": ("life", "steps", "room"),
    "settle": ("life", "steps"),
    ADDING: ("life", "steps", "bring", "add"),
    "heartbeat": ("life",),
    "sweep": ("life", "steps", "merge"),
    "prune": ("life", "remove", "merge"),
    "get": ("look",),
    "find": ("scan", "look"),
    "count": ("scan",),
    "change": ("life", "steps", "remove", "again", "scan"),
    "start": ("bring",),
    "flow": ("life", "steps", "tell"),
    "flows": ("life", "steps", "tell"),
    "counts": (),
    "workers": (),
    "configure": (),
    "limit": (),
    "fill": (),
    "limits": ("room",),
    "keep": (),
    "kept": (),
    "ready": (),
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
    return {name: _script(name, parts, clock_text) for name, parts in _PARTS.items()}


def _script(name: str, parts: tuple[str, ...], clock_text: str) -> Script:
    name = name.partition(",")[0]
    texts = [clock_text, *(_text(part) for part in ("prelude", *parts, name))]
    source = "\n".join(texts).encode()
    # The server names scripts by SHA-1; nothing is kept secret by it.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())
