"""Job ids: UUIDv7, made by the client, rising within a process.

An id that the client knows before the store does makes an enqueue safe to send again, and one that starts
with the time keeps every index on it growing at its right edge.
"""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from os import getpid
from struct import Struct
from time import time_ns
from uuid import UUID, SafeUUID

_VERSION_AND_VARIANT = (0x7 << 76) | (0b10 << 62)
_RANDOM_BITS = (1 << 62) - 1
_AT_ONCE = 64
_unpack = Struct(f"{_AT_ONCE}Q").unpack
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A UUID cannot be written to, but for its slots themselves.
_blank, _UNKNOWN = object.__new__, SafeUUID.unknown
_put_int, _put_safe = (UUID.__dict__[name].__set__ for name in ("int", "is_safe"))


class _Numbers:
    """What ids are made of: 60-bit ticks (48 bits of milliseconds, 12 of counter) that only ever rise, and random bits.

    The kernel is asked for the random bits of many ids at a time: to ask takes as long as all the rest of an id. They
    belong to one process, whoever forked it and however.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._process = 0
        self._random: Iterator[int] = iter(())

    def next(self) -> tuple[int, int]:
        fresh = (time_ns() // 1_000_000) << 12
        with self._lock:
            self._last = last = fresh if fresh > self._last else self._last + 1
            random = next(self._random, None)
            if random is None or self._process != getpid():
                random = self._refill()
        return last, random

    def _refill(self) -> int:
        self._process = getpid()
        self._random = iter(_unpack(os.urandom(_AT_ONCE * 8)))
        return next(self._random)


_numbers = _Numbers()
# A child forked while another thread held the lock would wait for it for ever, and ids of parent and child must differ.
os.register_at_fork(after_in_child=_numbers.__init__)  # type: ignore[misc]


def new_id() -> UUID:
    """A new UUIDv7, greater than every id that this process made before."""
    tick, random = _numbers.next()
    return from_int((tick >> 12) << 80 | (tick & 0xFFF) << 64 | _VERSION_AND_VARIANT | random & _RANDOM_BITS)


def from_int(number: int) -> UUID:
    """The UUID of 128 bits that are known to be no more, as the class makes one of its own.

    Its constructor first finds out in which of five ways it was called: in a process that has slept, 20 µs for 7.
    """
    made = _blank(UUID)
    _put_int(made, number)
    _put_safe(made, _UNKNOWN)
    return made


def derived_id(moment: datetime, *names: str) -> UUID:
    """The UUIDv7 of that moment and those names: the same wherever it is made, another for any other.

    The first 48 bits are the milliseconds, as in every UUIDv7; the 74 that are left to chance come from a hash.
    """
    digest = blake2b("\0".join((moment.astimezone(UTC).isoformat(), *names)).encode(), digest_size=16).digest()
    hashed = int.from_bytes(digest, "big")
    millis = (moment - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=millis << 80 | (hashed >> 64 & 0xFFF) << 64 | _VERSION_AND_VARIANT | hashed & _RANDOM_BITS)


def is_fresh(id: UUID) -> bool:
    """Whether it was made within the last second, by the clock here."""
    return id.int >> 76 & 0xF == 7 and 0 <= time_ns() // 1_000_000 - (id.int >> 80) < 1_000


def made_at(id: UUID) -> datetime | None:
    """When a UUIDv7 was made, to the millisecond; None for an id of another kind."""
    return _EPOCH + timedelta(milliseconds=id.int >> 80) if id.int >> 76 & 0xF == 7 else None
