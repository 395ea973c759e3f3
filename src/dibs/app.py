"""An app: the tasks of a program, and the store that their jobs are in."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, Protocol, Self, TypeVar, Unpack, overload
from uuid import UUID

import msgspec

from dibs import limits
from dibs.background import background
from dibs.clock import Clock, system_clock
from dibs.declaring import Declare, DeclareBatch, Declared, Sent
from dibs.draining import Deadline, Drained, held_back
from dibs.errors import ConfigurationError, Refused
from dibs.flow import FlowHandle, FlowPlan
from dibs.handle import Handle
from dibs.job import Enqueued, Job, NewJob, OnFailure, Retention, State
from dibs.limiting import RunTimeLimits, limit_of, scope_of
from dibs.limiting import declare as declare_limit
from dibs.opened import Opened
from dibs.options import TaskOptions, declared, names_to_hide, new_job, replaced
from dibs.redaction import Redaction
from dibs.schedules import Rhythm, Schedules, What, declare
from dibs.scope import Rate, Scope
from dibs.signals import Delay
from dibs.store import Store
from dibs.stores import DEFAULT_URL, kind_of, open_store
from dibs.task import EVENTS, AsyncTask, BatchTask, Middleware, P, PlainTask, R, Task, Tasks, default_name
from dibs.worker import Worker
from dibs.worker.processes import refer

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=Task[..., Any])

WORK_URL = "DIBS_WORK_URL"
"""What ``dibs work --url`` was told, for its processes and theirs: every app in them uses it."""
_KEEP = Retention()


class Extension(Protocol):
    """What ``app.use`` takes."""

    def install(self, app: Any) -> None:
        """Ask the app for what it needs: ``middleware``, ``on``, ``sending``."""


class App:
    """Declares tasks, enqueues their jobs and runs them. Making one connects to nothing."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "dibs",
        queue: str = "default",
        retention: Retention | None = _KEEP,
        store: Store | None = None,
        clock: Clock = system_clock,
        redact: Sequence[str] = (),
    ) -> None:
        """The store is that of ``url``; without one that of ``DIBS_URL``, or else the file ``jobs.db``.

        ``queue`` is where jobs go unless their task says otherwise. ``retention`` is how long workers of this app keep
        finished jobs; None keeps them for ever. ``store`` is an object to use as it is, instead of a URL: you set it
        up, you close it. ``clock`` is what delays are counted from; tests own it. ``redact`` names arguments of any
        task that are never shown, at whatever depth they stand.
        """
        self.name = name
        self.queue = limits.name(queue, "queue")
        self.retention = retention
        self.tasks = Tasks(redact=names_to_hide(redact))
        self._clock = clock
        self._given = store
        self._opened = Opened(self.open_store)
        self._sending: list[Callable[[Store], Store]] = []
        self.schedules = Schedules(self.store, self.tasks)
        """Schedules that are stored: add, change, pause, resume, remove, list."""
        self.limits = RunTimeLimits(self.store, self.tasks.limits)
        """Limits that are in force: set, reset, list."""
        self.url = os.environ.get(WORK_URL) or url or os.environ.get("DIBS_URL") or DEFAULT_URL

    # --- declaring ------------------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, *, batch: int, **options: Unpack[Declared]) -> DeclareBatch: ...
    @overload
    def task(self, **options: Unpack[Declared]) -> Declare: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make a task of a function: ``@app.task``, or ``@app.task(queue="mail", max_attempts=3)``.

        Its name is the function's, without the module, unless ``name`` says otherwise. What is wrong with it, an option
        or a type that no job can carry, is said here, when it is declared.
        """
        name = options.pop("name", None)

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            return self._declare(function, name, options)

        return declare if function is None else declare(function)

    def _declare(self, function: Callable[..., Any], name: str | None, given: dict[str, Any]) -> Task[..., Any]:
        _check_callable(function)
        name = default_name(function) if name is None else name
        options = declared(name, {"queue": self.queue, **given})
        if options.executor == "process":
            refer(function, name)
        task: Task[..., Any]
        if options.batch is not None:
            task = BatchTask(function, name=name, options=options, store=self.store, clock=self._now)
        elif inspect.iscoroutinefunction(function):
            task = AsyncTask(function, name=name, options=options, store=self.store, clock=self._now)
        else:
            task = PlainTask(function, name=name, options=options, store=self.store, clock=self._now)
        self.tasks.add(task)
        if options.limit is not None:
            declare_limit(self.tasks.limits, Scope(task=name), options.limit)
        return task

    @overload
    def schedule(self, name: str, what: What, /, **rhythm: Unpack[Rhythm]) -> None: ...
    @overload
    def schedule(self, name: str | None = None, /, **rhythm: Unpack[Rhythm]) -> Callable[[K], K]: ...
    def schedule(self, name: str | None = None, what: What | None = None, /, **rhythm: Unpack[Rhythm]) -> Any:
        """Have workers with this code enqueue a job at every tick.

        Above a task that needs no arguments, ``@app.schedule(cron="0 3 * * *", zone="Europe/Berlin")``, or by itself:
        ``app.schedule("sales", report.job("sales"), every=timedelta(hours=6))``. Its name is the task's unless it has
        one. A schedule that is gone from the code is gone; to keep one whatever the code says: ``app.schedules.add``.
        """
        if name is not None and not isinstance(name, str):
            raise ConfigurationError("a schedule is given a name first, or stands as @app.schedule(…) above a task")
        if name is not None and what is not None:
            declare(self.tasks, name, what, rhythm)
            return None

        def above(task: K) -> K:
            if not isinstance(task, Task):
                raise ConfigurationError("@app.schedule(…) goes above a task: write it in the line above @app.task")
            declare(self.tasks, task.name if name is None else name, task, rhythm)
            return task

        return above

    def limit(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        each_key: bool = False,
        concurrency: int | None = None,
        rate: Rate | str | None = None,
    ) -> None:
        """Limit how many jobs run at once, and how many start, over all workers.

        ``app.limit(queue="mail", concurrency=10, rate="100/min")`` for a queue, ``app.limit(task=charge, …)`` for a
        task in whatever queue, ``app.limit(queue="mail", each_key=True, concurrency=1)`` for the jobs of each
        ``limit_key`` by themselves. Workers put it into the store when they start; ``app.limits.set`` is stronger.
        """
        try:
            scope, limit = scope_of(queue, task, each_key), limit_of(concurrency, rate)
        except Refused as problem:
            raise ConfigurationError(f"app.limit: {problem}") from None
        declare_limit(self.tasks.limits, scope, limit)

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt of every task in ``async def function(attempt, call_next)``; the first is outermost."""
        self.tasks.middleware.append(function)
        return function

    def on(self, event: str) -> Callable[[F], F]:
        """Call the decorated function when that happens in a worker: ``@app.on("failed")``."""
        if event not in EVENTS:
            raise ConfigurationError(f"there is no event {event!r}: it is one of {', '.join(sorted(EVENTS))}")

        def listen(function: F) -> F:
            self.tasks.hooks.setdefault(event, []).append(function)
            return function

        return listen

    def use(self, extension: Extension) -> None:
        """Add what wraps more than one thing of this app: ``app.use(dibs.telemetry.OpenTelemetry())``."""
        extension.install(self)

    def sending(self, wrap: Callable[[Store], Store]) -> None:
        """For extensions: have all that this app and its tasks send go through a store that is wrapped like that.

        Workers are not concerned: they open stores of their own.
        """
        self._sending.append(wrap)

    # --- sending and looking --------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs of any tasks, made with ``task.job(…)``, all or none; answers come in their order."""
        return await (await self.store()).enqueue(jobs)

    async def send(self, task: str, args: dict[str, Any] | None = None, **options: Unpack[Sent]) -> Handle[Any]:
        """Enqueue by the task's name, for tasks that another program runs.

        ``args`` go by parameter name and have to be JSON. A task that this app knows checks them.
        """
        known = self.tasks.by_name.get(task)
        if known is not None:
            return await known.options(**options).enqueue(**(args or {}))
        how = replaced(TaskOptions(queue=self.queue), dict(options))
        keys = {"key": options.get("key"), "limit_key": options.get("limit_key")}
        job = new_job(how, self._clock, task=task, args=args or {}, **keys)
        [sent] = await self.enqueue([job])
        return Handle(sent.id, sent.created, self.store, _as_it_is, changed=sent.changed)

    def flow(
        self,
        name: str,
        *,
        on_failure: OnFailure | Literal["stop", "continue"] = "stop",
        meta: dict[str, Any] | None = None,
    ) -> FlowPlan:
        """A flow in the making: ``plan = app.flow("import")``, then ``plan.step(…)`` and ``await plan.start()``.

        ``on_failure``: "stop" cancels the rest when a step fails, "continue" only what needs that step. ``meta`` is any
        JSON that is kept with the flow.
        """
        how = limits.on_failure(on_failure)
        return FlowPlan(limits.name(name, "flow"), self.store, how, {} if meta is None else meta)

    def flow_handle(self, id: UUID | str) -> FlowHandle:
        """A handle on a flow that was started before."""
        return FlowHandle(_uuid(id, "flow"), False, self.store)

    async def get(self, id: UUID | str) -> Job | None:
        """The job as it is now; None if there is none (any more)."""
        return await (await self.store()).get(_uuid(id))

    def handle(self, id: UUID | str) -> Handle[Any]:
        """A handle on a job that was sent before; its result comes as JSON. ``task.handle(id)`` knows the type."""
        return Handle(_uuid(id), False, self.store, _as_it_is)

    # --- running --------------------------------------------------------------------------------------------

    def worker(self, **settings: Any) -> Worker:
        """A worker for this app's tasks; ``await worker.run()`` works until stopped. ``Worker`` lists the settings.

        Serves the queues that the tasks are declared with, by equal weights, unless ``queues`` says otherwise.
        """
        given = {"queues": dict.fromkeys(self.queues(), 1), "retention": self.retention, **settings}
        return Worker(self.tasks, self.open_store, **given)

    @property
    def redaction(self) -> Redaction:
        """What is never shown of this app's jobs: what ``redact`` names, of the app and of its tasks, and passwords."""
        return self.tasks.redaction

    def queues(self) -> list[str]:
        """The queues that this app's tasks are declared with, as they were declared."""
        named = [task.defaults.queue for task in self.tasks.by_name.values()]
        return list(dict.fromkeys(named)) or [self.queue]

    async def drain(
        self, queues: Sequence[str] | None = None, *, timeout: Delay | None = None, concurrency: int = 100
    ) -> Drained:
        """Run what is due, and what that enqueues, until nothing due is left: for scripts and tests.

        ``queues``: all that there are, unless told. What is due later, a retry too, is left for later, and so is what
        limits hold back at the end: ``held_back`` counts those. After ``timeout`` what still runs is given back and a
        TimeoutError raised.
        """
        deadline = Deadline(timeout)
        total, served = Drained(), frozenset[str]()
        while True:
            named = list(queues) if queues is not None else await self._all_queues()
            if served.issuperset(named):
                left = await held_back(await self.store(), served, self.tasks.by_name)
                return msgspec.structs.replace(total, held_back=left)
            # Those of before again: the next step of a flow may be in any of them.
            named = list(dict.fromkeys([*named, *sorted(served)]))
            worker = self.worker(queues=named, concurrency=concurrency, retention=None, until_empty=True, samples=False)
            with deadline.stopping(worker):
                total = total.plus(await worker.run())
            served = served.union(named)

    async def _all_queues(self) -> list[str]:
        there = [each.queue for each in await (await self.store()).counts() if each.states.get(State.QUEUED)]
        return list(dict.fromkeys([*self.queues(), *there]))

    # --- the store ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the jobs are. Set before the app is first used, another one counts instead."""
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        self._url = url
        in_memory = self._given is None and kind_of(url) is kind_of("memory://")
        self._shared = open_store(url, clock=self._clock) if in_memory else self._given

    async def store(self) -> Store:
        """The store, through the handle of this process and event loop: opened and set up on first use."""
        store = self._shared if self._shared is not None else self._opened.ready()
        if store is None:
            store = await self._opened.here()
        for wrap in self._sending:
            store = wrap(store)
        return store

    def open_store(self) -> Store:
        """Another handle on the store, not set up; whoever asks for it closes it.

        A store in memory, or one that was given as an object, is one and the same each time, and not to be closed.
        """
        return open_store(self.url, clock=self._clock) if self._shared is None else self._shared

    @contextmanager
    def using(self, store: Store, *, clock: Clock = system_clock) -> Iterator[None]:
        """For tests: until the block ends, this app and its tasks go to that store and count delays by that clock.

        Also if the URL is set meanwhile. You set it up, you close it. ``dibs.testing.use_memory`` is made of this.
        """
        given, shared, own_clock, url = self._given, self._shared, self._clock, self._url
        self._given, self._shared, self._clock = store, store, clock
        try:
            yield
        finally:
            self._given, self._shared, self._clock = given, shared, own_clock
            if self._url != url:
                self.url = self._url  # it was set meanwhile, and counts from now on

    def _now(self) -> datetime:
        return self._clock()

    async def close(self) -> None:
        """Close the store handle of this event loop. The next use opens another."""
        await self._opened.close()

    async def __aenter__(self) -> Self:
        await self.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- for callers without an event loop ------------------------------------------------------------------

    def sync(self, awaitable: Awaitable[T]) -> T:
        """Wait for anything that would be awaited: ``handle = app.sync(task.enqueue(1))``.

        It runs on a background thread, one per process, also after a fork. Where an event loop runs already, in a
        coroutine or in a notebook, this is a RuntimeError: use ``await`` there.
        """
        if not _in_a_loop():
            return background().run(awaitable)
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # or Python would complain that it was never awaited, too
        raise RuntimeError("an event loop runs in this thread, so app.sync(…) would block it: write await … instead")

    def __repr__(self) -> str:
        return f"<app {self.name}>"


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check_callable(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise ConfigurationError(f"a task is made of a function, not of {function!r}: write @app.task(…) above one")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{function.__qualname__} is a generator: a task returns its result, it does not yield"
        )


def _uuid(id: UUID | str, thing: str = "job") -> UUID:
    if isinstance(id, UUID):
        return id
    try:
        return UUID(id)
    except ValueError:
        raise Refused(f"{id!r} is no {thing} id: ids look like 0190a6b2-7c3e-7f00-8000-000000000000") from None


def _as_it_is(stored: Any) -> Any:
    return stored
