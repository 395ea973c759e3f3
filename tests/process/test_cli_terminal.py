"""The command line in a terminal: questions, Ctrl-C, colours, a bar, and the live screen."""

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.job import NewJob
from dibs.stores import open_store


class Terminal:
    """A program in a terminal of its own: what it shows is read, what somebody types is written."""

    def __init__(self, folder: Path, *words: str, columns: int = 80, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DIBS", "NO_COLOR", "COLUMNS"))
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dibs", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**kept, "TERM": "xterm-256color", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C comes from it
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str, seconds: float = 30.0) -> None:
        """Read until that is on the screen."""
        deadline = time.monotonic() + seconds
        while text not in self.plain:
            assert time.monotonic() < deadline, self.plain
            assert self._read(0.1) is not False, self.plain

    def _read(self, patience: float) -> bool | None:
        """True if there was something, None if not yet, False if the program has closed its end."""
        if not select.select([self.master], [], [], patience)[0]:
            return None
        try:
            more = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += more.decode(errors="replace")
        return bool(more)

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self, typed: str = "") -> int:
        """Type that and wait for the end; again after a while, as readline can miss a key while it sets itself up."""
        began = asked = time.monotonic()
        self.type(typed)
        while self._read(0.1) is not False:
            assert time.monotonic() < began + 30, self.plain
            if time.monotonic() > asked + 3:
                asked = time.monotonic()
                self.type(typed)
        return self.process.wait(30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With 3,000 jobs in it."""

    async def fill() -> None:
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")
        await store.setup()
        await store.enqueue([NewJob(task="send", queue="mail") for _ in range(3_000)])
        await store.close()

    asyncio.run(fill())
    return tmp_path


def unfinished(folder: Path) -> int:
    async def count() -> int:
        store = open_store(f"sqlite:///{folder}/jobs.db")
        await store.setup()
        [queue] = await store.counts()
        await store.close()
        return queue.states["queued"]  # type: ignore[index]

    return asyncio.run(count())


def test_many_are_changed_after_a_yes_and_a_bar_shows_how_far_it_is(folder: Path, terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(folder, "jobs", "cancel", "--queue", "mail"))
    terminal.until("Cancel 3,000 jobs? [y/N]:")
    assert terminal.end("y\n") == 0
    assert "/3000" in terminal.plain, "the bar"
    assert terminal.plain.rstrip().endswith("cancelled 3,000 jobs")
    assert unfinished(folder) == 0


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("\n", 1), ("\x03", 130), ("\x04", 130)], ids=repr)
def test_anything_but_a_yes_changes_nothing(folder: Path, terminals: list[Terminal], typed: str, code: int) -> None:
    terminals.append(terminal := Terminal(folder, "jobs", "delete", "--all"))
    terminal.until("Delete 3,000 jobs? [y/N]:")
    assert terminal.end(typed) == code
    assert "Traceback" not in terminal.plain
    assert unfinished(folder) == 3_000


@pytest.mark.parametrize("typed", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_top_lives_until_q_or_ctrl_c_and_leaves_the_terminal_as_it_was(
    folder: Path, terminals: list[Terminal], typed: str
) -> None:
    terminals.append(terminal := Terminal(folder, "top", "--interval", "200ms", columns=50))
    before = termios.tcgetattr(terminal.master)[3]
    terminal.until("3,000 due")
    terminal.until("in 0/s")
    assert terminal.end(typed) == 0
    assert "Traceback" not in terminal.plain
    assert terminal.seen.count("\x1b[?1049h") == terminal.seen.count("\x1b[?1049l") == 1, "the other screen is left"
    assert termios.tcgetattr(terminal.master)[3] == before


def test_top_ends_with_sigterm_too(folder: Path, terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(folder, "top"))
    terminal.until("3,000 due")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.end()


def test_colours_are_for_terminals_and_not_where_no_color_is_set(folder: Path, terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(folder, "jobs", "list", "-n", "1"))
    assert terminal.end() == 0
    assert "\x1b[36m" in terminal.seen
    terminals.append(plain := Terminal(folder, "jobs", "list", "-n", "1", NO_COLOR="1"))
    assert plain.end() == 0
    assert not re.search(r"\x1b\[3\dm", plain.seen)
