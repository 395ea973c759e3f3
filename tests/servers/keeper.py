"""Runs one server and sees to its end: a program of its own, started by `process.py`.

The keeper is the server's parent. It watches the process that asked for the server (the owner) and,
when that is gone for whatever reason, SIGKILL included, ends the server and removes its folder. If
the keeper itself is killed, the kernel kills the server (on Linux).

    python keeper.py SPEC   SPEC is JSON, put together in process.py
    stdout                  the server's process id, one line
    stdin                   signal numbers, one a line, to be sent to the server;
                            its end means that the owner is gone
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 10.0  # seconds that a server gets to end by itself


class OwnerGone(Exception):
    """Nobody needs the server any more."""


def main(spec: dict[str, Any]) -> None:
    child_ended = _wake_on_child_end()
    signal.signal(signal.SIGTERM, _give_up)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the server leaves behind becomes ours to wait for
    server = _start(spec)
    print(server.pid, flush=True)
    try:
        _serve(server, child_ended, _watch(spec["owner"]))
        _wait_for_stragglers(child_ended)
    except OwnerGone:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(server, spec["stop_signal"])
        _wait_for_stragglers(child_ended)
        shutil.rmtree(spec["folder"], ignore_errors=True)


def _start(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    with Path(spec["log"]).open("ab") as log:
        return subprocess.Popen(
            spec["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=spec["folder"],
            start_new_session=True,  # Ctrl-C in a terminal is for the owner, not for the server
            # It runs after the change of user, which would undo it. Safe: there is one thread.
            preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509
            **spec["account"],
        )


def _serve(server: subprocess.Popen[bytes], child_ended: int, owner: int | None) -> None:
    """Pass signals on until the server ends or the owner is gone."""
    stdin = sys.stdin.fileno()
    watched = [stdin, child_ended, *([] if owner is None else [owner])]
    while server.poll() is None:
        ready, _, _ = select.select(watched, [], [])
        if child_ended in ready:
            os.read(child_ended, 4096)
        asked = os.read(stdin, 4096) if stdin in ready else b""
        if owner in ready or (stdin in ready and not asked):
            raise OwnerGone
        for number in asked.split():
            server.send_signal(int(number))


def _end(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    for number in (stop_signal, signal.SIGKILL):
        server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE)
            return


def _wait_for_stragglers(child_ended: int) -> None:
    """A server killed outright leaves children that notice a little later, or are made to."""
    with contextlib.suppress(ChildProcessError):  # no child is left
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0 and select.select([child_ended], [], [], PATIENCE)[0]:
                os.read(child_ended, 4096)
            elif pid == 0:
                _kill_children()


def _kill_children() -> None:
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    for pid in listed.read_text().split() if listed.exists() else ():
        os.kill(int(pid), signal.SIGKILL)


def _watch(owner: int) -> int | None:
    """Readable once the owner has ended. A pipe alone is not enough: a fork would keep it open."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(owner)
    except OSError:  # gone already, or an old kernel: the end of stdin tells
        return None


def _wake_on_child_end() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _give_up(*_: object) -> None:
    raise OwnerGone


def _die_with(keeper: int) -> Callable[[], None]:
    def in_child() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before we asked
            os._exit(1)

    return in_child


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        LIBC.prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
