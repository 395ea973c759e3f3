"""What happens, for whoever waits: lines on stderr, so that stdout is the report alone."""

import sys
import time

_began = time.monotonic()


def say(line: str) -> None:
    """One line, with the minutes and seconds since the start."""
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    print(f"{minutes:3d}:{seconds:02d}  {line}", file=sys.stderr, flush=True)
