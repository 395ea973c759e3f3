"""The children of one worker, and the calls that they run."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from dibs.attempt import Attempt, carry
from dibs.errors import ConfigurationError
from dibs.task import Task
from dibs.worker.processes import raised
from dibs.worker.processes.failures import ProcessDied
from dibs.worker.processes.frames import Add, Begun, Call, Lease, Log, Mixed, Progress, Raised, Returned, Stop
from dibs.worker.processes.handle import ChildHandle
from dibs.worker.processes.reference import check, refer, refuse_while_importing

_GUARD = Path(__file__).with_name("guard.py")
_STARTS = 3
_NEWS = 0.5  # seconds until a handler knows what a heartbeat has learnt

Answer = Returned | Raised | Mixed


class ProcessPool:
    """Runs handlers in up to ``size`` child processes, each one call at a time.

    Children are fresh interpreters, started when first needed and kept for the next call; with ``recycle``, each
    is replaced after so many calls, which bounds what a leaking library can take. A call that is cancelled or
    too slow is ended with its process: SIGTERM to it and to everything it started, and SIGKILL ``patience``
    seconds later. Use it from one event loop.
    """

    def __init__(self, size: int, *, recycle: int | None = None, patience: float = 2.0) -> None:
        if size < 1:
            raise ConfigurationError(f"a process pool needs at least 1 process, not {size}")
        if recycle is not None and recycle < 1:
            raise ConfigurationError(f"recycle must be at least 1 call, not {recycle}; leave it out to never replace")
        refuse_while_importing()
        self._recycle = recycle
        self._patience = patience
        self._slots = asyncio.Semaphore(size)
        self._idle: list[ChildHandle] = []
        self._children: set[ChildHandle] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._guard = Guard()
        self._closed = False

    async def run(self, task: Task[..., Any], attempt: Attempt, timeout: float | None) -> Any:
        """Call the task's function for the attempt, or for all attempts of its batch.

        Returns the result as JSON-ready data, packed by the task's signature already; for a batch a list, with an
        exception for each job that ended with one. Raises what the handler raised: ``Retry``, ``Fail`` and
        ``Snooze`` as themselves, the rest as ``HandlerError``. ``Refused``: stored arguments that do not fit the
        function, or a result that cannot be stored. ``ConfigurationError``: a function that a child cannot import.
        ``ProcessDied``: the child did not live to tell.
        On TimeoutError and CancelledError the child is really gone, so nobody is running this job any more.
        """
        reference = refer(task.function, task.name)
        check(reference, task.function, task.name)
        batch = task.defaults.batch is not None
        call = Call(reference, task.name, batch, [each.claim for each in attempt.batch], carry.get()())
        async with self._slots:
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._call(call, attempt.batch)
            except TimeoutError:
                raise TimeoutError(f"the handler took longer than {timeout:g} s") from None
        return _result(answer)

    async def close(self) -> None:
        """End idle children as programs end, kill the others; returns when all are gone."""
        self._closed = True
        for child in self._children - set(self._idle):
            child.kill()
        while self._idle:
            self._retire(self._idle.pop())
        while self._endings:
            await asyncio.wait(set(self._endings))
        for child in list(self._children):  # of calls that are still being given up elsewhere
            await child.ended()
            await self._bury(child)
        self._guard.close()

    # --- one call -------------------------------------------------------------------------------------------

    async def _call(self, call: Call, attempts: tuple[Attempt, ...]) -> Answer:
        for left in reversed(range(_STARTS)):
            child = self._child()
            try:
                answer = await self._converse(child, call, attempts)
            except BaseException:  # cancelled, too slow, or a fault of ours: whatever it is, nothing may go on there
                await _surely(self._end(child))
                raise
            if answer is not None:
                self._give_back(child, answer)
                return answer
            await _surely(self._bury(child))
            # A child that ended before it had the call, an idle one that was killed, say, is nobody's attempt.
            if child.begun or left == 0:
                break
        raise ProcessDied(child.status)

    async def _converse(self, child: ChildHandle, call: Call, attempts: tuple[Attempt, ...]) -> Answer | None:
        """Send the call and hear what comes, up to its answer; None if the child ends without one."""
        child.begun = False
        try:
            await child.send(call)
        except OSError:
            await child.ended()
            return None
        listening = asyncio.ensure_future(self._listen(child, attempts))
        gone = asyncio.ensure_future(child.ended())
        try:
            return await self._until_answer(child, listening, gone, attempts)
        finally:
            for each in (listening, gone):
                each.cancel()
            await asyncio.gather(listening, gone, return_exceptions=True)

    async def _until_answer(
        self,
        child: ChildHandle,
        listening: "asyncio.Future[Answer | None]",
        gone: "asyncio.Future[None]",
        attempts: tuple[Attempt, ...],
    ) -> Answer | None:
        known = [_news(index, Attempt(attempt.claim)) for index, attempt in enumerate(attempts)]
        both: set[asyncio.Future[Any]] = {listening, gone}
        while not listening.done() and not gone.done():
            for index, attempt in enumerate(attempts):
                if (news := _news(index, attempt)) != known[index]:
                    known[index] = news
                    await _try_send(child, news)
            await asyncio.wait(both, timeout=_NEWS, return_when=asyncio.FIRST_COMPLETED)
        if listening.done() and (answer := listening.result()) is not None:
            return answer
        # One that has cut the line without ending will never say anything again.
        await child.ended_within(self._patience)
        # What it said last may still be on its way to us; a fork of it may keep the line open, so don't wait long.
        done, _ = await asyncio.wait({listening}, timeout=_NEWS)
        return listening.result() if done else None

    async def _listen(self, child: ChildHandle, attempts: tuple[Attempt, ...]) -> Answer | None:
        while (said := await child.receive()) is not None:
            match said:
                case Begun():
                    child.begun = True
                case Progress(index, fraction, note):
                    attempts[index].progress(fraction, note)
                case Log(index, text):
                    attempts[index].log(text)
                case Add(index, step):
                    attempts[index].add_step(step.name, step.job, needs=step.needs)
                case _:
                    return said
        return None

    # --- the children ---------------------------------------------------------------------------------------

    def _child(self) -> ChildHandle:
        if self._closed:
            raise ConfigurationError("this process pool is closed: make a new one")
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._later(self._bury(child))
        child = ChildHandle()
        self._children.add(child)
        self._guard.watch(child.pid, [each.pid for each in self._children])
        return child

    def _give_back(self, child: ChildHandle, answer: Answer) -> None:
        child.calls += 1
        worn = self._recycle is not None and child.calls >= self._recycle
        # A module that failed half-way through its import may have left things behind.
        spoilt = isinstance(answer, Raised) and answer.kind == "not found"
        if worn or spoilt or self._closed:
            self._retire(child)
        else:
            self._idle.append(child)

    def _retire(self, child: ChildHandle) -> None:
        self._later(self._stop(child))

    async def _stop(self, child: ChildHandle) -> None:
        await _try_send(child, Stop())
        await child.ended_within(self._patience)
        await self._bury(child)

    async def _end(self, child: ChildHandle) -> None:
        await child.end(self._patience)
        await self._bury(child)

    async def _bury(self, child: ChildHandle) -> None:
        await child.ended()
        await child.close()
        if child in self._children:
            self._children.discard(child)
            self._guard.forget(child.pid)

    def _later(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)


class Guard:
    """The process that ends the children if this one is killed; see guard.py."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, child: int, all_children: list[int]) -> None:
        """Watch over one more; a guard that was killed itself gets a successor that knows them all."""
        if not self._tell(f"+{child}\n"):
            self.close()
            self._process = subprocess.Popen(  # noqa: S603 - this very Python
                # Isolated and without site-packages: it starts fast and sees only the standard library.
                [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid())],
                stdin=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
            self._tell("".join(f"+{each}\n" for each in all_children))

    def forget(self, child: int) -> None:
        """The child has ended: its number may be somebody else's soon."""
        self._tell(f"-{child}\n")

    def close(self) -> None:
        """End the guard; it has nobody left to watch over."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _tell(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(line.encode())
        except OSError:
            return False
        return True


def _news(index: int, attempt: Attempt) -> Lease:
    return Lease(index, attempt.locked_until, attempt.cancelled, attempt.lost)


async def _try_send(child: ChildHandle, value: Lease | Stop) -> None:
    try:
        await child.send(value)
    except OSError:  # it has ended; whoever waits for that will see
        return


async def _surely(ending: Coroutine[Any, Any, None]) -> None:
    """See it through, however often somebody cancels us meanwhile."""
    task = asyncio.ensure_future(ending)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as asked:
            cancelled = asked
    if cancelled is not None:
        raise cancelled
    task.result()


def _result(answer: Answer) -> Any:
    match answer:
        case Returned(result):
            return msgspec.json.decode(result)
        case Raised():
            raise raised.unpack(answer)
        case Mixed(results):
            return [
                msgspec.json.decode(each.result) if isinstance(each, Returned) else raised.unpack(each)
                for each in results
            ]
