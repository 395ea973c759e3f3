"""The servers that the tests themselves rest on."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dibs.stores.schema import open_schema
from tests import scratch
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory
from tests.servers import (
    PostgresAddress,
    PostgresServer,
    RedisAddress,
    RedisServer,
    ServerError,
    find_postgres,
    find_redis,
)

ROOT = Path(__file__).parents[2]
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no pidfd")


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("label", POSTGRES_LABELS)
def test_a_shared_postgres_answers_over_tcp_and_socket(
    label: str, postgres_servers: Mapping[str, PostgresAddress]
) -> None:
    server = postgres_servers[label]
    assert accepts(server.port)
    assert server.execute("SHOW server_version").startswith(label.removeprefix("postgres-"))
    assert server.execute("SHOW synchronous_commit") == "on"


@pytest.mark.parametrize("label", POSTGRES_LABELS)
def test_each_database_is_new_and_empty(
    label: str, postgres_servers: Mapping[str, PostgresAddress], postgres_database: DatabaseFactory
) -> None:
    names = [postgres_database(label).rpartition("/")[2] for _ in range(2)]
    server = postgres_servers[label]
    server.execute("CREATE TABLE mine ()", database=names[0])
    count = "SELECT count(*) FROM pg_class WHERE relname = 'mine'"
    assert [server.execute(count, database=name) for name in names] == ["1", "0"]


@pytest.mark.parametrize("label", POSTGRES_LABELS)
def test_each_migrated_database_has_the_schema_as_a_migration_makes_it_and_no_jobs(
    label: str,
    postgres_servers: Mapping[str, PostgresAddress],
    postgres_database: DatabaseFactory,
    migrated_database: DatabaseFactory,
) -> None:
    made, *copies = postgres_database(label), migrated_database(label), migrated_database(label)
    asyncio.run(open_schema(made).up())
    dumps = {asyncio.run(open_schema(url).dump()) for url in (made, *copies)}
    assert len(dumps) == 1
    server, names = postgres_servers[label], [url.rpartition("/")[2] for url in copies]
    server.execute("INSERT INTO dibs.queue (name) VALUES ('mine')", database=names[0])
    assert [server.execute("SELECT count(*) FROM dibs.queue", database=name) for name in names] == ["1", "0"]


@pytest.mark.parametrize("label", REDIS_LABELS)
def test_each_redis_database_is_empty_and_flushing_one_leaves_the_others(
    label: str, redis_servers: Mapping[str, RedisAddress], redis_database: DatabaseFactory
) -> None:
    import redis

    urls = [redis_database(label) for _ in range(2)]
    with redis.Redis.from_url(urls[0]) as one, redis.Redis.from_url(urls[1]) as other:
        one.set("key", "1")
        assert other.dbsize() == 0
        redis_servers[label].flush(int(urls[1].rpartition("/")[2]))
        assert one.dbsize() == 1


def test_postgres_keeps_its_data_through_a_crash_and_is_gone_after_stop() -> None:
    with PostgresServer(find_postgres()[-1]) as server:
        server.create_database("kept")
        server.address.execute("CREATE TABLE kept AS SELECT 7 AS n", database="kept")
        for crash in (server.restart, server.kill, server.kill):
            crash()
            server.start()
            assert server.address.execute("SELECT n FROM kept", database="kept") == "7"
        port, folder = server.address.port, Path(server.address.socket_dir)
    assert not accepts(port)
    assert not folder.exists()


def test_durable_settings_reach_the_server() -> None:
    with PostgresServer(find_postgres()[-1], durable=True, work_mem="5MB") as server:
        shown = [server.address.execute(f"SHOW {name}") for name in ("fsync", "work_mem")]
    assert shown == ["on", "5MB"]


def test_redis_starts_again_on_its_port_and_is_gone_after_stop() -> None:
    with RedisServer(find_redis()[0]) as server:
        port = server.address.port
        server.kill()
        assert not accepts(port)
        server.start()
        server.restart()
        server.flush()
        assert server.address.port == port
    assert not accepts(port)


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerError, match="maxmemory-policy"):
        RedisServer(find_redis()[0], maxmemory_policy="nonsense").start()


# --- the owner's end is the server's end --------------------------------------------------------

# Starts one server, prints its process id and folder, and waits for its own end.
OWNER = """
    import signal, sys
    from pathlib import Path
    from tests.servers import *

    kind, install = sys.argv[1], {"postgres": find_postgres, "redis": find_redis}
    Server = {"postgres": PostgresServer, "redis": RedisServer}[kind]
    with Server(install[kind]()[-1]) as server:
        print(server.pid, server._path, flush=True)
        signal.pause()
"""


@contextmanager
def owner_of(kind: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Another process with a server of its own: that process, the server's pid, its folder."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        try:
            yield owner, int(pid), Path(folder)
        finally:
            owner.kill()


@needs_pidfd
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_ends_with_its_owner(kind: str, number: signal.Signals) -> None:
    with owner_of(kind) as (owner, pid, folder):
        server, keeper = os.pidfd_open(pid), os.pidfd_open(parent_of(pid))
        try:
            owner.send_signal(number)
            assert has_ended(server)
            assert has_ended(keeper)
            owner.wait(30)
        finally:
            os.close(server)
            os.close(keeper)
        assert not folder.exists()


@needs_pidfd
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux only")
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_ends_with_its_keeper(kind: str) -> None:
    with owner_of(kind) as (owner, pid, folder):
        server = os.pidfd_open(pid)
        try:
            os.kill(parent_of(pid), signal.SIGKILL)
            assert has_ended(server)
        finally:
            os.close(server)
        owner.send_signal(signal.SIGINT)
        owner.wait(30)
        assert not folder.exists()


def parent_of(pid: int) -> int:
    # The field after the state, which follows the last bracket of the name.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(30_000))


# --- where they are ---------------------------------------------------------------------------


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody said where temporary folders are to be."""
    monkeypatch.setenv("TMPDIR", "")  # so that it is put back
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.usefixtures("no_choice")
def test_temporary_folders_are_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "ROOM", 1)
    scratch.use_memory(tmp_path)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)


@pytest.mark.usefixtures("no_choice")
def test_temporary_folders_stay_where_they_are_if_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "ROOM", 1 << 60)
    scratch.use_memory(tmp_path)
    scratch.use_memory(tmp_path / "nowhere")
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() != str(tmp_path)


def test_whoever_sets_tmpdir_has_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr(scratch, "ROOM", 1)
    scratch.use_memory(tmp_path)
    assert os.environ["TMPDIR"] == "/tmp"
