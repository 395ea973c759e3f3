"""The code blocks of the documentation, and its shell sessions, ready to be run.

A page is a session if it has a ``console`` block. Its Python blocks that begin with a file's name (``# shop.py``) are
written to that file when the session gets there; lines that begin with ``$`` are run, and what stands below them has to
come out, line by line; ``…`` stands for anything. A command that ends with ``&`` goes on until the page has ended.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from docs.build import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
_PATIENCE = 120


class Block(msgspec.Struct, frozen=True):
    """One fenced block of a page."""

    page: str
    number: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it says it is."""
        found = _FILE.match(self.text) if self.language == "python" else None
        return found[1] if found else None


class Command(msgspec.Struct, frozen=True):
    """One command of a session, and the lines that it has to print."""

    line: str
    expected: tuple[str, ...]


def pages() -> dict[str, list[Block]]:
    """The blocks of every page, in their order."""
    found = {}
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        name = str(path.relative_to(ROOT))
        blocks = enumerate(_BLOCK.finditer(path.read_text()), 1)
        found[name] = [Block(name, number, block[1], block[2]) for number, block in blocks]
    return found


def is_session(blocks: list[Block]) -> bool:
    return any(block.language == "console" for block in blocks)


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block."""
    line, expected = "", list[str]()
    for each in text.splitlines():
        if each.startswith("$ "):
            if line:
                yield Command(line, tuple(expected))
            line, expected = each[2:], []
        elif line.endswith("\\") and not expected:
            line = f"{line}\n{each}"
        else:
            expected.append(each)
    if line:
        yield Command(line, tuple(expected))


# --- running a session --------------------------------------------------------------------------------------


def run_session(blocks: list[Block], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Do what the page says, as its reader would; what came out otherwise than it says, in sentences."""
    steps: list[Command] = []
    script = ["set -u"]
    for block in blocks:
        if block.file is not None:
            script.append(f"cat > {block.file} <<'END-OF-FILE'\n{block.text}END-OF-FILE")
        elif block.language == "console":
            for command in commands(block.text):
                number = len(steps)
                steps.append(command)
                script.append(f"{{ {command.line}\n}} > {number}.out 2>&1\necho $? > {number}.rc")
    script.append("kill $(jobs -p) 2>/dev/null\nwait")
    _run(script, folder, _with_commands(folder, environment))
    return [line for number, step in enumerate(steps) for line in _wrong(step, folder, number)]


def _with_commands(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment where ``dibs`` and ``python`` are those that the tests run with."""
    binaries = folder / ".bin"
    binaries.mkdir()
    for name, arguments in {"dibs": " -m dibs", "python": ""}.items():
        binary = binaries / name
        binary.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        binary.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    return {**kept, **environment, "PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "120"}


def _run(script: list[str], folder: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-c", "\n".join(script)]
    running = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        running.wait(_PATIENCE)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def _wrong(step: Command, folder: Path, number: int) -> Iterator[str]:
    output, code = folder / f"{number}.out", folder / f"{number}.rc"
    said = output.read_text() if output.exists() else ""
    if not code.exists():
        yield f"$ {step.line}\ndid not end:\n{said}"
    elif code.read_text().strip() != "0":
        yield f"$ {step.line}\nended with {code.read_text().strip()}:\n{said}"
    else:
        lines = iter(said.splitlines())
        for wanted in step.expected:
            pattern = re.compile(".*".join(map(re.escape, wanted.rstrip().split("…"))))
            if wanted.strip() and not any(pattern.fullmatch(line.rstrip()) for line in lines):
                yield f"$ {step.line}\nshould print {wanted!r}, and printed:\n{said}"
                return
