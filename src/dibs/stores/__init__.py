"""The four stores, chosen by URL. Nothing is imported before it is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple
from urllib.parse import urlsplit

from dibs.errors import ConfigurationError
from dibs.store import Store

DEFAULT_URL = "sqlite:///jobs.db"


class _Kind(NamedTuple):
    module: str
    name: str
    extra: str | None = None


_SQLITE = _Kind("dibs.stores.sqlite", "SQLiteStore")
_POSTGRES = _Kind("dibs.stores.postgres", "PostgresStore", "postgres")
_REDIS = _Kind("dibs.stores.redis", "RedisStore", "redis")

KINDS = {
    "memory": _Kind("dibs.stores.memory", "MemoryStore"),
    "sqlite": _SQLITE,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
}


def open_store(url: str = DEFAULT_URL) -> Store:
    """The store that a URL names; ``setup`` connects it.

    ``memory://``, ``sqlite:///jobs.db`` (the default), ``postgresql://…`` or ``redis://…``.
    """
    scheme = urlsplit(url).scheme
    kind = KINDS.get(scheme)
    if kind is None:
        known = ", ".join(f"{each}://" for each in KINDS)
        raise ConfigurationError(f"no store is called {scheme or url!r}: a store's URL starts with one of {known}")
    make: Callable[[str], Store] = getattr(_import(kind, scheme), kind.name).from_url
    return make(url)


def _import(kind: _Kind, scheme: str) -> object:
    try:
        return import_module(kind.module)
    except ModuleNotFoundError as problem:
        if kind.extra is None or (problem.name or "").startswith("dibs"):
            raise
        raise ConfigurationError(
            f"{scheme}:// needs the {kind.extra} extra: pip install 'dibs[{kind.extra}]'"
        ) from None
