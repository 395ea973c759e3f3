"""A worker in a process of its own: SIGTERM and SIGINT stop it."""

import os
import signal
import threading
from types import FrameType
from typing import Any

from dibs.worker.stats import Stats
from dibs.worker.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_MOMENT = 5.0
"""Seconds after the second signal when the process ends, whatever a handler does."""


async def run_with_signals(worker: Worker) -> Stats:
    """Run in the main thread. The first SIGTERM or SIGINT stops the worker gracefully, a second one at once.

    These are signal handlers of Python, not of the loop: they are heard while a job's handler blocks the loop.
    """
    heard = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        worker.stop(now=heard > 1)
        if heard == 2:
            ending = threading.Timer(LAST_MOMENT, os._exit, [128 + number])
            ending.daemon = True
            ending.start()
        elif heard > 2:
            os._exit(128 + number)

    before: dict[signal.Signals, Any] = {each: signal.signal(each, stop) for each in SIGNALS}
    try:
        return await worker.run()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
