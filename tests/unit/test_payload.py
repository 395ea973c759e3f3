"""What JSON may hold: characters are judged by what the encoder makes of them."""

from typing import Any

import msgspec
import pytest

from dibs.errors import Refused
from dibs.limits import to_json

_REFUSED = "must not hold NUL characters or lone surrogates"


@pytest.mark.parametrize(
    "value", ["a\0b", ["\0"], {"\0": 1}, {"a": [{"b": "\0"}]}, "\ud800", {"\udfff": []}, ("x", ["\udc00"])]
)
def test_characters_that_not_every_store_can_hold_are_refused_wherever_they_are(value: Any) -> None:
    with pytest.raises(Refused, match=_REFUSED):
        to_json(value, "args")


@pytest.mark.parametrize("value", ["\\u0000", ["\\u0000", "\\"], {"\\u0000": '"\n\t\x01'}, "ö😀\u2028", {"": ""}])
def test_what_only_looks_like_them_is_let_through(value: Any) -> None:
    assert msgspec.json.decode(to_json(value, "args")) == value
