"""What the programs of the benchmark have in common: which stores, and where the figures go."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from bench.lib.arenas import Arena, arena
from bench.lib.environment import environment
from bench.lib.race import DiscrepancyError

T = TypeVar("T")


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


def on_each(
    names: Sequence[str],
    look: Callable[[Arena], Awaitable[list[T]]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> tuple[list[T], dict[str, str]]:
    """What is found on the ground of each store, one after the other, and what was measured: drivers and servers.

    Ends the program with 2 if jobs went wrong: then there are no figures.
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_on_each(names, look))
    except DiscrepancyError as problem:
        click.echo(f"no figures, because jobs went wrong: {problem}", err=True)
        sys.exit(2)


async def _on_each(names: Sequence[str], look: Callable[[Arena], Awaitable[list[T]]]) -> tuple[list[T], dict[str, str]]:
    found: list[T] = []
    versions: dict[str, str] = {}
    for name in names:
        ground = arena(name)
        try:
            await ground.start()
            versions |= ground.versions()
            found += await look(ground)
        finally:
            await ground.stop()
    return found, versions
