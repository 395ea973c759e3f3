"""What can be said about a task and its jobs, checked when it is said."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from dibs import limits
from dibs.errors import ConfigurationError, Refused
from dibs.keys import Key
from dibs.retry import DEFAULT, RetryPolicy
from dibs.signals import span

Executor = Literal["auto", "process"]
"""Where a handler runs. auto: ``async def`` on the worker's loop, plain functions in threads. process: in a process of
its own, for work that must be killable or that holds the GIL."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says about its jobs, unless ``Task.options`` says otherwise for some of them."""

    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    lease: timedelta | None = None
    """How long a claim lasts if not renewed; None leaves it to the worker."""
    timeout: timedelta | None = None
    """How long one attempt may take before it is stopped and counts as failed."""
    retry: RetryPolicy = DEFAULT
    retry_on: tuple[type[BaseException], ...] | None = None
    """Only these are tried again, all others fail the job; None: every exception is."""
    fail_on: tuple[type[BaseException], ...] = ()
    """These fail the job at once, whatever attempts are left; stronger than ``retry_on``."""
    key: Key | None = None
    """At most one unfinished job per queue and key: a template over the arguments, or a function of them."""
    executor: Executor = "auto"
    batch: int | None = None
    """Hand up to that many jobs to one call of the function."""
    run_at: datetime | None = None
    delay: timedelta | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Anything of your own that travels with the job beside its arguments."""
    redact: tuple[str, ...] = ()
    """Arguments that are never shown, at whatever depth they stand."""


def declared(name: str, given: dict[str, Any]) -> TaskOptions:
    """The options of a declaration; a ConfigurationError names what is wrong with them."""
    try:
        limits.name(name, "name")
    except Refused as problem:
        raise ConfigurationError(f"a task cannot be called that: {problem}") from None
    for option in given:
        if option not in _CHECKS or option == "run_at":
            known = ", ".join(sorted({"name", *_CHECKS} - {"run_at"}))
            raise ConfigurationError(f"task {name}: there is no option {option}: it is one of {known}")
    try:
        return replaced(TaskOptions(), given)
    except Refused as problem:
        raise ConfigurationError(f"task {name}: {problem}") from None


def replaced(options: TaskOptions, given: dict[str, Any]) -> TaskOptions:
    """The options with those given instead, each checked; Refused says which is wrong."""
    if given.get("delay") is not None and given.get("run_at") is not None:
        raise Refused("give delay or run_at, not both")
    if "delay" in given or "run_at" in given:  # the one given last counts
        given = {"delay": None, "run_at": None, **given}
    changes = {name: _CHECKS[name](value) for name, value in given.items()}
    return msgspec.structs.replace(options, **changes)


def _span(value: Any, what: str) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise Refused(f"{what} must be a timedelta or seconds, not {value!r}")
    return span(value)


def _timeout(value: Any) -> timedelta | None:
    given = _span(value, "timeout")
    if given is not None and not given:
        raise Refused("timeout must be more than nothing: leave it out for none")
    return given


def _kinds(value: Any, what: str) -> tuple[type[BaseException], ...]:
    kinds = tuple(value) if isinstance(value, Sequence) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise Refused(f"{what} must be exception classes, not {kind!r}")
    return kinds


def _retry(value: Any) -> RetryPolicy:
    if not hasattr(value, "delay") and not callable(value):
        raise Refused(f"retry must be Constant, Linear, Exponential or a function, not {value!r}")
    return value  # type: ignore[no-any-return]


def _key(value: Any) -> Key | None:
    if value is not None and not isinstance(value, str) and not callable(value):
        raise Refused(f"key must be a string or a function of the arguments, not {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def names_to_hide(value: Any) -> tuple[str, ...]:
    """Names of arguments that are secret."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise Refused(f"redact must be a list of names, not {value!r}")
    return tuple(value)


def _executor(value: Any) -> Executor:
    if value not in ("auto", "process"):
        raise Refused(f"executor must be 'auto' or 'process', not {value!r}")
    return value  # type: ignore[no-any-return]


def _meta(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"meta must be a dict, not {type(value).__name__}")
    limits.to_json(value, "meta")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda value: limits.name(value, "queue"),
    "priority": limits.priority,
    "max_attempts": lambda value: limits.within(value, limits.MAX_ATTEMPTS, "max_attempts"),
    "lease": lambda value: None if value is None else limits.lease(_span(value, "lease")),
    "timeout": _timeout,
    "retry": _retry,
    "retry_on": lambda value: None if value is None else _kinds(value, "retry_on"),
    "fail_on": lambda value: _kinds(value, "fail_on"),
    "key": _key,
    "executor": _executor,
    "batch": lambda value: None if value is None else limits.within(value, (1, limits.BULK), "batch"),
    "run_at": lambda value: None if value is None else limits.moment(value, "run_at"),
    "delay": lambda value: _span(value, "delay"),
    "meta": _meta,
    "redact": names_to_hide,
}
