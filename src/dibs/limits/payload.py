"""What JSON may hold, so that every store keeps it to the letter."""

import re
from collections.abc import Iterable
from math import isfinite
from typing import Any

import msgspec

from dibs.errors import Refused

DEPTH = 64
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
_PLAIN = frozenset({str, bool, type(None)})
_NUL = "\\u0000"
"""How JSON writes it; a backslash and u0000 in a text come out like this, too."""
_encode = msgspec.json.Encoder().encode


def encode(value: Any, what: str, max_bytes: int) -> str:
    """A value as JSON text; refuses what is none, what is not for every store, and what is too long.

    Characters are not looked at one text after the other: the encoder refuses surrogates, and shows where NUL may be.
    """
    _check(value, what, DEPTH)
    try:
        encoded = _encode(value)
    except UnicodeEncodeError:
        _check_texts(value, what)
        raise
    text = encoded.decode()
    if _NUL in text:
        _check_texts(value, what)
    if len(encoded) > max_bytes:
        raise Refused(
            f"{what} take {len(encoded):,} bytes as JSON, more than the {max_bytes:,} allowed: "
            "store the data elsewhere and pass a reference"
        )
    return text


def _check(value: Any, what: str, depth: int) -> None:
    """Refuse what is not made of the types of JSON, and numbers out of range; ``depth`` levels are left."""
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        if depth == 0:
            raise Refused(f"{what} must not be nested deeper than {DEPTH} levels")
        if kind is dict:
            for key in value:
                if type(key) is not str:
                    raise Refused(f"{what} must have strings as keys, not {type(key).__name__}")
            value = value.values()
        # Every job comes through here twice, so what most payloads are made of is let through without a call.
        for item in value:
            kind = type(item)
            if kind not in _PLAIN and not (kind is int and _SMALLEST <= item <= _GREATEST):
                _check(item, what, depth - 1)
    elif kind is float:
        if not isfinite(value):
            raise Refused(f"{what} must not hold {value}: JSON has no NaN or infinity")
    elif kind is int:
        if not _SMALLEST <= value <= _GREATEST:
            raise Refused(f"{what} must hold integers of at most 64 bits: pass longer ones as strings")
    elif kind not in _PLAIN:
        raise Refused(f"{what} must be JSON (dict, list, str, int, float, bool or None), not {kind.__name__}")


def _check_texts(value: Any, what: str) -> None:
    """Refuse characters that not every store can hold, in a value that is made of the types of JSON."""
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise Refused(f"{what} must not hold NUL characters or lone surrogates: {value[:40]!a}")
    elif isinstance(value, dict | list | tuple):
        items: Iterable[Any] = [*value, *value.values()] if isinstance(value, dict) else value
        for item in items:
            _check_texts(item, what)
