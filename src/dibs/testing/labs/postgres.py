"""The PostgreSQL store in the lab: the clock of the schema is replaced by one that reads a table."""

from datetime import datetime
from typing import Any

import asyncpg

from dibs.store import Store
from dibs.stores.postgres import PostgresStore
from dibs.stores.postgres.schema import up
from dibs.testing.labs.base import Lab

_FAKE_CLOCK = """
create table if not exists dibs.fake_clock (now timestamptz not null);
create or replace function dibs.clock() returns timestamptz language sql volatile
as 'select now from dibs.fake_clock';
"""
_EMPTY = """
delete from dibs.fake_clock; delete from dibs.job; delete from dibs.finished; delete from dibs.queue;
delete from dibs.worker; delete from dibs.flow; delete from dibs.need;
delete from dibs.kept_value; delete from dibs.key_window;
delete from dibs.scope; delete from dibs.bucket; delete from dibs.slot; delete from dibs.passed;
"""


_REAL_CLOCK = """
create or replace function dibs.clock() returns timestamptz language sql volatile parallel safe
as ' select clock_timestamp() '
"""


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
        self._database = url
        self._connection: Any = None

    async def start(self) -> None:
        self._connection = await asyncpg.connect(self._database)
        await up(self._connection)
        await self._connection.execute(_FAKE_CLOCK + _EMPTY)
        await self._connection.execute("insert into dibs.fake_clock values ($1)", self.now)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self._connection.close()

    async def _open(self) -> Store:
        assert self.url is not None
        return PostgresStore(f"{self.url}&look_every={self._look_every}")

    async def share(self) -> str | None:
        await self._connection.execute(_REAL_CLOCK)
        return self.url

    async def _set_clock(self, now: datetime) -> None:
        await self._connection.execute("update dibs.fake_clock set now = $1", now)
