"""Server-sent events: a stream of named events, each with JSON, that browsers read by themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from dibs.http.service.data import Event

PING = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the connection for dead."""
AGAIN = 3_000
"""Milliseconds after which a browser that was cut off asks again."""


async def stream(first: Event, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """The events as bytes. Whoever asks again gets how everything is first, so nothing has to be remembered for him."""
    coming: asyncio.Task[Event | None] = asyncio.create_task(_next(events))
    try:
        yield b"retry: %d\n\n" % AGAIN + _written(first)
        while True:
            done, _ = await asyncio.wait([coming], timeout=PING)
            if not done:
                yield b": still here\n\n"
                continue
            event = coming.result()
            if event is None:
                return
            yield _written(event)
            coming = asyncio.create_task(_next(events))
    finally:
        coming.cancel()
        with suppress(asyncio.CancelledError):
            await coming
        closing: Any = getattr(events, "aclose", None)
        if closing is not None:
            await closing()


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


def _written(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), msgspec.json.encode(event.data))
