"""A handler on the loop goes on only while its lease is valid."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextvars import Context
from time import monotonic
from typing import Any

from dibs.worker.run import Run, Why


async def guarded(handler: Coroutine[Any, Any, Any], run: Run) -> Any:
    """Drive the handler, and look at the clock each time it is about to go on.

    A process that was stopped past the lease wakes up in the middle of its handlers, before the heartbeat has had a
    turn: each gets a CancelledError instead of its next step.
    """
    if _lapsed(run):
        handler.close()
        raise asyncio.CancelledError("the lease is lost")
    try:
        step = handler.send(None)
    except StopIteration as returned:
        run.plan.waits = False
        return returned.value
    run.plan.waits = True
    return await _going_on(handler, run, step)


def _lapsed(run: Run) -> bool:
    """Whether the lease is over and nobody has seen it yet; it is seen now."""
    if run.until > monotonic() or run.ended or run.why is not None:
        return False
    run.cancelled = run.lost = True
    run.why = Why.LOST
    return True


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
                lapsed = _lapsed(run)
                step = handler.throw(asyncio.CancelledError("the lease is lost")) if lapsed else handler.send(value)
    except StopIteration as returned:
        return returned.value


@types.coroutine
def onward(work: Coroutine[Any, Any, Any], step: Any, context: Context) -> Generator[Any, Any, Any]:
    """Drive what has begun by hand from where it waits, which is for ``step``, to its end, in its own context."""
    try:
        while True:
            try:
                value = yield step
            except GeneratorExit:
                context.run(work.close)
                raise
            except BaseException as problem:
                step = context.run(work.throw, problem)
            else:
                step = context.run(work.send, value)
    except StopIteration as returned:
        return returned.value
