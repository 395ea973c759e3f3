"""The PostgreSQL store in the lab: the clock of the schema is replaced by one that reads a table."""

from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from dibs.store import Store
from dibs.stores.postgres import PostgresStore
from dibs.stores.postgres.connection import connect
from dibs.stores.postgres.options import Options, split
from dibs.stores.postgres.pool import Pool
from dibs.stores.postgres.schema import up
from dibs.testing.labs.base import Lab

_FAKE_CLOCK = """
create table if not exists dibs.fake_clock (now timestamptz not null);
create or replace function dibs.clock() returns timestamptz language sql volatile
as 'select now from dibs.fake_clock';
"""
_IS_FAKE = "select prosrc ~ 'fake_clock' from pg_proc where oid = to_regprocedure('dibs.clock()')"
_EMPTY = """
delete from dibs.fake_clock; delete from dibs.job; delete from dibs.finished; delete from dibs.queue;
delete from dibs.worker; delete from dibs.flow; delete from dibs.need;
delete from dibs.kept_value; delete from dibs.key_window;
delete from dibs.scope; delete from dibs.bucket; delete from dibs.slot; delete from dibs.passed;
delete from dibs.taken; delete from dibs.offered;
"""


_REAL_CLOCK = """
create or replace function dibs.clock() returns timestamptz language sql volatile parallel safe
as ' select clock_timestamp() '
"""


class Shelf:
    """Connections that are kept from lab to lab: a new one plans every statement again."""

    def __init__(self) -> None:
        self._connections: dict[str, list[Any]] = {}

    async def take(self, url: str, options: Options | None = None) -> Any:
        """A connection to the database; the options of one from the shelf are those that it was made with."""
        kept = self._connections.setdefault(url, [])
        while kept:
            connection = kept.pop()
            if not connection.is_closed():
                return connection
        return await connect(url, options or Options())

    def put(self, url: str, *connections: Any) -> None:
        self._connections.setdefault(url, []).extend(connections)

    async def close(self) -> None:
        while self._connections:
            _, connections = self._connections.popitem()
            for connection in connections:
                await connection.close()


_SHELVES: WeakKeyDictionary[AsyncExitStack, Shelf] = WeakKeyDictionary()


def _shelf_until(over: AsyncExitStack) -> Shelf:
    """The shelf of all labs that end together."""
    if over not in _SHELVES:
        _SHELVES[over] = Shelf()
        over.push_async_callback(_SHELVES[over].close)
    return _SHELVES[over]


class _ShelfPool(Pool):
    """Takes its connections from a shelf, and puts them back there in the end."""

    def __init__(self, shelf: Shelf, url: str, options: Options) -> None:
        super().__init__(partial(shelf.take, url, options), options.pool)
        self._put = partial(shelf.put, url)

    async def _part_with(self, connections: list[Any]) -> None:
        self._put(*connections)


class _LabStore(PostgresStore):
    def __init__(self, url: str, shelf: Shelf) -> None:
        super().__init__(url)
        self._shelf = shelf

    async def _open_pool(self) -> Pool:
        return _ShelfPool(self._shelf, self._url, self._options)


class PostgresLab(Lab):
    """An empty ``dibs`` schema in a database that belongs to the test.

    Here every claim looks through its queue from the beginning, so that the order is exact to the microsecond also
    among several handles; see ``dibs.stores.postgres.places``. Other processes, in races, use the defaults.
    """

    passes_over = True
    race_jobs = 1_000_000

    def __init__(self, url: str, claim: str = "single", look_every: float = 0) -> None:
        super().__init__()
        self.url = f"{url}{'&' if '?' in url else '?'}claim={claim}"
        self._look_every = look_every
        self._database, _ = split(url)
        self._shelf = Shelf()
        self._connection: Any = None

    async def start(self) -> None:
        if self.over is not None:
            self._shelf = _shelf_until(self.over)
        self._connection = await self._shelf.take(self._database)
        if not await self._connection.fetchval(_IS_FAKE):  # a change to the schema would have all plans made anew
            await up(self._connection)
            await self._connection.execute(_FAKE_CLOCK)
        await self._connection.execute(_EMPTY)
        await self._connection.execute("insert into dibs.fake_clock values ($1)", self.now)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        self._shelf.put(self._database, self._connection)
        if self.over is None:
            await self._shelf.close()

    async def _open(self) -> Store:
        return _LabStore(f"{self.url}&look_every={self._look_every}", self._shelf)

    async def share(self) -> str | None:
        await self._connection.execute(_REAL_CLOCK)
        return self.url

    async def _set_clock(self, now: datetime) -> None:
        await self._connection.execute("update dibs.fake_clock set now = $1", now)
