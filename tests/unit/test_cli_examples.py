"""Every example of the command line, in the guides and in `--help`, names commands and options that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.cli import cli
from tests.unit.commands import Shell

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def _in_guides() -> Iterator[str]:
    for name in ("command-line.md", "keys.md", "limits.md", "operating.md", "schedules.md", "workers.md"):
        for block in re.findall(r"^```\n(.*?)^```", (GUIDES / name).read_text(), re.MULTILINE | re.DOTALL):
            yield from re.findall(r"^dibs .*$", block, re.MULTILINE)


def _in_help(*path: str) -> Iterator[str]:
    text = Shell(Path())(*path, "--help").stdout
    yield from re.findall(r"^ +(dibs .*)$", text, re.MULTILINE)
    for line in text.partition("Commands:\n")[2].splitlines():
        yield from _in_help(*path, line.split()[0])


EXAMPLES = sorted({*_in_guides(), *_in_help()})


def _words(example: str) -> list[str]:
    """What the shell would give to dibs: no pipe, no file, and no explanation behind it."""
    command = re.split(r"\s{2,}| \| | > ", example)[0]
    return shlex.split(command)[1:]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_typed(example: str) -> None:
    # Options and commands are looked up before --help is answered; values are not looked at.
    done = Shell(Path())(*_words(example), "--help")
    assert done.exit_code == 0, done.output


def test_the_guide_names_every_command() -> None:
    guide = "".join((GUIDES / name).read_text() for name in ("command-line.md", "operating.md"))
    from click import Context

    for name in cli.list_commands(Context(cli)):
        assert f"dibs {name}" in guide or name == "demo"
