"""Time that flies: seconds pass for a worker, none for the test.

While time flies, a loop that has nothing to do jumps to its next timer instead of waiting for it. Whatever asks
``time.monotonic()`` sees the jump, the timers of the loop among them. Threads that sleep go on sleeping, so fly only
while nobody waits for one.
"""

import asyncio
import inspect
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Story = Callable[..., Coroutine[Any, Any, None]]


class Flight(selectors.DefaultSelector):
    """What a loop waits with."""

    def __init__(self) -> None:
        super().__init__()
        self._monotonic = time.monotonic
        self._ahead = 0.0
        self._flying = False

    def monotonic(self) -> float:
        return self._monotonic() + self._ahead

    def select(self, timeout: float | None = None) -> Any:
        if not self._flying or timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._ahead += timeout
        return ready

    async def fly(self, seconds: float) -> None:
        """Let so much time pass."""
        self._flying = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._flying = False


def flown(story: Story) -> Callable[..., None]:
    """A test that is given a ``flight``, beside its fixtures, and runs in its loop."""

    def test(**fixtures: Any) -> None:
        flight = Flight()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", flight.monotonic)
            with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(flight)) as runner:
                runner.run(story(flight=flight, **fixtures))

    wanted = inspect.signature(story)
    others = [parameter for name, parameter in wanted.parameters.items() if name != "flight"]
    test.__signature__ = wanted.replace(parameters=others)  # type: ignore[attr-defined]
    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test
