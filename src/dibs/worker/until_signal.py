"""A worker in a process of its own: SIGTERM and SIGINT stop it, and nothing that a handler does."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from dibs.worker.log import log
from dibs.worker.stats import Stats
from dibs.worker.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_MOMENT = 5.0
"""Seconds after the second signal when the process ends, whatever a handler does."""
YOUNG = 5_000
"""Objects that may come up before Python looks for garbage among them."""


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
            worker.cut_short_by = number
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


def run_process(worker: Worker, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Stats:
    """As ``run_with_signals``, in a loop of its own: the whole life of a worker process.

    A SystemExit or KeyboardInterrupt that leaves a task ends the loop that runs it, with every job on it. Handlers
    are guarded against their own; what they start with ``create_task`` is not. So the loop is started again.
    """
    collect_less_often()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        working = loop.create_task(run_with_signals(worker))
        while True:
            try:
                return loop.run_until_complete(working)
            except (SystemExit, KeyboardInterrupt) as problem:
                if working.done() or signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    raise  # its own, or Ctrl-C before anybody listened
                said = f"{type(problem).__name__}({problem})"
                log.error("%s: %s in a task that a handler started; going on", worker.name, said, exc_info=problem)


def collect_less_often() -> None:
    """Have Python look for garbage less often than after every 700 new objects, if it looks at all.

    A worker in a hurry holds hundreds of jobs, so every look finds thousands of objects and none that is garbage: it
    took a seventh of the processor time of a worker on PostgreSQL or Redis. An app can set it anew in a startup hook.
    """
    first, *others = gc.get_threshold()
    if 0 < first < YOUNG:
        gc.set_threshold(YOUNG, *others)
