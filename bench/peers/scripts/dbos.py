import threading
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.peers.scripts.side import PLAIN, URL, Job, handle, handle_async, setting

ADDRESS = URL.replace("postgresql://", "postgresql+psycopg://")
CONFIG: Any = {
    "name": "bench",
    "system_database_url": ADDRESS,
    "log_level": "WARNING",
    "application_version": "1",
    "sys_db_pool_size": 20,
}


async def noop(i: int, t: float = 0.0) -> None:
    await handle_async(i, t)


def plain_noop(i: int, t: float = 0.0) -> None:
    handle(i, t)


DBOS.workflow(name="noop")(plain_noop if PLAIN else noop)


def setup() -> None:
    DBOS(config=CONFIG)
    DBOS.launch()
    # Now, too: a worker comes down to a shorter interval only step by step.
    DBOS.register_queue("q", polling_interval_sec=setting("poll", 1.0))
    DBOS.destroy()


class Client:
    def open(self) -> None:
        self._client = DBOSClient(system_database_url=ADDRESS)
        self._engine = sqlalchemy.create_engine(ADDRESS)
        self._options: Any = {
            "queue_name": "q",
            "workflow_name": "noop",
            "app_version": "1",
            "application_name": "bench",
        }

    def close(self) -> None:
        self._client.destroy()

    def one(self, job: Job) -> None:
        self._client.enqueue(self._options, *job.arguments.values())

    def bulk(self, jobs: list[Job]) -> None:
        with self._engine.begin() as connection:
            for job in jobs:
                self._client.enqueue_in_transaction(connection, self._options, *job.arguments.values())


def worker() -> None:
    DBOS(config=CONFIG)
    DBOS.launch()
    most = setting("c", 0)
    DBOS.register_queue(
        "q",
        polling_interval_sec=setting("poll", 1.0),
        worker_concurrency=most or None,
        on_conflict="always_update",
    )
    threading.Event().wait()
