"""How an attempt ended. A worker hands these to ``settle``; a handler may raise some of them in disguise."""

from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec


class Succeeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """The handler returned; ``result`` is kept with the job. ``steps`` (``NewStep``) are added to its flow."""

    result: Any = None
    steps: tuple[Any, ...] = ()


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """The attempt failed; run it again after ``delay``. With no attempts left the job is failed instead."""

    error: str
    delay: timedelta = timedelta(0)
    traceback: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job failed for good, whatever attempts are left."""

    error: str
    traceback: str = ""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The handler was stopped because somebody asked for it."""


class Released(msgspec.Struct, frozen=True, tag="released"):
    """Given back untouched: it keeps its place in the order and the attempt is not counted."""


class Snoozed(msgspec.Struct, frozen=True, tag="snoozed"):
    """Not now: due again after ``delay``, and the attempt is not counted."""

    delay: timedelta


Outcome = Succeeded | Retry | Failed | Cancelled | Released | Snoozed


def kind(outcome: Outcome) -> str:
    """The one word under which a store remembers how an attempt was settled."""
    return str(outcome.__struct_config__.tag)


class Verdict(StrEnum):
    """What became of one settlement."""

    ACCEPTED = "accepted"
    LOST = "lost"


class Pulse(StrEnum):
    """What a heartbeat learns about one claim."""

    HELD = "held"
    CANCEL = "cancel"
    LOST = "lost"
