"""A store that fails when it is told to."""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from dibs.errors import ConfigurationError, StoreUnavailable
from dibs.store import Store

if TYPE_CHECKING:
    from dibs.stores.memory import MemoryStore as Face  # any store will do: it has the verbs
else:
    Face = object

VERBS = frozenset(name for name in vars(Store) if not name.startswith("_"))


class Wrapped(Face):
    """A store that hands every verb on to another one."""

    def __init__(self, store: Store) -> None:
        self._inner = store

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)


class FlakyStore(Wrapped):
    """Any store, with outages on demand: before a call took effect, or after, when only its answer got lost."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._guard = threading.Lock()
        self._before: Counter[str] = Counter()
        self._after: Counter[str] = Counter()

    def fail_next(self, verb: str, *, times: int = 1, after_effect: bool = False) -> None:
        """Have the next calls of this verb raise ``StoreUnavailable``, as if the connection broke.

        Nothing has happened then; or, with ``after_effect``, all has, and the caller does not know it.
        """
        if verb not in VERBS:
            raise ConfigurationError(f"a store has no verb {verb!r}: it is one of {', '.join(sorted(VERBS))}")
        with self._guard:
            (self._after if after_effect else self._before)[verb] += times

    def recover(self) -> None:
        """Forget what was to fail."""
        with self._guard:
            self._before.clear()
            self._after.clear()

    def _due(self, plan: "Counter[str]", verb: str) -> bool:
        with self._guard:
            due = plan[verb] > 0
            plan[verb] -= due
            return due

    def _flaky(self, verb: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def perhaps(*args: Any, **kwargs: Any) -> Any:
            if self._due(self._before, verb):
                raise StoreUnavailable(f"{verb} failed on purpose, before it took effect")
            answer = await call(*args, **kwargs)
            if self._due(self._after, verb):
                raise StoreUnavailable(f"{verb} failed on purpose, after it took effect")
            return answer

        return perhaps

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            return self._flaky(name, found) if name in VERBS else found
