"""The stores that the contract suite runs on here: all four, each server version, each way to claim on the newest."""

import os
from functools import cache, partial

import pytest

from dibs.stores.redis.options import ClaimWay
from dibs.testing.labs.base import Lab
from dibs.testing.labs.memory import MemoryLab
from dibs.testing.labs.postgres import PostgresLab
from dibs.testing.labs.redis import RedisLab
from dibs.testing.labs.sqlite import SQLiteLab
from dibs.testing.plugin import LabFactory
from tests.conftest import EVERYTHING, POSTGRES_LABELS, REDIS_LABELS, addresses, redis_numbers
from tests.servers import PgBouncer, PostgresAddress, RedisAddress, find_pgbouncer


def pytest_dibs_labs(config: pytest.Config) -> dict[str, LabFactory]:
    offered: dict[str, LabFactory] = {"memory": _memory, "sqlite": SQLiteLab}
    for label in POSTGRES_LABELS:
        newest = label == POSTGRES_LABELS[-1]
        offered[label] = partial(_postgres, config, label, "single", newest)
        if newest or EVERYTHING:
            offered[f"{label}-two-phase"] = partial(_postgres, config, label, "two-phase", False)
        if EVERYTHING and find_pgbouncer():
            offered[f"{label}-pooler"] = partial(_pooled, config, label)
    for label in REDIS_LABELS:
        newest = label == REDIS_LABELS[-1]
        offered[label] = partial(_redis, config, label, "script", newest)
        if newest or EVERYTHING:
            offered[f"{label}-watch"] = partial(_redis, config, label, "watch", False)
    return offered


def _memory() -> Lab:
    """The model against itself: that it always says the same is soon seen."""
    lab = MemoryLab()
    lab.at_length = False
    return lab


def _postgres(config: pytest.Config, label: str, claim: str, at_length: bool) -> Lab:
    lab = PostgresLab(_database(config, label), claim)
    lab.at_length = at_length
    return lab


class _PooledLab(PostgresLab):
    """The stores go through a pooler; the lab itself, which sets the clock, goes straight to the server."""

    def __init__(self, url: str, pooled: str) -> None:
        super().__init__(f"{pooled}?pooler=transaction")
        self._database = url


def _pooled(config: pytest.Config, label: str) -> Lab:
    url = _database(config, label)
    lab = _PooledLab(url, _pooler(config, label).url(url.rpartition("/")[2]))
    lab.at_length = False
    return lab


@cache
def _pooler(config: pytest.Config, label: str) -> PgBouncer:
    """One for each test process."""
    installed, server = find_pgbouncer(), addresses(config).address(label)
    assert installed is not None
    assert isinstance(server, PostgresAddress)
    pooler = PgBouncer(installed, server)
    pooler.start()
    config.add_cleanup(pooler.stop)
    return pooler


@cache
def _database(config: pytest.Config, label: str) -> str:
    """One database for each test process: a lab empties it, which is faster than to make one for each test."""
    server = addresses(config).address(label)
    assert isinstance(server, PostgresAddress)
    return server.create_database(f"contract_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")


def _redis(config: pytest.Config, label: str, claim: ClaimWay, at_length: bool) -> Lab:
    server = addresses(config).address(label)
    assert isinstance(server, RedisAddress)
    lab = RedisLab(server.url(redis_numbers()[-1]), claim)
    lab.at_length = at_length
    return lab
