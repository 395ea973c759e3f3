"""How a task is run here: read from its options once, when the worker starts."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import Any

from dibs.task import Middleware, Task
from dibs.worker.guard import guarded
from dibs.worker.processes import ProcessPool
from dibs.worker.run import Run
from dibs.worker.threads import Pace, Threads

Call = Callable[[Run], Awaitable[Any]]
"""Calls the handler for a run, or for all runs of its batch."""


class Unfit(Exception):
    """The stored arguments do not fit the handler (any more)."""


class Plan:
    """One task in this worker."""

    __slots__ = (
        "alone",
        "batch",
        "call",
        "in_process",
        "interruptible",
        "item_of",
        "lease",
        "pack_result",
        "task",
        "timeout",
        "waits",
    )

    def __init__(self, task: Task[..., Any], lease: timedelta) -> None:
        options = task.defaults
        self.task = task
        self.lease = (options.lease or lease).total_seconds()
        self.batch = options.batch
        self.in_process = options.executor == "process"
        self.alone = self.batch is None and not self.in_process
        """The commonest kind: one job a call, and any slot will do."""
        self.interruptible = task.is_async or self.in_process
        """Whether a run can be ended from outside: a thread cannot."""
        self.waits = True
        """Whether its handler, the last time, waited for something; one in a thread or a process always does."""
        # The pool counts from when a process is there.
        self.timeout = None if options.timeout is None or self.in_process else options.timeout.total_seconds()
        # What comes from another process is packed there.
        self.pack_result: Callable[[Any], Any] | None = None if self.in_process else task.signature.pack_result
        self.call: Call = _not_ready
        self.item_of = _item(task)
        """The argument of one job of a batch task."""


def _not_ready(run: Run) -> Awaitable[Any]:
    raise RuntimeError(f"{run.task} is not ready to run")


class Callers:
    """Makes the calls of plans: who calls the handler, and what is wrapped around it."""

    def __init__(
        self, middleware: Sequence[Middleware], threads: Threads, processes: Callable[[], ProcessPool]
    ) -> None:
        self._middleware = tuple(middleware)
        self._threads = threads
        self._processes = processes

    def equip(self, plan: Plan) -> None:
        """Give the plan its call. Without middleware nothing stands between the worker and the handler."""
        if plan.alone and plan.task.is_async and not self._middleware:
            plan.call = _straight(plan.task)
            return
        call = self._caller(plan)
        if self._middleware:
            call = _through(self._middleware, call)
        # What comes out of a thread is not a step of a handler, and a process is ended from outside.
        plan.call = _with_guard(call) if plan.task.is_async and not plan.in_process else call

    def _caller(self, plan: Plan) -> Call:
        if plan.in_process:
            return self._in_process(plan.task)
        prepare = _batch_arguments if plan.batch else _arguments(plan.task)
        return _on_loop(plan.task, prepare) if plan.task.is_async else self._in_thread(plan.task, prepare)

    def _in_thread(self, task: Task[..., Any], prepare: "Prepare") -> Call:
        function, threads, pace = task.function, self._threads, Pace()

        def call(run: Run) -> Awaitable[Any]:
            args, kwargs = prepare(run)
            return threads.call(partial(copy_context().run, function, *args, **kwargs), pace)

        return call

    def _in_process(self, task: Task[..., Any]) -> Call:
        timeout = None if task.defaults.timeout is None else task.defaults.timeout.total_seconds()

        async def call(run: Run) -> Any:
            return await self._processes().run(task, run, timeout)

        return call


Prepare = Callable[[Run], tuple[tuple[Any, ...], dict[str, Any]]]


def _arguments(task: Task[..., Any]) -> Prepare:
    unpack = task.signature.unpack

    def prepare(run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            return unpack(run.claim.args)
        except Exception as problem:
            raise Unfit(f"the arguments do not fit the task: {problem}") from problem

    return prepare


def _item(task: Task[..., Any]) -> Callable[[Run], Any]:
    prepare = _arguments(task)

    def item_of(run: Run) -> Any:
        (item,), _ = prepare(run)
        return item

    return item_of


def _batch_arguments(run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (run.items,), {}


def _straight(task: Task[..., Any]) -> Call:
    """The commonest call of all in one step: arguments, handler, guard."""
    unpack, function = task.signature.unpack, task.function

    def call(run: Run) -> Awaitable[Any]:
        try:
            args, kwargs = unpack(run.claim.args)
        except Exception as problem:
            raise Unfit(f"the arguments do not fit the task: {problem}") from problem
        return guarded(function(*args, **kwargs), run)

    return call


def _on_loop(task: Task[..., Any], prepare: Prepare) -> Call:
    function = task.function

    def call(run: Run) -> Awaitable[Any]:
        args, kwargs = prepare(run)
        handler: Coroutine[Any, Any, Any] = function(*args, **kwargs)
        return handler

    return call


def _with_guard(call: Call) -> Call:
    def guarded_call(run: Run) -> Awaitable[Any]:
        return guarded(call(run), run)  # type: ignore[arg-type]  # only coroutines are guarded

    return guarded_call


def _through(middleware: Sequence[Middleware], call: Call) -> Call:
    """Each wraps the next, the first one outermost."""

    async def through(run: Run) -> Any:
        async def innermost() -> Any:
            return await call(run)

        call_next: Callable[[], Awaitable[Any]] = innermost
        for each in reversed(middleware):
            call_next = partial(each, run, call_next)
        return await call_next()

    return through
