import os
from typing import Any

from huey import RedisHuey, SqliteHuey

from bench.peers.scripts.side import URL, Job, handle, setting

if URL.startswith("sqlite"):
    huey: Any = SqliteHuey("bench", filename=URL.removeprefix("sqlite:///"), results=False)
else:
    huey = RedisHuey("bench", url=URL, results=False)
noop: Any = huey.task(name="noop")(handle)


class Client:
    def open(self) -> None: ...

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        noop(**job.arguments)


def worker() -> None:
    command = ["huey_consumer", "bench.peers.scripts.huey.huey", "-n", "-q"]
    command += ["-w", str(setting("w", 1)), "-k", setting("k", "thread")]
    command += ["-d", str(setting("d", 0.1)), "-m", str(setting("m", 10.0))]
    os.execvp("huey_consumer", command)
