"""A task: a function that jobs can be made for. And the registry that a worker reads."""

import copy
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar
from uuid import UUID

from msgspec import UNSET, UnsetType

from dibs import limits
from dibs.arguments import Signature
from dibs.attempt import Attempt
from dibs.clock import Clock, system_clock
from dibs.errors import ConfigurationError, Refused
from dibs.handle import Handle, OpenStore
from dibs.job import NewJob, OnConflict
from dibs.keys import Key, literal, make_key
from dibs.options import TaskOptions, declared, new_job, replaced
from dibs.redaction import Redaction
from dibs.schedule import Schedule
from dibs.scope import Limit, Scope
from dibs.sending import Calls, Sending
from dibs.signals import Delay
from dibs.store import CHUNK, Store

__all__ = [
    "EVENTS",
    "AsyncTask",
    "BatchTask",
    "Hook",
    "Middleware",
    "PlainTask",
    "Task",
    "TaskOptions",
    "Tasks",
    "declared",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Middleware = Callable[[Attempt, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Wraps every attempt: ``async def mw(attempt, call_next)``; what it returns or raises counts."""

Hook = Callable[..., Any]

ConflictWord = Literal["existing", "replace", "debounce"]

EVENTS = frozenset(
    {"startup", "shutdown", "started", "succeeded", "retried", "failed", "cancelled", "snoozed", "released", "lost"}
)
"""What ``app.on`` can listen to. startup and shutdown get nothing, the others the Attempt and the Outcome."""


async def _no_app() -> Store:
    raise ConfigurationError("this task belongs to no app: declare it with @app.task")


class Task(Generic[P, R]):
    """A function under a name that a store can hold. Called directly, it is just the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        options: TaskOptions | None = None,
        store: OpenStore = _no_app,
        clock: Clock = system_clock,
    ) -> None:
        self.function = function
        self.name = name or default_name(function)
        self.defaults = options or TaskOptions()
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature.of(function, batch=self.defaults.batch is not None, name=self.name)
        self._store = store
        self._clock = clock
        self._key = make_key(self.name, self.defaults.key, self.signature)
        self._limit_key = make_key(self.name, self.defaults.limit_key, self.signature, "limit_key")
        self._plain = self.defaults.plain
        """Nothing is said that most tasks leave out: the commonest job is made in one step."""
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.name)
        self.__module__ = function.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        queue: str | UnsetType = UNSET,
        priority: int | UnsetType = UNSET,
        delay: Delay | UnsetType | None = UNSET,
        run_at: datetime | UnsetType | None = UNSET,
        key: Key | UnsetType | None = UNSET,
        unique_for: Delay | UnsetType | None = UNSET,
        on_conflict: OnConflict | ConflictWord | UnsetType = UNSET,
        max_delay: Delay | UnsetType | None = UNSET,
        expires_in: Delay | UnsetType | None = UNSET,
        expires_at: datetime | UnsetType | None = UNSET,
        limit_key: Key | UnsetType | None = UNSET,
        max_attempts: int | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> Self:
        """This task with other options for what is enqueued through it: ``task.options(delay=60).enqueue(…)``.

        ``delay`` is a timedelta or seconds from now; ``run_at`` and ``expires_at`` are times with a zone;
        ``expires_in`` is counted from when the job is due. A string as ``key`` or ``limit_key`` is the key itself here,
        not a template. Anything that is left out stays as the task was declared.
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not UNSET}
        for word in ("key", "limit_key"):
            if isinstance(given.get(word), str):
                given[word] = literal(given[word])
        changed = copy.copy(self)
        changed.defaults = replaced(self.defaults, given)
        changed._plain = changed.defaults.plain
        if key is not UNSET:
            changed._key = make_key(self.name, changed.defaults.key, self.signature)
        if limit_key is not UNSET:
            changed._limit_key = make_key(self.name, changed.defaults.limit_key, self.signature, "limit_key")
        return changed

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store one job that calls the function with these arguments.

        Refused, and nothing stored, if they do not fit the function. If the key is busy, the answer is the job that has
        it, with ``created`` False; ``changed`` says whether it is now what was asked for here.
        """
        job = self.job(*args, **kwargs)
        store = await self._store()
        try:
            [sent] = await store.enqueue([job])
        except Refused as problem:
            raise self.signature.blame(problem, job.args) from None
        return Handle(sent.id, sent.created, self._store, self.signature.unpack_result, changed=sent.changed)

    def handle(self, id: UUID) -> Handle[R]:
        """A handle on a job of this task that was sent before."""
        return Handle(id, False, self._store, self.signature.unpack_result)

    def result_from(self, stored: Any) -> R:
        """What this task returned, as the type that its annotation says, from the JSON that it is kept as.

        For the results of steps: ``page = fetch.result_from(dibs.current().inputs["fetch"])``.
        """
        result: R = self.signature.unpack_result(stored)
        return result

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that ``enqueue`` would store, checked, but not stored.

        For ``enqueue_many``, for ``app.enqueue`` and for ``dibs.transaction.enqueue_in``.
        """
        how, bound = self.defaults, self.signature.bind(args, kwargs)
        if self._plain:
            return NewJob(
                task=self.name,
                args=self.signature.pack_bound(bound),
                queue=how.queue,
                priority=how.priority,
                run_at=how.run_at if how.delay is None else self._clock() + how.delay,
                max_attempts=how.max_attempts,
                meta=how.meta,
            )
        return new_job(
            how,
            self._clock,
            task=self.name,
            args=self.signature.pack_bound(bound),
            key=None if self._key is None else self._key(args, kwargs, bound),
            limit_key=None if self._limit_key is None else self._limit_key(args, kwargs, bound),
        )

    def enqueue_many(
        self, calls: Calls, *, chunk: int = CHUNK, progress: Callable[[int], object] | None = None
    ) -> Sending[R]:
        """Store a job for each call, as they come, in chunks; in memory there are never more than two of them.

        ``calls`` is any iterable or async iterable, a generator too, of ``task.job(…)``, of tuples of arguments or
        of dicts of them. ``await`` it for the number of jobs that were created, or iterate over it with ``async for``
        to get a handle for each call. ``progress`` is told after each chunk how many calls were sent.

        A chunk is stored as a whole or not at all. If a call is refused, the chunks before it are stored.
        """
        limits.limit(chunk)
        if not hasattr(calls, "__iter__") and not hasattr(calls, "__aiter__"):
            raise Refused(f"{self.name}: enqueue_many takes an iterable of calls, not {type(calls).__name__}")
        return Sending(calls, self._from_call, self._store, self.signature, chunk=chunk, progress=progress)

    def _from_call(self, call: Any) -> NewJob:
        if type(call) is NewJob:
            if call.task != self.name:
                raise Refused(f"{self.name}: enqueue_many was given a job of another task, {call.task}")
            return call
        if isinstance(call, tuple):
            return self.job(*call)  # type: ignore[call-arg]
        if isinstance(call, dict):
            return self.job(**call)  # type: ignore[call-arg]
        raise Refused(
            f"{self.name}: enqueue_many takes task.job(…), a tuple of arguments or a dict of them for each call, "
            f"not {type(call).__name__}"
        )

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class PlainTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result


class AsyncTask(Task[P, R]):
    """A task made of an ``async def``."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return result


class BatchTask(Task[[T], R], Generic[T, R]):
    """A task whose function takes a list of what its jobs carry, one item each."""

    def __call__(self, items: list[T], /) -> Any:
        return self.function(items)


class Tasks:
    """What a worker needs to know of an app: tasks, what wraps them, who wants to hear of what, schedules, limits."""

    def __init__(self, redact: tuple[str, ...] = ()) -> None:
        self.redact = redact
        self.by_name: dict[str, Task[..., Any]] = {}
        self.middleware: list[Middleware] = []
        self.hooks: dict[str, list[Hook]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.limits: dict[Scope, Limit] = {}

    @property
    def redaction(self) -> Redaction:
        """What is never shown of their jobs."""
        return Redaction.of(self.redact, {name: task.defaults.redact for name, task in self.by_name.items()})

    def add(self, task: Task[..., Any]) -> None:
        """Make a task known; a ConfigurationError if another one has its name."""
        there = self.by_name.get(task.name)
        if there is not None and not _typed_again(there.function, task.function):
            raise ConfigurationError(
                f"there is a task {task.name} already, {_place(there.function)}: "
                f"give this one, {_place(task.function)}, another name with @app.task(name=…)"
            )
        self.by_name[task.name] = task


def _typed_again(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether somebody runs the cell of a notebook, or the line of a prompt, another time."""
    interactive = not hasattr(sys.modules.get("__main__"), "__file__")
    return interactive and old.__module__ == new.__module__ == "__main__"


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def default_name(function: Callable[..., Any]) -> str:
    """The function's own name, without its module: the same wherever the module is run or moved to."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise ConfigurationError(f"a task needs a name: give {function!r} one with @app.task(name=…)")
    return str(name)
