import os
from typing import Any

from celery import Celery

from bench.peers.scripts.side import URL, Job, handle, setting

app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=setting("prefetch", 4),
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
noop: Any = app.task(name="noop", ignore_result=True)(handle)


class Client:
    def open(self) -> None: ...

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        noop.apply_async(kwargs=job.arguments)


def worker() -> None:
    command = ["celery", "-A", "bench.peers.scripts.celery", "worker", "-l", "WARNING", "-n", f"w{os.getpid()}@bench"]
    command += ["-P", setting("pool", "prefork"), "-c", str(setting("c", 2))]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    os.execvp("celery", command)
