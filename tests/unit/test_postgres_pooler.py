"""PostgreSQL behind a pooler in transaction mode: no two calls can count on the same connection."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from dibs.errors import ConfigurationError
from dibs.job import State
from dibs.outcome import Succeeded, Verdict
from dibs.stores import open_store
from dibs.stores.schema import open_schema
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PgBouncer, PostgresAddress, find_pgbouncer
from tests.unit.postgres import LEASE, jobs, needs_postgres, opened

INSTALLED = find_pgbouncer()
PATIENCE = timedelta(seconds=10)
FOUND_OUT = r"^there is a pooler at .*: add pooler=transaction to the URL$"

pytestmark = [needs_postgres, pytest.mark.skipif(INSTALLED is None, reason="no pgbouncer found")]


@pytest.fixture(params=POSTGRES_LABELS)
def pooled(
    request: pytest.FixtureRequest,
    postgres_servers: Mapping[str, PostgresAddress],
    postgres_database: DatabaseFactory,
) -> Iterator[str]:
    """An empty database behind a pooler that lets every startup parameter pass."""
    assert INSTALLED is not None
    database = urlsplit(postgres_database(request.param)).path[1:]
    with PgBouncer(INSTALLED, postgres_servers[request.param], ignore_startup_parameters="jit") as pooler:
        yield pooler.url(database)


@pytest.mark.parametrize("claim", ["single", "two-phase"])
async def test_jobs_are_done_through_a_pooler(pooled: str, claim: str) -> None:
    options = f"pooler=transaction&claim={claim}"
    assert await open_schema(f"{pooled}?pooler=transaction").up()
    async with opened(pooled, options) as store, opened(pooled, options) as producer:
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        await asyncio.gather(*(producer.enqueue(jobs(2)) for _ in range(50)))
        assert await waiting == {"default"}
        found = await asyncio.gather(*(store.claim("default", f"w{n}", 10, LEASE) for n in range(10)))
        claims = [claim for some in found for claim in some]
        assert len({claim.id for claim in claims}) == len(claims) == 100
        verdicts = await asyncio.gather(*(store.settle([claim.settled(Succeeded())]) for claim in claims))
        assert verdicts == [[Verdict.ACCEPTED]] * 100
        [counts] = await store.counts()
        assert counts.states[State.SUCCEEDED] == 100


async def test_a_pooler_that_was_not_announced_is_found_out(pooled: str) -> None:
    await open_schema(f"{pooled}?pooler=transaction").up()
    with pytest.raises(ConfigurationError, match=FOUND_OUT):
        await _work_without_a_word(pooled)


async def _work_without_a_word(url: str) -> None:
    async with opened(url) as store, opened(url) as other:
        for n in range(20):
            await asyncio.gather(*(each.enqueue(jobs(1 + n % 2)) for each in (store, other) for _ in range(5)))


async def test_a_pooler_that_knows_no_settings_is_found_out(
    postgres_servers: Mapping[str, PostgresAddress], postgres_database: DatabaseFactory
) -> None:
    assert INSTALLED is not None
    label = POSTGRES_LABELS[-1]
    database = urlsplit(postgres_database(label)).path[1:]
    with (
        PgBouncer(INSTALLED, postgres_servers[label]) as pooler,
        pytest.raises(ConfigurationError, match=FOUND_OUT),
    ):
        await open_store(pooler.url(database)).setup()
