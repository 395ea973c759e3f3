"""Ends the children of a worker that was killed: a program of its own, one per pool, standard library only.

A child notices by itself that its worker is gone, but not while its handler holds the GIL, and not what the
handler started. The guard does nothing else, so nothing keeps it from killing both.

    python -I -S guard.py PID     PID is the worker's
    stdin                         "+12" watch over the process group 12, "-12" it has ended; one a line.
                                  Its end means that the worker is gone.
"""

import os
import select
import signal
import sys


def main(worker: int) -> None:
    groups: set[int] = set()
    # What stops a worker is not for its guard, which has to be the last to go.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pending = b""
    watched = [0, *_end_of(worker)]
    while os.getppid() == worker:
        ready, _, _ = select.select(watched, [], [], 1.0)
        if 0 not in ready:
            continue
        told = os.read(0, 65536)
        if not told:
            break
        *lines, pending = (pending + told).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    _drain(groups, pending)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _drain(groups: set[int], pending: bytes) -> None:
    """What the worker wrote just before it went: a fork of it may keep the pipe open, so never wait."""
    while select.select([0], [], [], 0)[0] and (told := os.read(0, 65536)):
        pending += told
    for line in pending.split(b"\n")[:-1]:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))


def _end_of(worker: int) -> list[int]:
    """Readable once the worker has ended, where the system has such a thing; else we look every second."""
    try:
        return [os.pidfd_open(worker)]
    except (AttributeError, OSError):
        return []


if __name__ == "__main__":
    main(int(sys.argv[1]))
