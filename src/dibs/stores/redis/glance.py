"""Looking for an answer that is about to come, instead of sleeping until it does."""

import asyncio
import os
import sys
import time
from collections.abc import Callable

PATIENCE = 0.0002
"""A loop is held up for this long, at most, by an answer that does not come."""
MOST_ASLEEP = 1_024
"""After looks in vain, so many calls sleep at most before one looks again."""
_ENOUGH = 65_536


class Glance:
    """One for all connections to a server, which tells how soon it answers.

    A server on the same machine answers a brief call in less time than it takes to fall asleep and to be woken, and
    a look costs no more of the processor than that. So whoever is the only one that waits looks for a moment. Where
    answers take longer, as the server is far away or busy, they sleep: after each look in vain twice as many calls do.
    """

    def __init__(self) -> None:
        self.waiting = 0
        """Exchanges that are under way, or wait for a connection."""
        self._asleep = 0
        self._left = 0

    def is_due(self) -> bool:
        """Whether to look this time."""
        if self.waiting != 1:
            return False  # the loop has others to wake; the more there are, the less each pays for a sleep
        if self._left:
            self._left -= 1
            return False
        return True

    def look(self, socket: int, hear: Callable[[bytes], bool]) -> None:
        """Read what comes within a moment; ``hear`` is told, and says whether that was all."""
        until = time.perf_counter() + PATIENCE
        while True:
            try:
                data = os.read(socket, _ENOUGH)
            except BlockingIOError:
                if time.perf_counter() < until:
                    continue
                self._asleep = self._left = min(2 * self._asleep or 1, MOST_ASLEEP)
                return
            except OSError:
                return  # its transport finds that out, too
            if not data or hear(data):
                self._asleep = 0
                return


def socket_of(transport: asyncio.BaseTransport) -> int | None:
    """A socket that may be read behind the back of its transport; None if bytes on it are not for us, as with TLS."""
    found = transport.get_extra_info("socket")
    if found is None or transport.get_extra_info("ssl_object") is not None or sys.platform == "win32":
        return None
    number: int = found.fileno()
    return number
