"""What ``dibs migrate`` can ask of a store that keeps its jobs in a schema."""

from importlib import import_module
from typing import Protocol

import msgspec

from dibs.errors import ConfigurationError
from dibs.stores import import_kind, kind_of, scheme_of


class SchemaStatus(msgspec.Struct, frozen=True):
    """Where a schema stands: its version (0 if there is none), the newest known, and what lies between."""

    current: int
    latest: int
    pending: tuple[str, ...]


class Schema(Protocol):
    """The numbered migrations of one store."""

    async def status(self) -> SchemaStatus:
        """Compare the database with this dibs."""

    async def up(self) -> tuple[str, ...]:
        """Apply what is pending; answers the names of what was applied. Safe while workers run."""

    async def dump(self) -> str:
        """The schema as the database holds it, as text."""


class NoSchema:
    """A store that needs none is always up to date, so that one deployment step does for all stores."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    async def status(self) -> SchemaStatus:
        return SchemaStatus(0, 0, ())

    async def up(self) -> tuple[str, ...]:
        return ()

    async def dump(self) -> str:
        raise ConfigurationError(f"{self._scheme}:// has no schema to print: only postgresql:// and sqlite:// have")


def open_schema(url: str) -> Schema:
    """The schema that a URL leads to."""
    kind, scheme = kind_of(url), scheme_of(url)
    if not kind.schema:
        return NoSchema(scheme)
    import_kind(kind, scheme)
    schema: Schema = import_module(f"{kind.module}.schema").open_schema(url)
    return schema
