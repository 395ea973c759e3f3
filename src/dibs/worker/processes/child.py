"""The child process: takes one call after the other from its worker, and ends when the worker does."""

import asyncio
import contextvars
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

from dibs import limits
from dibs.arguments import Signature
from dibs.attempt import Attempt, running
from dibs.errors import Refused
from dibs.job import Claim, NewJob
from dibs.planning import Needs
from dibs.worker.processes import raised, reference
from dibs.worker.processes.frames import (
    LENGTH,
    Add,
    Begun,
    Call,
    FromChild,
    Lease,
    Log,
    Mixed,
    Progress,
    Raised,
    Returned,
    Stop,
    ToChild,
    decode_in_child,
    frame,
)
from dibs.worker.processes.reference import Reference

_UNBOUNDED = limits.Limits(max_bytes=sys.maxsize)  # the store knows its own bound


class Line:
    """The child's end of the socket. Sending is safe from every thread; one thread receives."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self._incoming = line.makefile("rb")
        self._sending = threading.Lock()
        self._call: Call | None = None

    def begin(self, call: Call) -> None:
        """Say that the call has arrived."""
        with self._sending:
            self._call = call
            self._socket.sendall(frame(Begun()))

    def tell(self, call: Call, value: Progress | Log | Add) -> None:
        """Say something during the call; what a thread of an earlier one says is not for the next one's job."""
        with self._sending:
            if self._call is call:
                self._socket.sendall(frame(value))

    def answer(self, value: FromChild) -> None:
        """Say how the call ended, and nothing about it from then on."""
        with self._sending:
            self._call = None
            self._socket.sendall(frame(value))

    def receive(self) -> ToChild | None:
        """The next frame; None when the worker is gone."""
        try:
            header = self._incoming.read(LENGTH.size)
            body = self._incoming.read(LENGTH.unpack(header)[0]) if len(header) == LENGTH.size else b""
        except OSError:
            return None
        return decode_in_child(body) if body else None


class RemoteAttempt(Attempt):
    """An attempt whose worker is at the other end of a line."""

    __slots__ = ("_call", "_index", "_line")

    def __init__(self, claim: Claim, index: int, call: Call, line: Line) -> None:
        super().__init__(claim)
        self._index = index
        self._call = call
        self._line = line

    def progress(self, fraction: float, note: str = "") -> None:
        super().progress(fraction, note)
        self._line.tell(self._call, Progress(self._index, float(fraction), limits.clean(note, limits.ERROR_LENGTH)))

    def log(self, text: str) -> None:
        super().log(text)
        self._line.tell(self._call, Log(self._index, limits.clean(text, limits.ERROR_LENGTH)))

    def add_step(self, name: str, job: NewJob, *, needs: Needs = ()) -> str:
        super().add_step(name, job, needs=needs)
        self._line.tell(self._call, Add(self._index, self.added[-1]))
        return name


class Terminated(SystemExit):
    """SIGTERM came: the handler may clean up, then the process ends."""


