"""What can be said about a task and its jobs, checked when it is said."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from dibs import limits
from dibs.clock import Clock
from dibs.errors import ConfigurationError, Refused
from dibs.job import NewJob, OnConflict
from dibs.keys import Key
from dibs.limiting import rate_of
from dibs.retry import DEFAULT, RetryPolicy
from dibs.scope import Limit, Rate
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
    unique_for: timedelta | None = None
    """The key stays busy for at least so long after a job was enqueued, also when it is finished."""
    on_conflict: OnConflict = OnConflict.EXISTING
    """What a request does whose key is busy: nothing, replace the queued job, or put it off (debounce)."""
    max_delay: timedelta | None = None
    """The longest that debouncing puts a job off, from when it was first asked for."""
    expires_in: timedelta | None = None
    """A job that has not started so long after it was due is not started any more: it ends cancelled."""
    expires_at: datetime | None = None
    limit_key: Key | None = None
    """Whose job it is, for limits of each key: a template over the arguments, or a function of them."""
    concurrency: int | None = None
    """At most so many of its jobs run at once, over all queues and workers."""
    rate: Rate | None = None
    """At most so many of its jobs start in so much time."""
    executor: Executor = "auto"
    batch: int | None = None
    """Hand up to that many jobs to one call of the function."""
    run_at: datetime | None = None
    delay: timedelta | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Anything of your own that travels with the job beside its arguments."""
    redact: tuple[str, ...] = ()
    """Arguments that are never shown, at whatever depth they stand."""

    @property
    def plain(self) -> bool:
        """Nothing is said that most tasks leave out."""
        return self.key is None and self.limit_key is None and self.expires_in is None and self.expires_at is None

    @property
    def limit(self) -> Limit | None:
        """The limit that the task itself is declared with."""
        if self.concurrency is None and self.rate is None:
            return None
        return Limit(concurrency=self.concurrency, rate=self.rate)


def declared(name: str, given: dict[str, Any]) -> TaskOptions:
    """The options of a declaration; a ConfigurationError names what is wrong with them."""
    try:
        limits.name(name, "name")
    except Refused as problem:
        raise ConfigurationError(f"a task cannot be called that: {problem}") from None
    for option in given:
        if option not in _CHECKS or option in _OF_ONE_JOB:
            known = ", ".join(sorted({"name", *_CHECKS} - _OF_ONE_JOB))
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
    if given.get("expires_in") is not None and given.get("expires_at") is not None:
        raise Refused("give expires_in or expires_at, not both")
    if "expires_in" in given or "expires_at" in given:
        given = {"expires_in": None, "expires_at": None, **given}
    changes = {name: _CHECKS[name](value) for name, value in given.items()}
    changed = msgspec.structs.replace(options, **changes)
    _fit(changed, changes)
    return changed


def _fit(options: TaskOptions, said: dict[str, Any]) -> None:
    """What is said has to have something that it is about. What was said before may rest: a key may be left out."""
    if options.key is None:
        for word in ("unique_for", "on_conflict"):
            if said.get(word) not in (None, OnConflict.EXISTING):
                raise Refused(f'{word} is about jobs of the same key: give a key, too, such as key="user-{{user_id}}"')
    if said.get("max_delay") is not None and options.on_conflict is not OnConflict.DEBOUNCE:
        raise Refused('max_delay is the longest that debouncing puts a job off: say on_conflict="debounce", too')


def new_job(
    how: TaskOptions, clock: Clock, *, task: str, args: Any, key: str | None = None, limit_key: str | None = None
) -> NewJob:
    """A job as the options say, with the keys that were made for it."""
    run_at = how.run_at if how.delay is None else clock() + how.delay
    return NewJob(
        task=task,
        args=args,
        queue=how.queue,
        priority=how.priority,
        run_at=run_at,
        max_attempts=how.max_attempts,
        key=key,
        meta=how.meta,
        **_extras(how, clock, run_at, key, limit_key),
    )


def _extras(
    how: TaskOptions, clock: Clock, run_at: datetime | None, key: str | None, limit_key: str | None
) -> dict[str, Any]:
    made: dict[str, Any] = {"limit_key": limit_key, "expires_at": how.expires_at}
    if how.expires_in is not None:
        made["expires_at"] = (clock() if run_at is None else run_at) + how.expires_in
    if key is not None:
        made["unique_for"], made["on_conflict"] = how.unique_for, how.on_conflict
        if how.on_conflict is OnConflict.DEBOUNCE:
            made["max_delay"] = how.max_delay
    return made


def _span(value: Any, what: str) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise Refused(f"{what} must be a timedelta or seconds, not {value!r}")
    return span(value)


def _positive(what: str) -> Callable[[Any], timedelta | None]:
    def check(value: Any) -> timedelta | None:
        given = _span(value, what)
        if given is not None and not given:
            raise Refused(f"{what} must be more than nothing: leave it out for none")
        return given

    return check


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


def _key(what: str) -> Callable[[Any], Key | None]:
    def check(value: Any) -> Key | None:
        if value is not None and not isinstance(value, str) and not callable(value):
            raise Refused(f"{what} must be a string or a function of the arguments, not {type(value).__name__}")
        return value  # type: ignore[no-any-return]

    return check


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
    "timeout": _positive("timeout"),
    "retry": _retry,
    "retry_on": lambda value: None if value is None else _kinds(value, "retry_on"),
    "fail_on": lambda value: _kinds(value, "fail_on"),
    "key": _key("key"),
    "unique_for": _positive("unique_for"),
    "on_conflict": limits.on_conflict,
    "max_delay": _positive("max_delay"),
    "expires_in": _positive("expires_in"),
    "expires_at": lambda value: None if value is None else limits.moment(value, "expires_at"),
    "limit_key": _key("limit_key"),
    "concurrency": lambda value: None if value is None else limits.within(value, limits.CONCURRENCY, "concurrency"),
    "rate": rate_of,
    "executor": _executor,
    "batch": lambda value: None if value is None else limits.within(value, (1, limits.BULK), "batch"),
    "run_at": lambda value: None if value is None else limits.moment(value, "run_at"),
    "delay": lambda value: _span(value, "delay"),
    "meta": _meta,
    "redact": names_to_hide,
}

_OF_ONE_JOB = frozenset({"run_at", "expires_at"})
"""A moment: no sense to say it of all jobs of a task."""
