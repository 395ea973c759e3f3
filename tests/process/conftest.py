"""The stores that processes share."""

from pathlib import Path

import pytest

from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.skipif(not POSTGRES_LABELS, reason="no PostgreSQL found")),
        pytest.param("redis", marks=pytest.mark.skipif(not REDIS_LABELS, reason="no Redis found")),
    ]
)
def shared_url(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_database: DatabaseFactory, redis_database: DatabaseFactory
) -> str:
    """Where several processes find the same jobs, on each store in turn."""
    match request.param:
        case "postgres":
            url = migrated_database(POSTGRES_LABELS[-1])
        case "redis":
            url = redis_database(REDIS_LABELS[-1])
        case _:
            url = f"sqlite:///{tmp_path}/jobs.db"
    return url
