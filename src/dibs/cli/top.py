"""``dibs top``: a live screen of queues, rates, workers, what runs longest and what failed last."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import click
from rich.live import Live

from dibs.admin import Admin, Snapshot
from dibs.cli import kinds, show
from dibs.cli.options import administering, json_option, run, store_options
from dibs.cli.top_screen import Rates, picture, rates
from dibs.errors import StoreUnavailable

LEAST = 0.2


@click.command(short_help="Watch queues, workers and failures live.")
@click.option(
    "--interval", default="2s", show_default=True, type=kinds.Span(), metavar="SPAN", help="How often to look."
)
@click.option("--once", is_flag=True, help="Look twice, an interval apart, print, and end.")
@store_options
@json_option
def top(interval: timedelta, once: bool, url: str, as_json: bool) -> None:
    """Watch queues, workers, the longest running jobs and the last failures. Ends with q or Ctrl-C.

    Rates come from the difference of two looks. With --json it looks twice and prints one document.

    \b
      dibs top
      dibs top --interval 500ms
      dibs top --once --json | jq '.rates.mail.finished'
    """
    seconds = max(interval.total_seconds(), LEAST)
    with contextlib.suppress(KeyboardInterrupt):
        run(_once(url, seconds, as_json) if once or as_json or not sys.stdout.isatty() else _watch(url, seconds))


async def _once(url: str, seconds: float, as_json: bool) -> None:
    async with administering(url) as admin:
        before = await admin.snapshot()
        await asyncio.sleep(seconds)
        now = await admin.snapshot()
    if as_json:
        show.emit({"snapshot": now, "rates": rates(before, now)})
    else:
        screen = show.console()
        show.put(screen, picture(now, rates(before, now), show.safe_url(url), screen.width))


async def _watch(url: str, seconds: float) -> None:
    screen = show.console()
    async with administering(url) as admin:
        with _keys() as quit_asked, Live(console=screen, screen=True, auto_refresh=False) as live:
            async for now, speed, trouble in _looks(admin, seconds, quit_asked):
                width, height = screen.size
                seen = picture(now, speed, show.safe_url(url), width, height=height, trouble=trouble)
                live.update(seen, refresh=True)


async def _looks(
    admin: Admin, seconds: float, quit_asked: asyncio.Event
) -> AsyncIterator[tuple[Snapshot, dict[str, Rates], str]]:
    """Look again and again until asked to end. A store that goes away is shown, not fatal."""
    loop, before, now = asyncio.get_running_loop(), await admin.snapshot(), None
    yield before, {}, ""
    pause = min(seconds, 1.0)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(quit_asked.wait(), pause)
        if quit_asked.is_set():
            return
        began, trouble = loop.time(), ""
        try:
            before, now = now or before, await admin.snapshot()
        except StoreUnavailable as problem:
            trouble = str(problem)
        # However long a look takes on a large store, half of the time it is left alone.
        pause = max(seconds, loop.time() - began)
        seen = now or before
        yield seen, rates(before, seen) if seen is not before else {}, trouble


@contextlib.contextmanager
def _keys() -> Iterator[asyncio.Event]:
    """An event that is set when somebody presses q; the terminal is as it was afterwards."""
    asked = asyncio.Event()
    if not sys.stdin.isatty():
        yield asked
        return
    import termios
    import tty

    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)

    def read() -> None:
        if b"q" in os.read(fd, 64).lower():
            asked.set()

    loop.add_reader(fd, read)
    try:
        yield asked
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
