"""What ``dibs migrate`` can ask of a store that keeps its jobs in a schema."""

from importlib import import_module
from typing import Protocol

import msgspec

from dibs.errors import ConfigurationError
from dibs.stores import KINDS, import_kind, scheme_of


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


def open_schema(url: str) -> Schema:
    """The schema that a URL leads to; stores without one say so."""
    scheme = scheme_of(url)
    kind = KINDS.get(scheme)
    if kind is None or not kind.schema:
        raise ConfigurationError(f"{scheme or url}:// has no schema to migrate: only postgresql:// and sqlite:// have")
    import_kind(kind, scheme)
    schema: Schema = import_module(f"{kind.module}.schema").open_schema(url)
    return schema
