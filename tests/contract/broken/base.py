"""What the broken stores have in common."""

from collections.abc import Callable
from typing import TypeVar

from dibs.stores.memory import MemoryStore
from dibs.testing.labs.memory import MemoryLab

S = TypeVar("S", bound=type[MemoryStore])
CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {}
"""Every broken store, and the tests (module::name) that must fail on it."""


def caught_by(*tests: str) -> Callable[[S], S]:
    def note(store: S) -> S:
        CAUGHT_BY[store] = tests
        return store

    return note


def lab_of(store: type[MemoryStore]) -> type[MemoryLab]:
    """A lab in which that store is tested."""

    class BrokenLab(MemoryLab):
        race_jobs = 3_000

        def __init__(self) -> None:
            super().__init__()
            self._store = store(clock=self._clock)

    return BrokenLab
