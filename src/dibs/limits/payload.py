"""What JSON may hold, so that every store keeps it to the letter."""

import re
from collections.abc import Iterable
from math import isfinite
from typing import Any

from dibs.errors import Refused

DEPTH = 64
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1


def check(value: Any, what: str, depth: int) -> None:
    """Refuse what is no JSON, or not for every store; ``depth`` levels are left."""
    kind = type(value)
    if kind is str:
        if not value.isascii() or "\0" in value:
            _check_text(value, what)
    elif kind is dict or kind is list or kind is tuple:
        if depth == 0:
            raise Refused(f"{what} must not be nested deeper than {DEPTH} levels")
        if kind is dict:
            for key in value:
                if type(key) is not str or not key.isascii() or "\0" in key:
                    _check_key(key, what)
            value = value.values()
        _check_items(value, what, depth - 1)
    elif kind is float:
        if not isfinite(value):
            raise Refused(f"{what} must not hold {value}: JSON has no NaN or infinity")
    elif kind is int:
        if not _SMALLEST <= value <= _GREATEST:
            raise Refused(f"{what} must hold integers of at most 64 bits: pass longer ones as strings")
    elif kind is not bool and value is not None:
        raise Refused(f"{what} must be JSON (dict, list, str, int, float, bool or None), not {kind.__name__}")


def _check_key(key: Any, what: str) -> None:
    if type(key) is not str:
        raise Refused(f"{what} must have strings as keys, not {type(key).__name__}")
    _check_text(key, what)


def _check_items(items: Iterable[Any], what: str, depth: int) -> None:
    # Every job comes through here twice, so what most payloads are made of is let through without a call.
    for item in items:
        kind = type(item)
        if (kind is str and item.isascii() and "\0" not in item) or kind is bool or item is None:
            continue
        if kind is int and _SMALLEST <= item <= _GREATEST:
            continue
        check(item, what, depth)


def _check_text(value: str, what: str) -> None:
    if UNSTORABLE.search(value):
        raise Refused(f"{what} must not hold NUL characters or lone surrogates: {value[:40]!a}")
