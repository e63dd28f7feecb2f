"""Interceptors that trace, judged by OpenTelemetry's own SDK."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kbatch
from kbatch.errors import IllegalStateError
from kbatch.testing import Broker
from kbatch.tracing import MOST_LINKS, ConsumerTracingInterceptor, TracingInterceptor
from tests.support import polling
from tests.support.patience import until
from tests.support.polling import FIRST, SECOND, consuming, polled
from tests.support.producing import SECONDS, TOPIC, producing, within

pytestmark = pytest.mark.usefixtures("shell")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Return the exporter of traces; `trace.get_tracer` is that of this test."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def test_a_record_carries_the_span_that_sent_it(spans: InMemorySpanExporter) -> None:
    interceptor = TracingInterceptor("me")
    with Broker({TOPIC: 2}) as broker, producing(broker, interceptor_classes=[interceptor]) as producer:
        headers = [("kept", b"1"), ("traceparent", b"of an earlier trace")]
        producer.send(TOPIC, b"x", partition=1, headers=headers).result(SECONDS)
        producer.send(TOPIC, b"y", partition=1).result(SECONDS)
        first, second = broker.records(TOPIC, 1)
    sent, other = spans.get_finished_spans()
    assert [name for name, _ in first.headers] == ["kept", "traceparent"]
    carrier = {name: (value or b"").decode() for name, value in first.headers}
    found = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    assert (found.trace_id, found.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert dict(second.headers)["traceparent"] != dict(first.headers)["traceparent"]
    assert (sent.name, sent.kind) == (f"send {TOPIC}", trace.SpanKind.PRODUCER)
    assert sent.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "me",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "1",
    }
    assert other.context.trace_id != sent.context.trace_id


@pytest.mark.threads
def test_the_span_belongs_to_the_one_that_is_current(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("test")
    with Broker([TOPIC]) as broker, producing(broker, interceptor_classes=[TracingInterceptor]) as producer:
        with tracer.start_as_current_span("order") as order:
            producer.send(TOPIC, b"x").result(SECONDS)
        sent = spans.get_finished_spans()[0]
        assert sent.parent is not None
        assert sent.parent.span_id == order.get_span_context().span_id


def test_tables_go_as_they_are_and_encoded_batches_are_refused(spans: InMemorySpanExporter) -> None:
    with Broker([TOPIC]) as broker, producing(broker, interceptor_classes=[TracingInterceptor]) as producer:
        producer.send_table(TOPIC, {"value": np.array([b"a", b"b"], dtype="S1")}).wait(SECONDS)
        assert [record.headers for record in broker.records(TOPIC)] == [(), ()]
        assert not spans.get_finished_spans()
        with pytest.raises(IllegalStateError, match="TracingInterceptor"):
            producer.send_batch(TOPIC, 0, kbatch.encode([(None, b"c")]))


# Consumers


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def includes(span: ReadableSpan, time_ns: int) -> bool:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time <= time_ns <= span.end_time


def of_polls(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is trace.SpanKind.CLIENT]


def test_a_poll_is_a_span_linked_to_those_that_sent(spans: InMemorySpanExporter) -> None:
    tracing = ConsumerTracingInterceptor("me", "billing")
    with Broker({polling.TOPIC: 3}) as broker, consuming(broker, interceptor_classes=[tracing]) as consumer:
        began_ns = time.time_ns()
        assert not consumer.poll(0) and not of_polls(spans)
        with producing(broker, interceptor_classes=[TracingInterceptor]) as producer:
            for number in range(5):
                producer.send(polling.TOPIC, b"%d" % number, partition=1).result(SECONDS)
            producer.send(polling.TOPIC, b"6", partition=2).result(SECONDS)
        sent = {span.context.span_id for span in spans.get_finished_spans()}
        found = polled(consumer, 6)
    assert len(found) == len(sent) == 6
    polls = of_polls(spans)
    assert {link.context.span_id for span in polls for link in span.links} == sent
    assert sum(attributes_of(span)["messaging.batch.message_count"] for span in polls) == 6
    for span in polls:
        assert span.name == "poll orders"
        assert span.start_time is not None and span.end_time is not None
        assert began_ns <= span.start_time <= span.end_time
        one = {"messaging.destination.partition.id", "messaging.batch.message_count"}
        assert {name: value for name, value in attributes_of(span).items() if name not in one} == {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.client.id": "me",
            "messaging.consumer.group.name": "billing",
            "messaging.destination.name": "orders",
        }


@pytest.mark.threads
def test_the_span_of_a_poll_begins_with_its_wait(spans: InMemorySpanExporter) -> None:
    tracing = ConsumerTracingInterceptor()
    with Broker({polling.TOPIC: 3}) as broker, consuming(broker, interceptor_classes=[tracing]) as consumer:
        waiting = within(consumer.poll)
        until(lambda: consumer._runtime.changed.waiting)
        sent_ns = time.time_ns()
        polling.fill(broker, 1, partitions=[0])
        assert len(waiting.result(SECONDS)) == 1
    (span,) = of_polls(spans)
    assert includes(span, sent_ns)


def test_what_is_done_with_a_record_continues_its_trace(spans: InMemorySpanExporter) -> None:
    tracing = ConsumerTracingInterceptor()
    tracer = trace.get_tracer("test")
    with Broker({polling.TOPIC: 3}) as broker, consuming(broker, interceptor_classes=[tracing]) as consumer:
        with producing(broker, interceptor_classes=[TracingInterceptor]) as producer:
            producer.send(polling.TOPIC, b"a", partition=1).result(SECONDS)
        polling.fill(broker, 1, partitions=[1])  # without a trace
        (sent,) = spans.get_finished_spans()
        traced, other = polled(consumer, 2)
        spans.clear()
        with tracer.start_as_current_span("loop") as loop:
            with tracing.process(traced) as span:
                assert trace.get_current_span() is span
            with pytest.raises(ValueError, match="no"), tracing.process(other):
                raise ValueError("no")
            with tracing.process([traced, other]):
                pass
    first, second, both, _ = spans.get_finished_spans()
    assert (first.name, first.kind) == ("process orders", trace.SpanKind.CONSUMER)
    assert first.parent and second.parent and both.parent
    assert (first.context.trace_id, first.parent.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert first.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1",
        "messaging.kafka.offset": 0,
    }
    assert second.parent.span_id == both.parent.span_id == loop.get_span_context().span_id
    assert attributes_of(second)["error.type"] == "ValueError" and not second.status.is_ok
    assert [link.context.span_id for link in both.links] == [sent.context.span_id]
    assert attributes_of(both)["messaging.batch.message_count"] == 2


def test_spans_of_tables_and_of_many_records_have_bounds(spans: InMemorySpanExporter) -> None:
    tracing = ConsumerTracingInterceptor()
    count = MOST_LINKS + 10
    with Broker({polling.TOPIC: 3}) as broker, consuming(broker, FIRST, interceptor_classes=[tracing]) as it:
        with producing(broker, interceptor_classes=[TracingInterceptor]) as producer:
            for _ in range(count):
                producer.send(polling.TOPIC, b"a", partition=0)
            producer.flush(SECONDS)
        spans.clear()
        assert it.poll_table(min_rows=count).num_rows == count
        it.seek(FIRST, 0)
        found = polled(it, count)
        with tracing.process(found):
            pass
        it.assign([SECOND])
        assert it.poll_table(0).num_rows == 0
    (table, *_), (whole,) = of_polls(spans), spans.get_finished_spans()[-1:]
    assert (table.name, table.links, attributes_of(table)["messaging.batch.message_count"]) == (
        "poll",
        (),
        count,
    )
    assert len(whole.links) == MOST_LINKS


@pytest.mark.threads
def test_without_opentelemetry_the_text_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "kbatch.tracing")
    with pytest.raises(ImportError, match=r"pip install 'kbatch-kafka\[opentelemetry\]'"):
        import kbatch.tracing  # noqa: F401
