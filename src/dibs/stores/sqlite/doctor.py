"""What ``dibs doctor`` looks at in an SQLite file and around it."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from dibs.stores.doctor import Finding, fail, ok, warn
from dibs.stores.sqlite import schema
from dibs.stores.sqlite.connect import JOURNAL_LIMIT, Connection, translated
from dibs.stores.sqlite.options import Options, parse

_NETWORKED = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "gluster", "ceph", "lustre", "glusterfs")
_LITTLE = 100 << 20
_MOUNTS = Path("/proc/self/mounts")


async def examine(url: str) -> list[Finding]:
    """Look at the file without changing it, and do not create it."""
    return await asyncio.to_thread(_examine, parse(url))


def _examine(options: Options) -> list[Finding]:
    path = options.path
    if not path.exists():
        return [fail("store", f"{path} does not exist", "enqueue a job, run dibs migrate up, or correct the URL")]
    db = Connection(options)
    try:
        with translated(options):
            found = schema.status(db)
            mode = db.rows("PRAGMA journal_mode")[0][0]
    finally:
        db.close()
    findings = [
        ok("store", f"{path} can be opened and written"),
        ok("version", f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"),
    ]
    if found.current > found.latest:
        text = f"schema version {found.current} is newer than this dibs knows ({found.latest})"
        findings.append(fail("schema", text, "upgrade dibs here"))
    elif found.pending:
        text = f"schema version {found.current} of {found.latest}" if found.current else "there is no dibs schema"
        findings.append(fail("schema", text, "run dibs migrate up"))
    else:
        findings.append(ok("schema", f"schema version {found.current}"))
    findings.append(ok("clock", "the store's clock is this machine's"))
    return [*findings, *_durability(options, mode), *_disk(path.absolute())]


def _durability(options: Options, mode: str) -> Iterator[Finding]:
    if options.synchronous == "full":
        yield ok("durability", f"synchronous is full, journal mode is {mode}")
    else:
        yield warn(
            "durability",
            "synchronous is normal: a power cut may take the last moments with it",
            "leave synchronous=normal out of the URL if that matters",
        )


def _disk(path: Path) -> Iterator[Finding]:
    kind = file_system(path)
    if kind is not None and kind.startswith(_NETWORKED):
        yield fail("file system", f"{path} is on a network file system ({kind})", "move it to a local disk")
    elif kind is not None:
        yield ok("file system", f"{kind}, local")
    free = shutil.disk_usage(path.parent).free
    if free < _LITTLE:
        yield warn("disk", f"only {free >> 20:,} MiB are free", "make room: enqueues fail when the disk is full")
    else:
        yield ok("disk", f"{free >> 20:,} MiB are free")
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > JOURNAL_LIMIT:
        yield warn(
            "write-ahead log",
            f"{log.name} has grown to {size >> 20:,} MiB",
            "end the program that keeps a read transaction open on the file",
        )


def file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of the file system that a path is on, or None where the system does not say."""
    if not mounts.exists():
        return None
    best, kind = "", None
    target = str(path.resolve())
    for line in mounts.read_text(errors="replace").splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields[1])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
