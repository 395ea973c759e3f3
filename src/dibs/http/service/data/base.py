"""What all of it is made of."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

MOST = 500
"""The most jobs on a page."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Names = Annotated[tuple[Name, ...], Meta(max_length=100)]
Ids = Annotated[tuple[UUID, ...], Meta(max_length=1_000)]
PageSize = Annotated[int, Meta(ge=1, le=MOST)]


class Value(Struct, frozen=True, kw_only=True):
    """What is answered."""


class Given(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked: a word that means nothing is refused rather than passed over."""


class Role(StrEnum):
    """What somebody may do: look, or look and change."""

    READER = "reader"
    OPERATOR = "operator"
