"""What a worker and its child say to each other: a length of four bytes, then a value as MessagePack.

Nothing is ever pickled: a child that went wrong can send wrong values, not code.
"""

import struct
from datetime import datetime

import msgspec

from dibs.job import Claim, NewStep
from dibs.worker.processes.reference import Reference

LENGTH = struct.Struct("!I")


# --- from the worker ----------------------------------------------------------------------------------------


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Run the function for these claims: one, or those of a batch."""

    reference: Reference
    task: str
    batch: bool
    claims: list[Claim]
    carried: dict[str, str] = {}
    """The context of the attempt, for the spans that the handler makes; see ``dibs.attempt.carry``."""


class Lease(msgspec.Struct, frozen=True, tag="lease"):
    """What heartbeats have learnt about one claim of the call."""

    index: int
    locked_until: datetime
    cancelled: bool
    lost: bool


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """No more calls: end as a program ends."""


# --- from the child -----------------------------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The call has arrived; from here on, the end of the child is the end of an attempt."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """See ``Attempt.progress``."""

    index: int
    fraction: float
    note: str


class Log(msgspec.Struct, frozen=True, tag="log"):
    """See ``Attempt.log``."""

    index: int
    text: str


class Add(msgspec.Struct, frozen=True, tag="add"):
    """See ``Attempt.add_step``."""

    index: int
    step: NewStep


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """The result, as JSON."""

    result: bytes


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """An exception. ``kind`` says what it becomes in the worker; see ``dibs.worker.processes.raised``."""

    kind: str
    name: str = ""
    message: str = ""
    traceback: str = ""
    mro: tuple[str, ...] = ()
    delay: float | None = None


class Mixed(msgspec.Struct, frozen=True, tag="mixed"):
    """What a batch gave for each of its jobs."""

    results: list[Returned | Raised]


ToChild = Call | Lease | Stop
FromChild = Begun | Progress | Log | Add | Returned | Raised | Mixed

_encode = msgspec.msgpack.Encoder().encode
_to_child: "msgspec.msgpack.Decoder[ToChild]" = msgspec.msgpack.Decoder(ToChild)
_from_child: "msgspec.msgpack.Decoder[FromChild]" = msgspec.msgpack.Decoder(FromChild)


def frame(value: ToChild | FromChild) -> bytes:
    """The bytes to send."""
    body = _encode(value)
    return LENGTH.pack(len(body)) + body


def decode_in_child(body: bytes) -> ToChild:
    return _to_child.decode(body)


def decode_in_worker(body: bytes) -> FromChild:
    return _from_child.decode(body)
