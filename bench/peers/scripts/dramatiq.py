import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.scripts.side import PLAIN, URL, Job, handler, setting

broker = RedisBroker(url=URL)
if not PLAIN:
    from dramatiq.middleware import AsyncIO

    broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)
noop: Any = dramatiq.actor(actor_name="noop")(handler)


class Client:
    def open(self) -> None: ...

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        noop.send(**job.arguments)


def worker() -> None:
    if setting("prefetch", 0):
        os.environ["dramatiq_queue_prefetch"] = str(setting("prefetch", 0))  # noqa: SIM112 (its name)
    program = "dramatiq-gevent" if setting("gevent", 0) else "dramatiq"
    os.execvp(program, [program, "bench.peers.scripts.dramatiq", "-p", "1", "-t", str(setting("t", 8))])
