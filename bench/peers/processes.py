"""What processes cost, read from /proc: processor time, memory, and what the rest of the machine did meanwhile."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _SESSION, _OWN, _REAPED = 1, 3, slice(11, 13), slice(13, 15)


def _fields(pid: int | str) -> list[str]:
    """Those behind the name; nothing if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _every() -> Iterable[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _fields(name)):
            yield int(name), fields


def session(leaders: Iterable[int]) -> list[int]:
    """The processes of these sessions."""
    wanted = set(leaders)
    return [pid for pid, fields in _every() if int(fields[_SESSION]) in wanted]


def family(parent: int) -> list[int]:
    """A server and its children."""
    return [parent, *(pid for pid, fields in _every() if int(fields[_PARENT]) == parent)]


def cpu(pids: Iterable[int]) -> float:
    """Seconds of processor time, of children that have ended too."""
    every = [_fields(pid) for pid in pids]
    return sum(int(tick) for fields in every if fields for tick in (*fields[_OWN], *fields[_REAPED])) / _TICKS


def memory(pids: Iterable[int]) -> float:
    """Megabytes in use."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * _PAGE / 1e6


def machine() -> float:
    """Seconds of processor time that were spent on this machine at all, or taken from it by its host."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS
