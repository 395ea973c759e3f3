"""OpenTelemetry: a span where a job is enqueued and one for each attempt, tied together through the job.

Needs the extra ``dibs[otel]``. Nothing of it is imported before an ``OpenTelemetry`` is made.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from dibs import signals
from dibs.attempt import Attempt, carry
from dibs.errors import ConfigurationError
from dibs.job import Enqueued, NewFlow, NewJob
from dibs.store import Store
from dibs.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

CARRIED = "trace"
"""Where the meta of a job carries the context: W3C's traceparent and tracestate."""
_FIELDS = ("traceparent", "tracestate")
_NO_ERROR = (signals.Snooze,)


class Extensible(Protocol):
    """What an extension may ask of an app."""

    def middleware(self, function: Any) -> Any: ...
    def sending(self, wrap: Callable[[Store], Store]) -> None: ...


class OpenTelemetry:
    """``app.use(OpenTelemetry())``: traces what this app enqueues, and what its workers run.

    ``provider``: whose spans they are; that of the program unless told. ``same_trace``: whether an attempt belongs to
    the trace of whoever enqueued the job, or begins one of its own that is linked to it: say False if jobs run hours
    later, or many come of one request. The spans have the job's id, task and queue, never its arguments or its result.
    """

    def __init__(self, provider: "TracerProvider | None" = None, *, same_trace: bool = True) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError:
            raise ConfigurationError("traces need opentelemetry-api: pip install 'dibs[otel]'") from None
        self._trace = trace
        self._root = Context()
        self._tracer = trace.get_tracer("dibs", __version__, provider)
        self._propagator = TraceContextTextMapPropagator()
        self._same_trace = same_trace

    def install(self, app: Extensible) -> None:
        """What ``app.use`` calls."""
        app.middleware(self.attempt)
        app.sending(self._wrap)

    # --- enqueueing -----------------------------------------------------------------------------------------

    def carry(self, job: NewJob) -> NewJob:
        """The job with the current context in its meta: for ``dibs.transaction.enqueue_in``, which knows no app."""
        found = self._carrier()
        return msgspec.structs.replace(job, meta={**job.meta, CARRIED: found}) if found else job

    def _carrier(self) -> dict[str, str]:
        """The current context, to be sent somewhere."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return {name: carrier[name] for name in _FIELDS if name in carrier}

    @contextmanager
    def sent(self, jobs: Sequence[NewJob], what: str) -> "Iterator[Span]":
        """A producer's span around a call that stores these jobs."""
        queues, tasks = {job.queue for job in jobs}, {job.task for job in jobs}
        attributes: dict[str, Any] = {
            "messaging.system": "dibs",
            "messaging.operation.name": what,
            "messaging.operation.type": "send",
        }
        if len(queues) == 1:
            attributes["messaging.destination.name"] = jobs[0].queue
        if len(tasks) == 1:
            attributes["dibs.task"] = jobs[0].task
        if len(jobs) == 1:
            attributes["messaging.message.id"] = str(jobs[0].id)
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        name = f"{what} {jobs[0].queue}" if len(queues) == 1 else what
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(name, kind=kind, attributes=attributes) as span:
            yield span

    def _wrap(self, store: Store) -> Store:
        return cast("Store", _Sending(store, self))

    # --- running --------------------------------------------------------------------------------------------

    async def attempt(self, attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """A consumer's span around an attempt; one for all jobs of a batch, linked to whoever enqueued each."""
        contexts = [self._context(each.meta) for each in attempt.batch]
        links = self._links(contexts)
        parent = contexts[0] if self._same_trace and len(contexts) == 1 else None
        with self._tracer.start_as_current_span(
            f"process {attempt.queue}",
            context=parent or self._root,  # a worker that was started in a span of its own is none of its business
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_about(attempt),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            told = carry.set(self._carrier)
            try:
                return await call_next()
            except BaseException as problem:
                self._failed(span, problem)
                raise
            finally:
                carry.reset(told)

    def _failed(self, span: "Span", problem: BaseException) -> None:
        kind = type(problem).__qualname__
        if isinstance(problem, _NO_ERROR) or not isinstance(problem, Exception):
            span.set_attribute("dibs.interrupted", kind)  # snoozed, cancelled, timed out, or the lease is lost
            return
        span.set_attribute("error.type", kind)
        span.record_exception(problem)
        span.set_status(self._trace.StatusCode.ERROR, str(problem)[:200])

    def _context(self, meta: Mapping[str, Any]) -> "Context | None":
        carried = meta.get(CARRIED)
        if not isinstance(carried, Mapping):
            return None
        texts = {name: text for name in _FIELDS if isinstance(text := carried.get(name), str)}
        return self._propagator.extract(texts, self._root)

    def _links(self, contexts: "Iterable[Context | None]") -> "list[Link]":
        found = {}
        for context in contexts:
            if context is not None:
                span = self._trace.get_current_span(context).get_span_context()
                if span.is_valid:
                    found[span.trace_id, span.span_id] = self._trace.Link(span)
        return list(found.values())


def _about(attempt: Attempt) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "dibs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": attempt.queue,
        "messaging.client.id": attempt.worker,
        "dibs.task": attempt.task,
    }
    if len(attempt.batch) > 1:
        attributes["messaging.batch.message_count"] = len(attempt.batch)
    else:
        attributes |= {
            "messaging.message.id": str(attempt.id),
            "dibs.attempt": attempt.attempt,
            "dibs.max_attempts": attempt.max_attempts,
        }
    return attributes


def resume(carried: Mapping[str, str]) -> None:
    """In a process of a handler's own: the spans that it makes from here on are children of its attempt."""
    try:
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ModuleNotFoundError:  # then it makes none
        return
    context.attach(TraceContextTextMapPropagator().extract(carried))


class _Sending:
    """A store whose jobs carry the context of the span in which they are stored. All other verbs are the store's."""

    def __init__(self, store: Store, traces: OpenTelemetry) -> None:
        self._store = store
        self._traces = traces

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return await self._store.enqueue(jobs)
        with self._traces.sent(jobs, "enqueue"):
            return await self._store.enqueue([self._traces.carry(job) for job in jobs])

    async def start(self, flow: NewFlow) -> Enqueued:
        if not flow.steps:
            return await self._store.start(flow)
        with self._traces.sent([step.job for step in flow.steps], "start") as span:
            span.set_attribute("dibs.flow", flow.name)
            replace = msgspec.structs.replace
            steps = tuple(replace(step, job=self._traces.carry(step.job)) for step in flow.steps)
            return await self._store.start(replace(flow, steps=steps))
