"""How much room limits leave, for claims without scripts: what ``lua/room.lua`` does, from a look at the server."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec

from dibs import limits as rules
from dibs.stores.redis.limiting import Stored, to_stored
from dibs.stores.redis.wire import Command

Ask = Callable[..., Awaitable[list[Any]]]
"""Sends commands on the connection of the claim, and answers what they do."""
Group = tuple[bytes, bytes]
"""A task, and a limit key or nothing: jobs that come under the same limits."""


class Use(msgspec.Struct):
    """One limit, or that of one key, and how far it is used."""

    limit: Stored
    counted: tuple[bytes, ...]
    """The sets that hold the jobs that run."""
    bucket: bytes
    member: bytes
    running: int = 0
    full_at: int = 0

    def has_room(self, now: int) -> bool:
        if self.limit.concurrency >= 0 and self.running >= self.limit.concurrency:
            return False
        return self.limit.rate is None or rules.opens_at(self.limit.rate, self.full_at) <= now

    def start(self, now: int) -> None:
        self.running += 1
        if self.limit.rate is not None:
            self.full_at = rules.after_start(self.limit.rate, self.full_at, now)


class Rooms:
    """The limits that jobs of one queue come under, as they are at one moment."""

    def __init__(self, root: bytes, queue: bytes, now: int) -> None:
        self._root, self._queue, self._now = root, queue, now
        self._limits: dict[bytes, Stored] = {}
        self._uses: dict[bytes, Use] = {}

    async def look(self, ask: Ask, groups: Collection[Group], *, watch: bool) -> None:
        """See what these groups come under; ``watch``: the transaction fails if any of it changes."""
        root, queue = self._root, self._queue
        fields = [b"q:" + queue, b"k:" + queue, *{b"t:" + task for task, _ in groups}]
        if watch:
            await ask(("WATCH", root + b"limits"))
        [texts] = await ask(("HMGET", root + b"limits", *fields))
        self._limits = {field: to_stored(text) for field, text in zip(fields, texts, strict=True) if text}
        self._uses = dict(use for group in groups for use in self._under(group))
        if not self._uses:
            return
        uses = list(self._uses.values())
        if watch:
            await ask(("WATCH", *{key for use in uses for key in (*use.counted, use.bucket)}))
        answers = iter(await ask(*(question for use in uses for question in self._questions(use))))
        for use in uses:
            use.running = sum(next(answers) for _ in use.counted)
            use.full_at = int(float(next(answers) or 0))

    def _under(self, group: Group) -> Iterable[tuple[bytes, Use]]:
        root, queue, (task, key) = self._root, self._queue, group
        rates = root + b"rates"
        own, of_task = b"q:" + queue, b"t:" + task
        if limit := self._limits.get(own):
            yield own, Use(limit, (root + b"l:" + queue, root + b"x:" + queue), rates, own)
        if limit := self._limits.get(of_task):
            yield of_task, Use(limit, (root + b"c:t:" + task,), rates, of_task)
        if key and (limit := self._limits.get(b"k:" + queue)):
            counted = root + b"c:k:" + queue + b"\t" + key
            yield b"k:" + key, Use(limit, (counted,), rates + b":" + queue, key)

    def _questions(self, use: Use) -> Iterable[Command]:
        for key in use.counted:
            yield ("ZCOUNT", key, f"({self._now}", "+inf")
        yield ("ZSCORE", use.bucket, use.member)

    def _of(self, group: Group) -> list[Use]:
        task, key = group
        names = (b"q:" + self._queue, b"t:" + task, b"k:" + key if key else b"")
        return [self._uses[name] for name in names if name in self._uses]

    def open(self, group: Group) -> bool:
        """Another job of the group may start."""
        return all(use.has_room(self._now) for use in self._of(group))

    def full_key(self, key: bytes) -> bool:
        """The limit of this key holds its jobs back."""
        use = self._uses.get(b"k:" + key)
        return use is not None and not use.has_room(self._now)

    def start(self, group: Group) -> bool:
        """A job of the group starts; true if its task has a limit, and counts it."""
        for use in self._of(group):
            use.start(self._now)
        return b"t:" + group[0] in self._uses

    def commands(self) -> list[Command]:
        """What the buckets of those that have started hold now."""
        rated = (use for use in self._uses.values() if use.limit.rate is not None)
        return [("ZADD", use.bucket, use.full_at, use.member) for use in rated if use.full_at > self._now]
