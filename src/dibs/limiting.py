"""Limits as people handle them: declared in code, set and reset at run time, looked at.

A store has one limit for each scope. What code declares is put there by workers, with the lowest rank; what an operator
sets ranks above it. Beside the limits themselves it is kept what code declares and when a worker last said so: so a
reset finds its way back to the code, and a limit that is gone from the code goes.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from dibs import limits
from dibs.errors import ConfigurationError, Refused
from dibs.job import Kept
from dibs.scope import Limit, LimitUse, Rate, Scope
from dibs.store import Store

IN_CODE = "limit in code"
"""Limits that the code of some worker declares, and when a worker last said so."""
CODE, OPERATOR = 0, 1
"""Ranks: what an operator says counts, whatever the code says."""
TELL_EVERY = timedelta(seconds=60)
"""How often somebody says again what code declares."""
GONE = timedelta(minutes=10)
"""A limit that nobody declared for so long is gone from the code, and a worker that sees that takes it away."""


class SetLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it stands."""

    scope: Scope
    limit: Limit
    by: Literal["code", "operator"]
    running: int | None = None
    """How many hold a valid lease; None where each key has its own."""
    next_start: datetime | None = None
    """When the rate lets another job start; None if at once."""
    in_code: Limit | None = None
    """What code declares for the scope: it counts again after a reset."""


# --- words ----------------------------------------------------------------------------------------------------


def rate_of(value: Any) -> Rate | None:
    """A rate, or one in words: ``100/min``. Refused if it is neither."""
    found = Rate.read(value) if isinstance(value, str) else value
    if value is None or isinstance(found, Rate):
        return None if found is None else limits.limited(Limit(rate=found)).rate
    raise Refused(f'a rate is written as "100/min", "5/s" or "10/30s", or as dibs.Rate(100, per=60), not {value!r}')


def scope_of(queue: str | None, task: Any, each_key: bool) -> Scope:
    """The scope that these words mean. A task may be named, or given as it is."""
    name = task if task is None or isinstance(task, str) else getattr(task, "name", None)
    if task is not None and not isinstance(name, str):
        raise Refused(f"task must be a task or its name, not {type(task).__name__}")
    if queue is None and name is None:
        raise Refused('a limit is for a queue or for a task: say queue="mail" or task="charge"')
    return limits.scope(Scope(queue=queue, task=name, each_key=each_key))


def limit_of(concurrency: int | None, rate: Any) -> Limit:
    """The limit that these words mean; Refused if they say nothing."""
    if concurrency is None and rate is None:
        raise Refused("a limit says how many may run at once (concurrency=10), how many may start (rate=…), or both")
    return limits.limited(Limit(concurrency=concurrency, rate=rate_of(rate)))


def in_words(scope: Scope) -> str:
    """``queue mail``, ``each key of queue mail``, ``task charge``."""
    if scope.task is not None:
        return f"task {scope.task}"
    return f"each key of queue {scope.queue}" if scope.each_key else f"queue {scope.queue}"


def limit_in_words(limit: Limit) -> str:
    """``10 at once, 100/min``."""
    parts = [] if limit.concurrency is None else [f"{limit.concurrency:,} at once"]
    return ", ".join([*parts, str(limit.rate)] if limit.rate is not None else parts)


def is_full(use: LimitUse) -> bool:
    """Whether it lets no other job start at this moment, for what is running."""
    concurrency = use.limit.concurrency
    return concurrency is not None and use.running is not None and use.running >= concurrency


def has_no_room(use: LimitUse) -> bool:
    """Whether it lets no other job start at this moment, for what is running or for its rate."""
    return is_full(use) or use.next_start is not None


def declare(declared: MutableMapping[Scope, Limit], scope: Scope, limit: Limit) -> None:
    """Make a limit of this program's code known; a ConfigurationError if another one is declared for the scope."""
    if declared.get(scope, limit) != limit:
        there = limit_in_words(declared[scope])
        raise ConfigurationError(f"{in_words(scope)} is limited already, to {there}: declare one limit for it")
    declared[scope] = limit


# --- at run time ----------------------------------------------------------------------------------------------


