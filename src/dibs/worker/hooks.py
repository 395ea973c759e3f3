"""Who wants to hear of what: an exception in a hook is logged and harms nobody."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any

from dibs.task import Hook
from dibs.worker.log import log

# One that raises SystemExit shall not end the worker either. A cancel is not theirs to raise.
_ANY = (Exception, SystemExit, KeyboardInterrupt)


class Hooks:
    """Calls hooks, plain and async; those of an attempt are not waited for, so that no job waits for them."""

    def __init__(self, hooks: Mapping[str, Sequence[Hook]]) -> None:
        self._hooks = {event: tuple(some) for event, some in hooks.items() if some}
        self._context = copy_context()  # fired at the end of an attempt, they shall not think they are part of it
        self._going: set[asyncio.Task[None]] = set()

    def __contains__(self, event: str) -> bool:
        return event in self._hooks

    async def call(self, event: str) -> None:
        """Call the hooks of the event one after the other."""
        for hook in self._hooks.get(event, ()):
            try:
                answer = hook()
                if inspect.isawaitable(answer):
                    await answer
            except _ANY:
                log.exception("a hook for %s failed", event)

    def fire(self, event: str, *about: Any) -> None:
        """Call the hooks of the event without waiting for those that are async."""
        for hook in self._hooks.get(event, ()):
            try:
                answer = self._context.copy().run(hook, *about)
            except _ANY:
                log.exception("a hook for %s failed", event)
                continue
            if inspect.isawaitable(answer):
                loop = asyncio.get_running_loop()
                task = loop.create_task(self._finish(event, answer), context=self._context.copy())
                self._going.add(task)
                task.add_done_callback(self._going.discard)

    async def close(self, seconds: float) -> None:
        """Wait for the async ones that still go on, for so long at most."""
        if self._going:
            _, late = await asyncio.wait(self._going, timeout=seconds)
            for task in late:
                task.cancel()

    async def _finish(self, event: str, answer: Any) -> None:
        try:
            await answer
        except _ANY:
            log.exception("a hook for %s failed", event)
