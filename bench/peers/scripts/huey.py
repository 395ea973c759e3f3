import os
import sys
from typing import Any

from huey import RedisHuey, SqliteHuey

from bench.peers.scripts.side import URL, Job, handle, setting

if URL.startswith("sqlite"):
    huey: Any = SqliteHuey("bench", filename=URL.removeprefix("sqlite:///"), results=False)
else:
    huey = RedisHuey("bench", url=URL, results=False)
noop: Any = huey.task(name="noop")(handle)

_PATCHED = "from gevent import monkey; monkey.patch_all(); "
"""As its documentation says of greenlets: without it, one that waits holds up all of them."""
_CONSUMER = "from huey.bin.huey_consumer import consumer_main; consumer_main()"


class Client:
    def open(self) -> None: ...

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        noop(**job.arguments)


def worker() -> None:
    kind = setting("k", "thread")
    command = [sys.executable, "-c", (_PATCHED if kind == "greenlet" else "") + _CONSUMER]
    command += ["bench.peers.scripts.huey.huey", "-n", "-q", "-w", str(setting("w", 1)), "-k", kind]
    command += ["-d", str(setting("d", 0.1)), "-m", str(setting("m", 10.0))]
    os.execv(sys.executable, command)
