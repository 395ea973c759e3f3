"""Ending asyncio tasks for good."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancel tasks until all have ended; what they raise is of no interest any more.

    Once is not enough: in Python 3.11 a cancel that arrives together with an answer that ``wait_for`` waits for is
    forgotten, in a driver too.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=0.2)
        for task in done:
            if not task.cancelled():
                task.exception()