class Child:
    """Runs calls on the main thread: some libraries and all Python signal handlers insist on it."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._calls: SimpleQueue[tuple[Call, tuple[RemoteAttempt, ...]] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coroutine: asyncio.Task[Any] | None = None
        self._busy = False
        self._terminated = False

    def serve(self) -> None:
        """Run what comes, until told to stop."""
        signal.signal(signal.SIGTERM, self._on_term)
        threading.Thread(target=self._listen, name="dibs-worker-line", daemon=True).start()
        try:
            while (given := self._calls.get()) is not None:
                self._answer(*given)
        finally:
            if self._loop is not None:
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.close()

    def _listen(self) -> None:
        attempts: tuple[RemoteAttempt, ...] = ()
        while True:
            match self._line.receive():
                case Call() as call:
                    attempts = _attempts(call, self._line)
                    self._line.begin(call)
                    self._calls.put((call, attempts))
                case Lease(index, locked_until, cancelled, lost):
                    attempts[index].locked_until = locked_until
                    attempts[index].cancelled = cancelled
                    attempts[index].lost = lost
                case Stop():
                    self._calls.put(None)
                case None:
                    _vanish()

    def _answer(self, call: Call, attempts: tuple[RemoteAttempt, ...]) -> None:
        answer: FromChild
        try:
            self._busy = True
            answer = contextvars.copy_context().run(self._run, call, attempts)
        except BaseException as error:
            # SystemExit, KeyboardInterrupt and the like end the attempt, not this process.
            answer = raised.pack(error)
        finally:
            self._busy = False
        if self._terminated:
            _die_of(signal.SIGTERM)
        _flush()
        self._line.answer(answer)

    def _run(self, call: Call, attempts: tuple[RemoteAttempt, ...]) -> FromChild:
        running.set(attempts[0])
        if call.carried:
            from dibs.telemetry.traces import resume  # for those who trace

            resume(call.carried)
        function, signature = find(call.reference, call.task, call.batch)
        if not call.batch:
            args, kwargs = _arguments(signature, attempts[0].args)
            return _returned(signature, self._call(function, *args, **kwargs))
        items = [_item(signature, attempt.args) for attempt in attempts]
        results = self._call(function, items)
        if results is None:
            return Mixed([Returned(b"null") for _ in items])
        return _mixed(signature, results, len(items))

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not inspect.iscoroutine(result):
            return result
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        # The loop is kept for the next call, and with it the connections that handlers opened on it.
        self._coroutine = self._loop.create_task(_kept(result), context=contextvars.copy_context())
        try:
            value, error = self._loop.run_until_complete(self._coroutine)
        finally:
            self._coroutine = None
        if error is not None:
            raise error
        return value

    def _on_term(self, number: int, _: FrameType | None) -> None:
        """Let the handler clean up: ``finally`` and context managers run, then the process ends."""
        if self._terminated:
            return
        self._terminated = True
        if self._coroutine is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._coroutine.cancel)
        elif self._busy:
            raise Terminated(128 + number)
        else:
            _die_of(signal.SIGTERM)


def _attempts(call: Call, line: Line) -> tuple[RemoteAttempt, ...]:
    attempts = tuple(RemoteAttempt(claim, index, call, line) for index, claim in enumerate(call.claims))
    for attempt in attempts:
        attempt.batch = attempts
    return attempts


async def _kept(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """A SystemExit that passes through a loop would leave it in a state that nobody promises anything about."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error


# --- the handler, its arguments and its result --------------------------------------------------------------

_found: dict[tuple[Reference, str], tuple[Callable[..., Any], Signature]] = {}


def find(address: Reference, task: str, batch: bool) -> tuple[Callable[..., Any], Signature]:
    """The function and how it is called; looked up once."""
    if (address, task) not in _found:
        try:
            there = reference.locate(reference.import_module(address), address.qualname)
        except BaseException as problem:
            raise raised.NotFound(_cannot_import(address, task, problem)) from problem
        known = reference.task_at(there)
        function = reference.handler(there)
        signature = Signature.of(function, batch=batch, name=task) if known is None else known.signature
        _found[address, task] = function, signature
    return _found[address, task]


def _cannot_import(address: Reference, task: str, problem: BaseException) -> str:
    said = limits.clean(problem, limits.ERROR_LENGTH).replace("\n", " ")
    return (
        f"task {task} runs in a process of its own, which could not import {address.module}.{address.qualname} "
        f"({type(problem).__name__}: {said}); make sure that importing the module finds all it needs and starts nothing"
    )


def _item(signature: Signature, stored: Any) -> Any:
    (item,), _ = _arguments(signature, stored)
    return item


def _arguments(signature: Signature, stored: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return signature.unpack(stored)
    except Exception as problem:
        raise raised.Unfit(f"the arguments do not fit the task: {problem}") from None


def _returned(signature: Signature, value: Any) -> Returned:
    try:
        return Returned(limits.to_json(signature.pack_result(value), "result", _UNBOUNDED).encode())
    except (Refused, RecursionError) as problem:
        raise raised.Unfit(f"the result cannot be stored: {problem}") from None


def _mixed(signature: Signature, results: Any, count: int) -> Mixed:
    if not isinstance(results, list | tuple) or len(results) != count:
        got = f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__
        raise raised.Unfit(f"a batch of {count} must return None or a list of {count} results, not {got}")
    return Mixed([_one(signature, result) for result in results])


def _one(signature: Signature, result: Any) -> Returned | Raised:
    if isinstance(result, BaseException):
        return raised.pack(result)
    try:
        return _returned(signature, result)
    except raised.Unfit as problem:
        return raised.pack(problem)


# --- the end ------------------------------------------------------------------------------------------------


def _flush() -> None:
    """What a handler printed is there when its result is, and not lost with a kill."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # none, closed by the handler, or its reader went away
            continue


def _vanish() -> NoReturn:
    """The worker is gone, and its lease will be: end at once, with everything the handler started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_of(number: int) -> NoReturn:
    """End by the signal, so that whoever waits sees what it was."""
    _flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def main(line: socket.socket) -> None:
    Child(Line(line)).serve()
