"""The types of ``@app.task``: what editors and type checkers know of a declaration."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Protocol, TypedDict, TypeVar, overload

from dibs.keys import Key
from dibs.options import Executor
from dibs.retry import RetryPolicy
from dibs.signals import Delay
from dibs.task import AsyncTask, BatchTask, P, PlainTask, R

T = TypeVar("T")


class Sent(TypedDict, total=False):
    """What can be said about one job."""

    queue: str
    priority: int
    delay: Delay | None
    run_at: datetime | None
    key: str | None
    max_attempts: int
    meta: dict[str, Any]


class Declared(TypedDict, total=False):
    """What can be said about a task; ``TaskOptions`` says what each means."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    lease: Delay | None
    timeout: Delay | None
    delay: Delay | None
    retry: RetryPolicy
    retry_on: type[BaseException] | Sequence[type[BaseException]] | None
    fail_on: type[BaseException] | Sequence[type[BaseException]]
    key: Key | None
    executor: Executor
    meta: dict[str, Any]
    redact: Sequence[str]


class Declare(Protocol):
    """``@app.task(queue=…)``: makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class DeclareBatch(Protocol):
    """``@app.task(batch=…)``: makes a task of a function that takes a list of what its jobs carry."""

    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /) -> BatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | BaseException] | None]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> BatchTask[T, None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Sequence[R | BaseException] | None], /) -> BatchTask[T, R]: ...
