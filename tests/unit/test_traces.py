"""OpenTelemetry: one trace from whoever enqueues to the handler, with links where one parent will not do."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import dibs
from dibs.job import Filter, NewJob
from dibs.telemetry import OpenTelemetry
from dibs.telemetry.traces import CARRIED

ALL = Filter(everything=True)


class Traced:
    """An app with traces, and the spans that have ended."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.app = dibs.App("memory://")
        self.traces = OpenTelemetry(self.provider, **settings)
        self.app.use(self.traces)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def producers(self) -> list[ReadableSpan]:
        return self.spans(SpanKind.PRODUCER)

    def consumers(self) -> list[ReadableSpan]:
        return self.spans(SpanKind.CONSUMER)


def id_of(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_the_request_the_enqueue_the_handler_and_its_own_spans_are_one_trace() -> None:
    traced = Traced()

    @traced.app.task
    async def send(to: str) -> None:
        with traced.tracer.start_as_current_span("smtp"):
            await asyncio.sleep(0)

    with traced.tracer.start_as_current_span("request") as request:
        handle = await send.enqueue("anna")
    await traced.app.drain()
    [producer], [consumer] = traced.producers(), traced.consumers()
    [smtp] = [span for span in traced.exporter.get_finished_spans() if span.name == "smtp"]
    assert producer.parent is not None and producer.parent.span_id == request.get_span_context().span_id
    assert consumer.parent is not None and consumer.parent.span_id == producer.context.span_id
    assert smtp.parent is not None and smtp.parent.span_id == consumer.context.span_id
    assert len({span.context.trace_id for span in traced.exporter.get_finished_spans()}) == 1
    assert producer.name == "enqueue default"
    assert dict(producer.attributes or {}) == {
        "messaging.system": "dibs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": str(handle.id),
        "dibs.task": "send",
    }
    attributes = dict(consumer.attributes or {})
    assert attributes.pop("messaging.client.id")
    assert consumer.name == "process default"
    assert attributes == {
        "messaging.system": "dibs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": str(handle.id),
        "dibs.task": "send",
        "dibs.attempt": 1,
        "dibs.max_attempts": 5,
    }


async def test_a_plain_function_in_a_thread_is_in_the_span_of_its_attempt() -> None:
    traced, seen = Traced(), list[int]()

    @traced.app.task
    def send() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    await send.enqueue()
    await traced.app.drain()
    assert seen == [traced.consumers()[0].context.span_id]


async def test_each_attempt_has_a_span_of_its_own_that_is_linked_to_the_producer() -> None:
    traced = Traced()

    @traced.app.task(max_attempts=2, retry=dibs.Constant(0))
    async def send() -> None:
        raise ValueError("the bank did not answer")

    await send.enqueue()
    await traced.app.drain()
    [producer], attempts = traced.producers(), traced.consumers()
    assert [dict(span.attributes or {})["dibs.attempt"] for span in attempts] == [1, 2]
    assert all(linked(span) == [id_of(producer)] for span in attempts)
    assert len({span.context.span_id for span in attempts}) == 2
    for span in attempts:
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == "ValueError"
        assert [event.name for event in span.events] == ["exception"]


async def test_a_batch_is_one_span_with_a_link_for_each_producer() -> None:
    traced = Traced()

    @traced.app.task(batch=10)
    async def index(pages: list[int]) -> None: ...

    for page in range(3):
        await index.enqueue(page)
    await traced.app.drain()
    [consumer] = traced.consumers()
    assert consumer.parent is None
    assert sorted(linked(consumer)) == sorted(id_of(span) for span in traced.producers())
    assert dict(consumer.attributes or {})["messaging.batch.message_count"] == 3


async def test_many_jobs_of_one_call_are_one_producer() -> None:
    traced = Traced()

    @traced.app.task
    async def send(number: int) -> None: ...

    assert await send.enqueue_many((number,) for number in range(5)) == 5
    await traced.app.enqueue([send.job(5), NewJob(task="else", queue="other")])
    chunk, mixed = traced.producers()
    assert dict(chunk.attributes or {})["messaging.batch.message_count"] == 5
    assert mixed.name == "enqueue"
    assert "messaging.destination.name" not in dict(mixed.attributes or {})
    carried = {job.meta[CARRIED]["traceparent"] for job in (await (await traced.app.store()).find(ALL)).jobs}
    assert len(carried) == 2


async def test_the_steps_of_a_flow_carry_the_span_that_started_it() -> None:
    traced = Traced()

    @traced.app.task
    async def step() -> None: ...

    plan = traced.app.flow("import")
    plan.sequential(step.job(), step.job())
    await plan.start()
    await traced.app.drain()
    [producer] = traced.producers()
    assert (producer.name, dict(producer.attributes or {})["dibs.flow"]) == ("start default", "import")
    assert [linked(span) for span in traced.consumers()] == [[id_of(producer)]] * 2


async def test_attempts_can_have_traces_of_their_own() -> None:
    traced = Traced(same_trace=False)

    @traced.app.task
    async def send() -> None: ...

    await send.enqueue()
    with traced.tracer.start_as_current_span("the worker's own"):
        await traced.app.drain()
    [producer], [consumer] = traced.producers(), traced.consumers()
    assert consumer.parent is None
    assert consumer.context.trace_id != producer.context.trace_id
    assert linked(consumer) == [id_of(producer)]


async def test_what_is_no_failure_is_no_error() -> None:
    traced = Traced()

    @traced.app.task
    async def send() -> None:
        raise dibs.Snooze(3600)

    await send.enqueue()
    await traced.app.drain()
    [consumer] = traced.consumers()
    assert consumer.status.status_code is StatusCode.UNSET
    assert dict(consumer.attributes or {})["dibs.interrupted"] == "Snooze"


async def test_meta_of_the_user_stays_and_no_span_shows_arguments() -> None:
    traced = Traced()

    @traced.app.task
    async def send(card: str) -> str:
        return "hush-result"

    await send.options(meta={"tenant": "acme"}).enqueue("hush-card")
    [job] = (await (await traced.app.store()).find(ALL)).jobs
    assert job.meta["tenant"] == "acme"
    await traced.app.drain()
    assert "hush" not in "".join(span.to_json() for span in traced.exporter.get_finished_spans())


@pytest.mark.parametrize("carried", [7, {}, {"traceparent": "nonsense"}, {"traceparent": 5}])
async def test_a_context_that_makes_no_sense_begins_a_trace(carried: Any) -> None:
    traced = Traced()

    @traced.app.task
    async def send() -> None: ...

    await send.enqueue()
    store = traced.app.open_store()
    await store.enqueue([NewJob(task="send", meta={CARRIED: carried})])
    stats = await traced.app.drain()
    assert stats.succeeded == 2
    assert sorted(len(span.links) for span in traced.consumers()) == [0, 1]


async def test_a_job_for_a_transaction_can_be_given_the_context() -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("request") as span:
        job = traced.traces.carry(NewJob(task="send", meta={"a": 1}))
    assert job.meta["a"] == 1
    assert f"{span.get_span_context().trace_id:032x}" in job.meta[CARRIED]["traceparent"]
    assert traced.traces.carry(job) == job  # outside of any span there is nothing to carry


async def test_an_app_without_traces_has_no_wrapper_around_its_store() -> None:
    app = dibs.App("memory://")
    assert await app.store() is app.open_store()
    assert not app.tasks.middleware
