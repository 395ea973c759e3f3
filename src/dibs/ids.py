"""Job ids: UUIDv7, made by the client, rising within a process.

An id that the client knows before the store does makes an enqueue safe to send again, and one that starts
with the time keeps every index on it growing at its right edge.
"""

import os
import threading
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from time import time_ns
from uuid import UUID, SafeUUID

_VERSION_AND_VARIANT = (0x7 << 76) | (0b10 << 62)
_RANDOM_BITS = (1 << 62) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_blank, _put, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown


class _Ticks:
    """Hands out 60-bit ticks (48 bits of milliseconds, 12 of counter) that only ever rise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        fresh = (time_ns() // 1_000_000) << 12
        with self._lock:
            self._last = last = fresh if fresh > self._last else self._last + 1
        return last


_ticks = _Ticks()
# A child forked while another thread held the lock would wait for it for ever. The random part of an id
# comes from the kernel at each call, so a child that starts from the same tick still makes other ids.
os.register_at_fork(after_in_child=_ticks.__init__)  # type: ignore[misc]


def new_id() -> UUID:
    """A new UUIDv7, greater than every id that this process made before."""
    tick = _ticks.next()
    random = int.from_bytes(os.urandom(8), "big") & _RANDOM_BITS
    return from_int((tick >> 12) << 80 | (tick & 0xFFF) << 64 | _VERSION_AND_VARIANT | random)


def from_int(number: int) -> UUID:
    """The UUID of 128 bits that are known to be no more, as the class makes one of its own.

    Its constructor first finds out in which of five ways it was called: in a process that has slept, 20 µs for 7.
    """
    made = _blank(UUID)
    _put(made, "int", number)
    _put(made, "is_safe", _UNKNOWN)
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