class RunTimeLimits:
    """``app.limits``: the limits in the store, which count for every worker from its next claim on."""

    def __init__(self, store: Callable[[], Awaitable[Store]], declared: Mapping[Scope, Limit]) -> None:
        self._store = store
        self._declared = declared

    async def set(
        self,
        *,
        queue: str | None = None,
        task: Any = None,
        each_key: bool = False,
        concurrency: int | None = None,
        rate: Rate | str | None = None,
    ) -> Limit:
        """Limit a queue, each key of a queue, or a task (it, or its name), in place of what was set or is in the code.

        ``await app.limits.set(queue="mail", concurrency=10, rate="100/min")``. It stays until it is set again or reset,
        whatever the code says. Jobs that run go on.
        """
        scope, limit = scope_of(queue, task, each_key), limit_of(concurrency, rate)
        await (await self._store()).limit(scope, limit, rank=OPERATOR)
        return limit

    async def reset(self, *, queue: str | None = None, task: Any = None, each_key: bool = False) -> Limit | None:
        """Take away what was set. What code declares counts again, and is the answer; None if it declares nothing."""
        scope, store = scope_of(queue, task, each_key), await self._store()
        found = await store.kept([IN_CODE])
        back = self._in_code(found).get(scope)
        await store.limit(scope, None)
        if back is not None:
            await store.limit(scope, back, rank=CODE)
        return back

    async def list(self) -> "list[SetLimit]":
        """Every limit that is set, queues first, then tasks, by name."""
        store = await self._store()
        found = self._in_code(await store.kept([IN_CODE]))
        return [
            SetLimit(
                scope=use.scope,
                limit=use.limit,
                by="code" if use.rank == CODE else "operator",
                running=use.running,
                next_start=use.next_start,
                in_code=found.get(use.scope),
            )
            for use in await store.limits()
        ]

    def _in_code(self, found: Kept) -> dict[Scope, Limit]:
        told = {one.scope: one.limit for one in declarations(found).values() if found.now - one.seen_at < GONE}
        return {**told, **self._declared}


# --- what workers say -----------------------------------------------------------------------------------------


class Declared(msgspec.Struct, frozen=True):
    """A limit in code, as a worker told it."""

    seen_at: datetime
    scope: Scope
    limit: Limit


def declarations(found: Kept) -> dict[str, Declared]:
    """What code declares, as far as it can be read."""
    made = {}
    for name, value in found.values[IN_CODE].items():
        try:
            made[name] = msgspec.convert(value, Declared)
        except msgspec.ValidationError:
            continue
    return made


async def tell(store: Store, declared: Mapping[Scope, Limit]) -> None:
    """Have the store keep the limits that this program's code declares, and take away those that no code has any more.

    What an operator has set stays.
    """
    found = await store.kept([IN_CODE])
    known = declarations(found)
    gone = {name: one for name, one in known.items() if found.now - one.seen_at > GONE and one.scope not in declared}
    if not declared and not gone:
        return
    there = {use.scope: use for use in await store.limits()}
    for scope, limit in declared.items():
        use = there.get(scope)
        if use is None or (use.rank == CODE and use.limit != limit):
            await store.limit(scope, limit, rank=CODE)
    for one in gone.values():
        use = there.get(one.scope)
        if use is not None and use.rank == CODE:
            await store.limit(one.scope, None)
    said = _said(declared, known, found.now)
    if said or gone:
        await store.keep(IN_CODE, {**said, **dict.fromkeys(gone)})


def _said(declared: Mapping[Scope, Limit], known: Mapping[str, Declared], now: datetime) -> dict[str, dict[str, Any]]:
    """What has to be said again: what is new, and what nobody said just now."""
    said = {}
    for scope, limit in declared.items():
        one = known.get(name := _name(scope))
        if one is None or one.limit != limit or now - one.seen_at >= TELL_EVERY / 2:
            said[name] = msgspec.to_builtins(Declared(now, scope, limit))
    return said


def _name(scope: Scope) -> str:
    name = in_words(scope)
    return name if len(name) <= limits.NAME_LENGTH else blake2b(name.encode(), digest_size=16).hexdigest()
