"""An arena: one store's server or file, where ways are opened on empty ground."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module

from bench.lib.ways import DibsWay, Way
from dibs import Store, open_store


class Arena(ABC):
    """Started once, stopped at the end whatever happens."""

    name: str
    ways: tuple[str, ...] = ("dibs", "limit")
    url: str | None = None
    """Where the store that was opened last is; None if only its own process can find it."""

    async def start(self) -> None:  # noqa: B027 (a store may need nothing)
        """Bring up what the store needs."""

    async def stop(self) -> None:  # noqa: B027
        """End it, and leave nothing behind."""

    @abstractmethod
    async def open(self, way: str, claimers: int) -> Way:
        """A way that finds an empty store, with a connection for every claimer."""

    @abstractmethod
    async def open_place(self, place: str) -> Store:
        """Another handle on a store of that name, made when first asked for; places share a server, no jobs."""

    async def calm_place(self, place: str) -> None:  # noqa: B027
        """Let the server finish what filling left to do."""

    def cpu(self) -> float:
        """Seconds of processor time until now: this process, and the server if there is one."""
        return time.process_time()

    def versions(self) -> dict[str, str]:
        """What was measured: driver and server."""
        return {}


class MemoryArena(Arena):
    """Nothing below it, so it has no limit to be compared with."""

    name = "memory"
    ways = ("dibs",)

    def __init__(self) -> None:
        self._places: dict[str, Store] = {}

    async def open(self, way: str, claimers: int) -> Way:
        return DibsWay(open_store("memory://"), way)

    async def open_place(self, place: str) -> Store:
        return self._places.setdefault(place, open_store("memory://"))


STORES = ("memory", "sqlite", "postgres", "redis")


def arena(name: str) -> Arena:
    """The arena of a store; its driver is imported only now."""
    if name == "memory":
        return MemoryArena()
    make: Callable[[], Arena] = import_module(f"bench.lib.{name}").ARENA
    return make()
