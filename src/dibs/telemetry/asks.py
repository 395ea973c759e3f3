"""Asking a worker to stop, through the store: it looks for that about every ten seconds."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dibs.store import Store

ASK = "ask"
"""The kind under which asks are kept, by the worker's name."""
FORGOTTEN = timedelta(days=1)
"""An ask that nobody answered for so long is for a worker that is gone."""


async def ask_to_stop(store: Store, worker: str, by: str = "") -> None:
    """Have a worker stop as it does at SIGTERM: claim no more, finish what runs within its grace time.

    One that is started later under the same name is not meant.
    """
    now = (await store.kept(())).now
    await store.keep(ASK, {worker: {"stop": now.isoformat(), "by": by}})


async def asked_to_stop(store: Store) -> dict[str, dict[str, Any]]:
    """The asks that no worker has answered yet, by worker: when (``stop``), and who asked (``by``)."""
    return (await store.kept((ASK,))).values[ASK]


def stops(asked: Mapping[str, Any] | None, began: datetime) -> bool:
    """Whether that asks a worker to stop that began then."""
    at = _at(asked) if asked is not None else None
    return at is not None and at >= began


async def forget(store: Store, asks: Mapping[str, Mapping[str, Any]], worker: str, now: datetime) -> None:
    """Forget the ask of this worker, which has heard it, and those that nobody will answer any more."""
    gone = [name for name, asked in asks.items() if name == worker or (_at(asked) or now) <= now - FORGOTTEN]
    if gone:
        await store.keep(ASK, dict.fromkeys(gone))


def _at(asked: Mapping[str, Any]) -> datetime | None:
    try:
        at = datetime.fromisoformat(asked["stop"])
    except (KeyError, TypeError, ValueError):  # whoever wrote that did not mean us
        return None
    return at if at.tzinfo is not None else None
