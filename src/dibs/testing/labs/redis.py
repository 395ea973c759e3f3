"""The Redis store in the lab: keys of its own, and a clock on the server that all handles share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import uuid4

from dibs.clock import to_micros
from dibs.store import Store
from dibs.stores.redis import RedisStore
from dibs.stores.redis.link import Link
from dibs.stores.redis.options import ClaimWay, parse
from dibs.stores.redis.scripts import Script, scripts
from dibs.stores.redis.watch import WatchClaim
from dibs.stores.redis.wire import Command
from dibs.testing.labs.base import Lab

_CLOCK = """
local function clock()
  return tonumber(redis.call('GET', KEYS[1] .. 'clock'))
end
"""


class LabStore(RedisStore):
    """The store with every clock in its scripts replaced by a key."""

    def _load(self) -> dict[str, Script]:
        return scripts(_CLOCK)

    def _watcher(self) -> WatchClaim:
        return _LabWatch(self._link, self._scripts["aside"])


class _LabWatch(WatchClaim):
    def clock_command(self) -> Command:
        return ("GET", self._root + b"clock")

    def read_clock(self, answer: Any) -> int:
        return int(answer)


class RedisLab(Lab):
    """An empty store under a prefix of its own, on a server that is there already."""

    def __init__(self, url: str, claim: ClaimWay = "script") -> None:
        super().__init__()
        self._server, self._claim = url, claim
        self._prefix = f"lab-{uuid4().hex}"
        self._link: Link | None = None

    @classmethod
    def on(cls, url: str, claim: ClaimWay = "script") -> Callable[[], "RedisLab"]:
        """A factory, as the contract suite wants one."""
        return lambda: cls(url, claim)

    async def start(self) -> None:
        self._prefix = f"lab-{uuid4().hex}"
        self.url = f"{self._server}?prefix={self._prefix}&claim={self._claim}"
        self._link = Link(parse(self.url))
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if self._link is not None:
            await self._remove(self._link)
            await self._link.close()

    async def _remove(self, link: Link) -> None:
        cursor = b"0"
        while True:
            pattern = link.root.replace(b"[", b"\\[") + b"*"
            [answer] = await link.exchange(("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
            cursor, keys = answer
            if keys:
                await link.exchange(("UNLINK", *keys))
            if cursor == b"0":
                return

    async def _open(self) -> Store:
        return LabStore(self._server, claim=self._claim, prefix=self._prefix)

    async def _set_clock(self, now: datetime) -> None:
        assert self._link is not None, "start the lab first"
        await self._link.exchange(("SET", self._link.root + b"clock", to_micros(now)))
