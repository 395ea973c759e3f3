"""Real PostgreSQL and Redis servers for tests and benchmarks: nothing installed, nothing faked.

    from tests.servers import PostgresServer, find_postgres

    with PostgresServer(find_postgres()[-1]) as server:
        url = server.create_database("trial")

A server lives in a temporary folder, listens on 127.0.0.1 only, and cannot outlive the process
that started it, however that process ends.
"""

from tests.servers.find import Installation, find_postgres, find_redis
from tests.servers.fleet import Fleet, FleetClient, FleetService, choose
from tests.servers.pgbouncer import PgBouncer, find_pgbouncer
from tests.servers.postgres import PostgresAddress, PostgresServer
from tests.servers.process import ServerError
from tests.servers.redis import RedisAddress, RedisServer

__all__ = [
    "Fleet",
    "FleetClient",
    "FleetService",
    "Installation",
    "PgBouncer",
    "PostgresAddress",
    "PostgresServer",
    "RedisAddress",
    "RedisServer",
    "ServerError",
    "choose",
    "find_pgbouncer",
    "find_postgres",
    "find_redis",
]
