"""The four stores, chosen by URL. Nothing is imported before it is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError
from dibs.store import Store

DEFAULT_URL = "sqlite:///jobs.db"


class Kind(NamedTuple):
    """Where a store is found, what has to be installed for it, and whether it has a schema to migrate."""

    module: str
    name: str
    extra: str | None = None
    schema: bool = False
    clock: bool = False
    """Whether it goes by a clock of ours; a server has its own."""


_SQLITE = Kind("dibs.stores.sqlite", "SQLiteStore", schema=True, clock=True)
_POSTGRES = Kind("dibs.stores.postgres", "PostgresStore", "postgres", schema=True)
_REDIS = Kind("dibs.stores.redis", "RedisStore", "redis")

KINDS = {
    "memory": Kind("dibs.stores.memory", "MemoryStore", clock=True),
    "sqlite": _SQLITE,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
}


def open_store(url: str = DEFAULT_URL, *, clock: Clock = system_clock) -> Store:
    """The store that a URL names; ``setup`` connects it.

    ``memory://``, ``sqlite:///jobs.db`` (the default), ``postgresql://…`` or ``redis://…``.
    The first two go by ``clock``.
    """
    kind = kind_of(url)
    make: Callable[..., Store] = getattr(import_kind(kind, scheme_of(url)), kind.name).from_url
    return make(url, clock=clock) if kind.clock else make(url)


def kind_of(url: str) -> Kind:
    """Which store a URL is for, by what stands before the colon."""
    scheme = scheme_of(url)
    kind = KINDS.get(scheme)
    if kind is None:
        known = ", ".join(f"{each}://" for each in KINDS)
        raise ConfigurationError(f"no store is called {scheme or url!r}: a store's URL starts with one of {known}")
    return kind


def scheme_of(url: str) -> str:
    """What stands before the colon. The rest is for the store to read: it knows what in it is secret."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""


def import_kind(kind: Kind, scheme: str) -> object:
    """The module of a store; says which extra is missing, if one is."""
    try:
        return import_module(kind.module)
    except ModuleNotFoundError as problem:
        if kind.extra is None or (problem.name or "").startswith("dibs"):
            raise
        raise ConfigurationError(
            f"{scheme}:// needs the {kind.extra} extra: pip install 'dibs[{kind.extra}]'"
        ) from None
