"""litequeue has no worker of its own: the loop is what its documentation shows."""

import json
import time

from litequeue import LiteQueue

from bench.peers.scripts.side import URL, Job, handle, setting


def _queue() -> LiteQueue:
    return LiteQueue(URL.removeprefix("sqlite:///"))


def setup() -> None:
    _queue().close()


class Client:
    chunk = 10_000

    def open(self) -> None:
        self._queue = _queue()

    def close(self) -> None:
        self._queue.close()

    def one(self, job: Job) -> None:
        self._queue.put(json.dumps(job.arguments))

    def bulk(self, jobs: list[Job]) -> None:
        with self._queue.transaction():
            for job in jobs:
                self.one(job)


def worker() -> None:
    queue, pause = _queue(), setting("poll", 0.01)
    while True:
        message = queue.pop()
        if message is None:
            time.sleep(pause)
            continue
        handle(**json.loads(message.data))
        queue.done(message.message_id)
