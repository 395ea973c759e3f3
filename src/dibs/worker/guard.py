"""A handler on the loop goes on only while its lease is valid."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from time import monotonic
from typing import Any

from dibs.worker.run import Run, Why


async def guarded(handler: Coroutine[Any, Any, Any], run: Run) -> Any:
    """Drive the handler, and look at the clock each time it is about to go on.

    A process that was stopped past the lease wakes up in the middle of its handlers, before the heartbeat has had a
    turn: each gets a CancelledError instead of its next step. One that never waits costs no look at all.
    """
    try:
        step = handler.send(None)
    except StopIteration as returned:
        return returned.value
    return await _going_on(handler, run, step)


@types.coroutine
def _going_on(handler: Coroutine[Any, Any, Any], run: Run, step: Any) -> Generator[Any, Any, Any]:
    """The same from where it waits for the first time, which is for ``step``."""
    try:
        while True:
            try:
                value = yield step
            except GeneratorExit:
                handler.close()
                raise
            except BaseException as problem:
                if run.lost and run.why is Why.STOP:  # the worker has waited long enough for it to obey
                    handler.close()
                    raise
                step = handler.throw(problem)
            else:
                if run.until <= monotonic() and not run.ended and run.why is None:
                    run.cancelled = run.lost = True
                    run.why = Why.LOST
                    step = handler.throw(asyncio.CancelledError("the lease is lost"))
                else:
                    step = handler.send(value)
    except StopIteration as returned:
        return returned.value
