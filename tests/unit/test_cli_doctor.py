"""`dibs doctor`: what it finds on each store, what it says to do, and how it ends."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs.stores.doctor import Level, clocks
from dibs.stores.sqlite.doctor import file_system
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.servers import PostgresServer, RedisServer, find_postgres, find_redis
from tests.unit.commands import Shell
from tests.unit.postgres import NEWEST, connected, migrated, needs_postgres

needs_redis = pytest.mark.skipif(not REDIS_LABELS, reason="no Redis found")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def findings(shell: Shell, code: int) -> dict[str, dict[str, Any]]:
    """By what was looked at; the worst where something was looked at twice."""
    order = ["ok", "warn", "fail"]
    told = shell.json("doctor", code=code)
    assert told["level"] == order[code]
    return {one["check"]: one for one in sorted(told["findings"], key=lambda one: order.index(one["level"]))}


# --- any store ----------------------------------------------------------------------------------------------


def test_a_healthy_store_ends_with_0(shell: Shell) -> None:
    shell.worker()
    done = shell("doctor")
    assert done.exit_code == 0, done.output
    assert done.stdout.rstrip().endswith("All is well.")
    assert shell("doctor", "--problems").stdout.count("\n") <= 3


def test_a_warning_ends_with_1_and_says_what_to_do(shell: Shell) -> None:
    shell.enqueue(1, run_at=datetime(2040, 1, 1, tzinfo=UTC))
    found = findings(shell, 1)
    assert {name for name, one in found.items() if one["level"] != "ok"} == {"workers"}
    done = shell("doctor")
    assert "→ start one: dibs work APP" in done.stdout
    assert "0 to fix, 1 warning." in done.stdout


def test_jobs_that_nobody_serves_end_with_2(shell: Shell) -> None:
    shell.enqueue(3)
    assert findings(shell, 2)["queue mail"]["fix"] == "start one: dibs work APP --queues mail"


def test_a_store_out_of_reach_ends_with_2_and_shows_no_secret(shell: Shell) -> None:
    for url in ("postgresql://u:hunter2@127.0.0.1:1/shop", "redis://:hunter2@127.0.0.1:1/0"):
        done = shell("doctor", "--url", url)
        assert done.exit_code == 2
        assert "hunter2" not in done.output
        assert "cannot be reached" in done.stdout
        assert "→ start the server, or correct the URL" in done.stdout
    assert shell("doctor", "--url", "mysql://u:hunter2@host/shop").exit_code == 2


def test_memory_is_no_place_for_jobs_that_must_last(shell: Shell) -> None:
    assert shell("doctor", "--url", "memory://").exit_code == 1


@pytest.mark.parametrize(
    ("apart", "level", "said"),
    [
        (0.2, Level.OK, "within 0.200 s"),
        (-0.4, Level.OK, "within 0.400 s"),
        (5, Level.WARN, "5.0 s ahead of this machine's"),
        (-90, Level.FAIL, "90.0 s behind this machine's"),
    ],
)
def test_clocks_that_differ_are_noticed(apart: float, level: Level, said: str) -> None:
    found = clocks(NOW, NOW + timedelta(seconds=apart + 0.05), NOW + timedelta(seconds=0.1))
    assert found.level is level
    assert said in found.text


def test_a_slow_answer_is_not_taken_for_a_wrong_clock() -> None:
    assert clocks(NOW, NOW, NOW + timedelta(seconds=8)).level is Level.OK


# --- SQLite -------------------------------------------------------------------------------------------------


def test_sqlite_looks_at_file_schema_durability_and_disk(shell: Shell) -> None:
    shell.worker()
    found = findings(shell, 0)
    assert {"store", "version", "schema", "clock", "durability", "disk"} <= set(found)
    assert found["durability"]["text"] == "synchronous is full, journal mode is wal"
    shell.url += "?synchronous=normal"
    assert findings(shell, 1)["durability"]["level"] == "warn"


def test_a_file_of_another_program_has_no_schema(shell: Shell) -> None:
    Path(shell.folder, "jobs.db").touch()
    assert findings(shell, 2)["schema"]["fix"] == "run dibs migrate up"


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/a / ext4 rw 0 0\nhost:/x /srv nfs4 rw 0 0\n/dev/b /srv/with\\040space xfs rw 0 0\n")
    assert file_system(Path("/srvice/jobs.db"), mounts) == "ext4"
    assert file_system(Path("/srv/jobs.db"), mounts) == "nfs4"
    assert file_system(Path("/srv/with space/jobs.db"), mounts) == "xfs"
    assert file_system(Path("/srv/jobs.db"), tmp_path / "none") is None


# --- PostgreSQL ---------------------------------------------------------------------------------------------


@needs_postgres
async def test_postgres_without_a_schema_says_how_to_make_one(shell: Shell, postgres_database: DatabaseFactory) -> None:
    shell.url = postgres_database(NEWEST)
    found = await _elsewhere(findings, shell, 2)
    assert found["schema"] == {
        "check": "schema",
        "level": "fail",
        "text": "there is no dibs schema",
        "fix": "run dibs migrate up",
    }


@needs_postgres
async def test_postgres_settings_that_lose_jobs_are_found(shell: Shell, migrated_database: DatabaseFactory) -> None:
    shell.url = migrated_database(NEWEST)
    async with connected(shell.url) as connection:
        name = shell.url.rpartition("/")[2]
        await connection.execute(f'alter database "{name}" set synchronous_commit = off')
        found = await _elsewhere(findings, shell, 2)  # the test servers have fsync off
        texts = [one["text"] for one in (await _elsewhere(shell.json, "doctor", code=2))["findings"]]
    assert found["durability"]["fix"] == "set fsync = on"
    assert any("synchronous_commit is off" in text for text in texts)
    assert found["clock"]["level"] == "ok"
    assert found["failures"]["level"] == "ok", "it goes on to queues and workers"


@needs_postgres
async def test_a_durable_postgres_is_well(shell: Shell) -> None:
    with PostgresServer(find_postgres()[-1], durable=True) as server:
        shell.url = await migrated(server.create_database("shop"))
        await _elsewhere(shell.worker)
        assert (await _elsewhere(findings, shell, 0))["durability"]["text"].startswith("fsync is on")


# --- Redis --------------------------------------------------------------------------------------------------


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with RedisServer(find_redis()[-1], appendonly="yes", appendfsync="always") as server:
        yield server


@needs_redis
def test_a_durable_redis_is_well(shell: Shell, redis_server: RedisServer) -> None:
    shell.url = redis_server.url()
    shell.worker()
    found = findings(shell, 0)
    assert found["durability"]["text"] == "appendonly is on, appendfsync is always"
    assert {"version", "settings", "clock", "memory"} <= set(found)


@needs_redis
def test_redis_without_persistence_is_a_warning(shell: Shell, redis_database: DatabaseFactory) -> None:
    shell.url = redis_database(REDIS_LABELS[-1])
    shell.worker()
    assert findings(shell, 1)["durability"]["fix"] == "set appendonly yes"


@needs_redis
def test_redis_that_drops_keys_is_broken(shell: Shell) -> None:
    with RedisServer(find_redis()[-1], maxmemory_policy="allkeys-lru") as server:
        shell.url = server.url()
        found = findings(shell, 2)
    assert "allkeys-lru" in found["settings"]["text"]
    assert "set maxmemory-policy to noeviction" in found["settings"]["fix"]


async def _elsewhere(work: Any, *words: Any, **named: Any) -> Any:
    """The command line has a loop of its own: not in this one's thread."""
    import asyncio

    return await asyncio.to_thread(work, *words, **named)
