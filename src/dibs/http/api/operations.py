"""An operation of the API. Routes and document are made of these, so neither can say what the other does not."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from dibs.http.service import Service
from dibs.http.service.data import Identity


class Call(msgspec.Struct, frozen=True):
    """One request, read and checked."""

    service: Service
    who: Identity
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def id(self) -> UUID:
        return UUID(self.path["id"])

    @property
    def name(self) -> str:
        return self.path["name"]


Handler = Callable[[Call], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked, what has to come with it, and what is answered."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    answer: Any = None
    """The type of what is answered; None for nothing."""
    status: int = 200
    also: Mapping[int, str] = {}
    """Other statuses of success, with what they mean: the same answer."""
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    conflicts: str = ""
    """What 409 means, if it can be answered."""
    stream: bool = False

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def changes(self) -> bool:
        return self.method != "GET"
