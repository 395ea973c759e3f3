"""What the programs of the benchmark have in common: which stores, and where the figures go."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.lib.environment import environment


def named(stores: str, known: tuple[str, ...]) -> list[str]:
    """The stores that an option names, with commas between them."""
    names = stores.split(",")
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"no store is called {unknown[0]!r}: there are {', '.join(known)}")
    return names


def keep(path: Path, versions: Mapping[str, str], **found: Any) -> None:
    """Write what was found as JSON, with where it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"environment": environment(versions), **found}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
