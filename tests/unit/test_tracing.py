"""TracingInterceptor, judged by OpenTelemetry's own SDK."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kbatch
from kbatch.errors import IllegalStateError
from kbatch.testing import Broker
from kbatch.tracing import TracingInterceptor
from tests.support.producing import SECONDS, TOPIC, producing

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
    carrier = {name: value.decode() for name, value in first.headers}
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


@pytest.mark.threads
def test_without_opentelemetry_the_text_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "kbatch.tracing")
    with pytest.raises(ImportError, match=r"pip install 'kbatch\[opentelemetry\]'"):
        import kbatch.tracing  # noqa: F401
