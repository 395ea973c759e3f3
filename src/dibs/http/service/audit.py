"""The audit trail: who did what, kept in the store."""

from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec

from dibs.http.service.data import AuditEntry
from dibs.ids import new_id
from dibs.limits import clean
from dibs.store import Store

AUDIT = "audit"
LONGEST = 1_000
"""Characters of each of its words."""
KEPT = 1_000
"""The newest entries that are kept."""
TRIMMED_EVERY = 50
"""How often, in entries written from here, older ones are forgotten."""


class Audit:
    """Writes and reads the trail. Entries are named by their ids, which rise with time."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._written = 0

    async def write(
        self,
        actor: str,
        action: str,
        target: str,
        count: int | None = None,
        *,
        reason: str = "",
        batch: UUID | None = None,
    ) -> None:
        """Put an entry at the end."""
        store = await self._store()
        # Cleaned: what was done must not fail to be told because of a text that no store takes.
        words = {"actor": actor, "action": action, "target": target, "reason": reason}
        told = {name: clean(word, LONGEST) for name, word in words.items()} | {"count": count}
        named = None if batch is None else str(batch)
        at = (await store.kept(())).now
        await store.keep(AUDIT, {str(new_id()): {**told, "batch": named, "at": at.isoformat()}})
        self._written += 1
        if self._written % TRIMMED_EVERY == 0:
            await trim(store, AUDIT, KEPT)

    async def entries(self, limit: int = 100) -> tuple[AuditEntry, ...]:
        """The newest first."""
        found = (await (await self._store()).kept([AUDIT])).values[AUDIT]
        names = sorted(found, reverse=True)[:limit]
        return tuple(entry for name in names if (entry := _entry(name, found[name])) is not None)


async def trim(store: Store, kind: str, most: int) -> None:
    """Forget all but the newest."""
    names = sorted((await store.kept([kind])).values[kind])
    if len(names) > most:
        await store.keep(kind, dict.fromkeys(names[: len(names) - most]))


def _entry(name: str, value: object) -> AuditEntry | None:
    try:
        return msgspec.convert({**value, "id": name}, AuditEntry)  # type: ignore[dict-item]
    except (msgspec.ValidationError, TypeError):
        return None  # of another version
