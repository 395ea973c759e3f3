"""Values on their way to the driver and back, where its own way of doing it takes longer than the rest of a row.

What is decoded here is decoded as it comes in: while the server sends the next rows, and while it commits.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

_JSON, _INTEGER, _UUID, _MOMENT = 114, 23, 2950, 1184
_JSONS, _INTEGERS, _UUIDS = 199, 1007, 2951
_MOMENTS_KEPT = 1_000
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NULL = b"\xff\xff\xff\xff"
_decode = msgspec.json.Decoder().decode

Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


async def teach(connection: Any) -> None:
    """Have a new connection use the ways of this module.

    The driver has no public way to say how an array goes out, and the one for other types asks the server about each of
    them. Should its inside be another one day, that is the way all the same, and arrays go out as they always did.
    """
    try:
        add = connection._protocol.get_settings().add_python_codec
    except AttributeError:
        for _, name, (encode, decode) in _TAUGHT[:_SCALARS]:
            await connection.set_type_codec(name, schema="pg_catalog", encoder=encode, decoder=decode, format="binary")
        return
    for oid, name, (encode, decode) in _TAUGHT:
        add(oid, name, "pg_catalog", [], "scalar", encode, decode, "binary")


class _Moments(dict[bytes, datetime]):
    """Times that were read. Most of a claim's are the same, and each takes the driver as long as the rest of a row."""

    def __missing__(self, sent: bytes) -> datetime:
        if len(self) >= _MOMENTS_KEPT:
            self.clear()
        microseconds = int.from_bytes(sent, "big", signed=True)
        try:
            moment = _FIRST + timedelta(microseconds=microseconds)
        except OverflowError:  # infinity, or as good as that
            moment = (datetime.max if microseconds > 0 else datetime.min).replace(tzinfo=UTC)
        self[sent] = moment
        return moment


def _moment(moment: datetime) -> bytes:
    return ((moment.astimezone(UTC) - _FIRST) // _MICROSECOND).to_bytes(8, "big", signed=True)


def _array(element: int, encode: Callable[[Sequence[Any]], bytes]) -> Callable[[Sequence[Any]], bytes]:
    """The encoder of a list. The driver asks of every element in it whether it is a list, too."""
    empty = struct.pack("!iiI", 0, 0, element)

    def encoder(values: Sequence[Any]) -> bytes:
        if not values:
            return empty
        return struct.pack("!iiIii", 1, 0, element, len(values), 1) + encode(values)

    return encoder


def _elements(values: Sequence[bytes | None]) -> bytes:
    """Elements of any length, each with its length before it."""
    parts: list[bytes] = []
    for value in values:
        parts += (_NULL,) if value is None else (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def _of_length(length: int, encode: Callable[[Sequence[Any]], list[bytes]]) -> Callable[[Sequence[Any]], bytes]:
    """Elements of one length, none of them null: the length stands between them."""
    before = length.to_bytes(4, "big")
    return lambda values: before + before.join(encode(values))


def _texts(values: Sequence[str | None]) -> bytes:
    return _elements([None if value is None else value.encode() for value in values])


def _list(sent: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
    """An array of one dimension, as a list."""
    found: list[Any] = []
    at = 20  # behind the dimensions
    while at < len(sent):
        length = int.from_bytes(sent[at : at + 4], "big", signed=True)
        at += 4
        found.append(None if length < 0 else decode(sent[at : at + length]))
        at += max(length, 0)
    return found


def _integer(sent: bytes) -> int:
    return int.from_bytes(sent, "big", signed=True)


_ids = _of_length(16, lambda ids: [id_.bytes for id_ in ids])
_numbers = _of_length(4, lambda numbers: [number.to_bytes(4, "big", signed=True) for number in numbers])
_SCALARS = 2
_TAUGHT: tuple[tuple[int, str, Codec], ...] = (
    (_JSON, "json", (str.encode, _decode)),
    (_MOMENT, "timestamptz", (_moment, _Moments().__getitem__)),
    (_UUIDS, "_uuid", (_array(_UUID, _ids), lambda sent: _list(sent, lambda part: UUID(bytes=part)))),
    (_INTEGERS, "_int4", (_array(_INTEGER, _numbers), lambda sent: _list(sent, _integer))),
    (_JSONS, "_json", (_array(_JSON, _texts), lambda sent: _list(sent, _decode))),
)
