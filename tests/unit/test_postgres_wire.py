"""Values on their way to the driver and back come out as the driver's own way has them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from dibs.ids import new_id
from dibs.stores.postgres import wire
from dibs.stores.postgres.connection import connect
from dibs.stores.postgres.options import Options
from tests.conftest import DatabaseFactory
from tests.unit.postgres import NEWEST, needs_postgres

pytestmark = needs_postgres

_IDS = [new_id(), UUID(int=0), UUID(int=2**128 - 1)]
VALUES: list[tuple[str, Any]] = [
    ("uuid[]", _IDS),
    ("uuid[]", []),
    ("uuid[]", None),
    ("integer[]", [1, 0, -1, 2**31 - 1, -(2**31)]),
    ("integer[]", []),
    ("timestamptz", datetime(1970, 1, 1, tzinfo=UTC)),
    ("timestamptz", datetime(9998, 12, 31, 23, 59, 59, 999_999, UTC)),
    ("timestamptz", datetime(2026, 7, 1, 12, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
]


class Sealed:
    """A driver whose inside is not what it is today."""

    def __init__(self, connection: Any) -> None:
        self.set_type_codec = connection.set_type_codec


@pytest.fixture(params=["inside", "public"])
async def taught(request: pytest.FixtureRequest, postgres_database: DatabaseFactory) -> AsyncIterator[Any]:
    url = postgres_database(NEWEST)
    if request.param == "inside":
        connection = await connect(url, Options())
    else:
        connection = await asyncpg.connect(url)
        await wire.teach(Sealed(connection))
    yield connection
    await connection.close()


@pytest.fixture
async def plain(postgres_database: DatabaseFactory) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_database(NEWEST))
    yield connection
    await connection.close()


async def test_values_come_back_as_they_went(taught: Any, plain: Any) -> None:
    for kind, value in VALUES:
        [[back]] = await taught.fetch(f"select $1::{kind}", value)
        assert back == value == await plain.fetchval(f"select $1::{kind}", value)


async def test_json_goes_as_text_and_comes_as_a_value(taught: Any) -> None:
    assert await taught.fetchval("select $1::json", '{"ö": [1, null]}') == {"ö": [1, None]}
    assert await taught.fetchval("select null::json") is None
    assert await taught.fetchval("select $1::json[]", ['"é"', None, "[]"]) == ["é", None, []]
    assert await taught.fetchval("select ($1::json[])[1]::text", ['{"a":  1}']) == '{"a":  1}'


async def test_a_time_without_end_is_the_last_one_there_is(taught: Any) -> None:
    [found] = await taught.fetch("select 'infinity'::timestamptz, '-infinity'::timestamptz")
    assert tuple(found) == (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))


async def test_what_is_no_id_is_refused_before_it_is_sent(taught: Any) -> None:
    with pytest.raises(asyncpg.DataError):
        await taught.fetch("select $1::uuid[]", [1])
    assert await taught.fetchval("select 1") == 1


def test_only_so_many_times_are_remembered() -> None:
    moments, first = wire._Moments(), datetime(2000, 1, 1, tzinfo=UTC)
    for number in range(5_000):
        assert moments[wire._moment(first + timedelta(seconds=number))] == first + timedelta(seconds=number)
    assert len(moments) <= wire._MOMENTS_KEPT
