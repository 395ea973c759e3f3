"""Handlers that tests run in child processes, which import them from here."""

import asyncio
import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dibs.attempt import current
from dibs.signals import Fail, Retry, Snooze
from dibs.task import Task, TaskOptions


def process(batch: int | None = None) -> Callable[[Callable[..., Any]], Task[..., Any]]:
    return lambda function: Task(function, options=TaskOptions(executor="process", batch=batch))


class Broken(Exception):
    """An error of the application."""


class VeryBroken(Broken):
    """A special case of it."""


@dataclass
class Order:
    number: int
    at: datetime


# --- plain work ---------------------------------------------------------------------------------------------


@process()
def pid() -> int:
    return os.getpid()


@process()
def pid_through(gate: str) -> int:
    """Opens a FIFO: runs until the test opens its other end."""
    with open(gate, "w") as opened:
        opened.write(str(os.getpid()))
    return os.getpid()


@process()
def traced() -> list[str]:
    """The span that spans of this handler would be children of."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return [str(context.trace_id), str(context.span_id)]


@process()
async def traced_coroutine() -> list[str]:
    await asyncio.sleep(0)
    return traced.function()  # type: ignore[no-any-return]


@process()
async def loop_and_pid() -> tuple[int, int]:
    await asyncio.sleep(0)
    return id(asyncio.get_running_loop()), os.getpid()


@process()
def next_day(order: Order, *rest: int, **extra: str) -> tuple[str, Order, tuple[int, ...], dict[str, str]]:
    return type(order).__name__, order, rest, extra


@process()
def about_me() -> dict[str, Any]:
    me = current()
    return {
        "id": str(me.id),
        "task": me.task,
        "queue": me.queue,
        "key": me.key,
        "meta": me.meta,
        "attempt": me.attempt,
        "max_attempts": me.max_attempts,
        "epoch": me.epoch,
        "worker": me.worker,
        "locked_until": me.locked_until.isoformat(),
        "cancelled": me.cancelled,
    }


@process()
async def about_me_async() -> str:
    return str(current().id)


@process()
def says(gate: str) -> None:
    current().progress(0.25, "a quarter")
    current().log("a line with \ud800 and \0")
    Path(gate).read_text()


@process()
def hears(until: datetime) -> bool:
    tick = threading.Event()
    while current().locked_until != until:
        tick.wait(0.01)
    return current().cancelled


@process()
def leaves_a_talker(gate: str) -> None:
    """A thread of it goes on when it has returned."""
    me = current()

    def talk() -> None:
        Path(gate).read_text()
        me.log("late")

    threading.Thread(target=talk, daemon=True).start()


@process()
def waits_for_talker(gate: str) -> None:
    Path(gate).write_text("speak")
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.name.startswith("dibs"):
            thread.join()


@process()
def prints(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)


@process()
def leaves_a_note(path: str) -> None:
    atexit.register(Path(path).write_text, "left")


@process(batch=10)
def halves(numbers: list[int]) -> list[Any]:
    """A value, a signal, an error and something that cannot be stored."""
    me = current()
    assert len(me.batch) == len(numbers)
    for attempt, number in zip(me.batch, numbers, strict=True):
        attempt.progress(number / 10)
    return [numbers[0] / 2, Retry(5, "later"), VeryBroken("no half"), object()]


@process(batch=10)
def halves_nothing(numbers: list[int]) -> None:
    return None


@process(batch=10)
def halves_too_few(numbers: list[int]) -> list[int]:
    return [1]


# --- ways to end --------------------------------------------------------------------------------------------

ERRORS: dict[str, Callable[[], BaseException]] = {
    "system-exit": lambda: SystemExit(3),
    "keyboard-interrupt": KeyboardInterrupt,
    "recursion": RecursionError,
    "memory": MemoryError,
    "cancelled": asyncio.CancelledError,
    "generator-exit": GeneratorExit,
    "broken": lambda: VeryBroken("pieces \ud800"),
    "retry": lambda: Retry(12.5, "not yet"),
    "retry-by-policy": Retry,
    "fail": lambda: Fail("never"),
    "snooze": lambda: Snooze(3),
}


@process()
def raises(what: str) -> None:
    if what == "recursion":
        raises.function(what)
    raise ERRORS[what]()


@process()
async def raises_async(what: str) -> None:
    await asyncio.sleep(0)
    raise ERRORS[what]()


@process()
def returns(what: str) -> Any:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    return {"object": object(), "nan": float("nan"), "deep": deep, "huge": 2**70, "surrogate": "\ud800"}[what]


@process()
def dies(how: str) -> None:
    if how == "exit":
        os._exit(7)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))
    signal.pause()


# --- work that has to be stopped ----------------------------------------------------------------------------


@process()
def waits_with_company(note: str) -> None:
    """Starts a process of its own, which would outlive it, and cleans up when it is told to end."""
    company = subprocess.Popen(["sleep", "600"])
    Path(note).write_text(f"{os.getpid()} {company.pid}\n")
    try:
        signal.pause()
    finally:
        Path(note).with_suffix(".cleaned").touch()


@process()
def leaves_company(note: str) -> None:
    """Starts a process of its own, which ignores SIGTERM, and crashes."""
    company = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 600; done"], stdout=subprocess.PIPE
    )
    assert company.stdout is not None and company.stdout.readline() == b"deaf\n"
    Path(note).write_text(f"{os.getpid()} {company.pid}\n")
    os._exit(9)


@process()
async def waits_async(note: str) -> None:
    Path(note).write_text(f"{os.getpid()}\n")
    try:
        await asyncio.Event().wait()
    finally:
        Path(note).with_suffix(".cleaned").touch()


@process()
def ignores_signals(note: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(note).write_text(f"{os.getpid()}\n")
    while True:
        signal.pause()


@process()
def holds_the_gil(note: str) -> None:
    company = subprocess.Popen(["sleep", "600"])
    Path(note).write_text(f"{os.getpid()} {company.pid}\n")
    ctypes.PyDLL(None).sleep(600)


@process()
def closes_every_file(note: str) -> None:
    Path(note).write_text(f"{os.getpid()}\n")
    os.closerange(3, 100)


# --- not to be found ----------------------------------------------------------------------------------------


def shadowed() -> int:
    return 1


first_shadowed = process()(shadowed)


@process()  # type: ignore[no-redef]
def shadowed() -> int:
    return 2


class Shop:
    @staticmethod
    def sell() -> int:
        return os.getpid()


sell = process()(Shop.sell)
