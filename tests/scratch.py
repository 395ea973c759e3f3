"""Where a run of the tests has its files: in memory, where there is room for them."""

import os
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM = (16 if os.environ.get("DIBS_FAULTS") == "full" else 4) << 30
"""Bytes that must be free. A run needs far less at any time; races at full size are about a million jobs."""


def use_memory(folder: Path = SHARED_MEMORY) -> None:
    """Temporary folders of this process, and of those that it starts, are in `folder`, if that can be.

    The tests make hundreds of databases, each of a thousand files. What a disk makes of that depends on the disk and on
    the hour; nothing that is tested does. Whoever sets TMPDIR has chosen already.
    """
    if "TMPDIR" not in os.environ and _is_good(folder):
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def _is_good(folder: Path) -> bool:
    """Programs of a server may be copied there, to be run by another user."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return False
    there = os.statvfs(folder)
    return not there.f_flag & os.ST_NOEXEC and there.f_bavail * there.f_frsize >= ROOM
