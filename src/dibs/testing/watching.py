"""The tasks of an app as a test's worker runs them, and what it notices while they run."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any
from uuid import UUID

import msgspec

from dibs import outcome, signals
from dibs.attempt import Attempt
from dibs.job import Job
from dibs.task import Task, Tasks
from dibs.testing.callers import desk
from dibs.worker.run import Run, Why

_OURS = frozenset({"asyncio", "concurrent", "dibs"})


class HandlerFailed(AssertionError):
    """A job's attempt did not end well, and there is no exception of a handler to show for it; ``job`` is the job."""

    def __init__(self, message: str, job: Job | None) -> None:
        super().__init__(message)
        self.job = job


def for_tests(tasks: Tasks) -> Tasks:
    """The same tasks, run where a test can follow them.

    Handlers for processes of their own run in this one, where the memory store and a test's patches are; and where
    somebody waits for them, plain ones run in that thread.
    """
    ours = Tasks()
    ours.by_name = {name: _for_test(task) for name, task in tasks.by_name.items()}
    ours.middleware = list(tasks.middleware)
    ours.hooks = {event: list(hooks) for event, hooks in tasks.hooks.items()}
    return ours


def _for_test(task: Task[..., Any]) -> Task[..., Any]:
    changed, waiting = copy.copy(task), desk.get()
    if task.defaults.executor == "process":
        changed.defaults = msgspec.structs.replace(task.defaults, executor="auto")
    if waiting is not None and not task.is_async:
        changed.function, changed.is_async = partial(waiting.call, task.function), True
    return changed


class Watch:
    """Notices the first attempt that went wrong, and keeps what its handler raised."""

    def __init__(self, tasks: Tasks) -> None:
        self.stop: Callable[[], object] | None = None
        """How to stop the worker then, if it shall be; no further job is run."""
        self._over = False
        self._raised: dict[tuple[UUID, int], BaseException] = {}
        self.problem: tuple[Attempt, BaseException | None, str] | None = None
        tasks.middleware.insert(0, self._around)
        for event in ("failed", "retried"):
            tasks.hooks.setdefault(event, []).append(self._ended)

    async def _around(self, attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if self._over:
            _give_back(attempt)
        try:
            return await call_next()
        except BaseException as error:
            self._raised |= dict.fromkeys([(each.id, each.epoch) for each in attempt.batch], error)
            if not isinstance(error, asyncio.CancelledError | signals.Retry | signals.Snooze):
                self._stop()
            raise

    def _ended(self, attempt: Attempt, ended: outcome.Retry | outcome.Failed) -> None:
        error = self._raised.get((attempt.id, attempt.epoch))
        again = isinstance(ended, outcome.Retry) and attempt.attempt < attempt.max_attempts
        if self.problem is None and not (again and isinstance(error, signals.Retry)):
            said = ended.error + (f"\n{ended.traceback}" if ended.traceback else "")
            self.problem = attempt, error, said
            self._stop()

    def _stop(self) -> None:
        if self.stop is not None:
            self._over = True
            self.stop()

    def raise_problem(self, look: Callable[[UUID], Job | None]) -> None:
        """Raise what the handler raised, if one did, as if it had been called by the test."""
        __tracebackhide__ = True
        if self.problem is None:
            return
        attempt, error, said = self.problem
        where = f"attempt {attempt.attempt} of job {attempt.id} ({attempt.task})"
        handlers = users_part(None if error is None else error.__traceback__)
        if error is None or handlers is None or isinstance(error, asyncio.CancelledError):
            raise HandlerFailed(f"{where} did not end well: {said}", look(attempt.id))
        error.add_note(f"{where}; with raising=False it is kept with the job, as a worker does")
        raise error.with_traceback(handlers)


def _give_back(attempt: Attempt) -> None:
    """Have this attempt end as those do that a worker interrupts when it is stopped: released."""
    for each in attempt.batch:
        if isinstance(each, Run):
            each.why = Why.STOP
    raise asyncio.CancelledError


def users_part(frame: TracebackType | None) -> TracebackType | None:
    """The traceback without what dibs and asyncio did before the handler was called."""
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.tb_next
    return frame
