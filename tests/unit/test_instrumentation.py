"""OpenTelemetry's automatic instrumentation: every client is traced, without a change of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kbatch
from kbatch.instrumentation import KbatchInstrumentor
from kbatch.testing import Broker
from kbatch.tracing import TracingInterceptor
from tests import ROOT
from tests.support.patience import HANG_SECONDS
from tests.support.shells import new_consumer, new_producer, the_loop

GROUP = "opentelemetry_instrumentor"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"orders": 1}, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Return the exporter of the spans of clients that the test makes."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    KbatchInstrumentor().instrument(tracer_provider=provider)
    yield exporter
    KbatchInstrumentor().uninstrument()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if each.name == name]


def test_a_trace_leads_from_send_to_process(broker: Broker, spans: InMemorySpanExporter, shell: str) -> None:
    """The span of `process()` is the current one in the function, and a child of the one that sent."""
    current: list[trace.Span] = []

    def bad(record: Any) -> None:
        current.append(trace.get_current_span())
        raise ValueError("boom")

    async def bad_on_loop(record: Any) -> None:
        bad(record)

    with new_producer(bootstrap_servers=broker.bootstrap_servers, client_id="shop") as producer:
        producer.send("orders", b"1").result(HANG_SECONDS)
    with new_consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(kbatch.errors.ProcessError):
            consumer.process(bad if the_loop() is None else bad_on_loop, retry=kbatch.Retry(attempts=1))
    (sent,), (worked,) = named(spans, "send orders"), named(spans, "process orders")
    assert worked.parent is not None and worked.parent.span_id == sent.context.span_id
    assert [each.get_span_context().span_id for each in current] == [worked.context.span_id]
    assert worked.attributes is not None and sent.attributes is not None
    assert sent.attributes["messaging.client.id"] == "shop"
    assert worked.attributes["messaging.consumer.group.name"] == "billing"
    assert worked.attributes["error.type"] == "ValueError"
    assert len(named(spans, "poll orders")) == 1


def test_encoded_batches_pass_and_a_client_is_traced_once(
    broker: Broker, spans: InMemorySpanExporter
) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_batch("orders", 0, kbatch.encode([(None, b"1")])).result(HANG_SECONDS)
    assert not spans.get_finished_spans()
    with kbatch.Producer(
        bootstrap_servers=broker.bootstrap_servers, interceptor_classes=[TracingInterceptor]
    ) as producer:
        producer.send("orders", b"2").result(HANG_SECONDS)
    assert not spans.get_finished_spans()  # its own has another provider


def test_clients_are_not_traced_any_more_afterwards(broker: Broker, spans: InMemorySpanExporter) -> None:
    KbatchInstrumentor().uninstrument()
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"1").result(HANG_SECONDS)
    assert not spans.get_finished_spans() and broker.records("orders")[0].headers == ()


def test_a_program_without_changes_is_traced(broker: Broker, tmp_path: Path) -> None:
    """It runs under opentelemetry-instrument, which finds the entry point of the distribution."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    metadata = tmp_path / "kbatch_kafka-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kbatch-kafka\nVersion: 0.1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {where}" for name, where in declared.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import kbatch
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        trace.set_tracer_provider(TracerProvider())  # opentelemetry-distro does so
        with kbatch.Producer(bootstrap_servers="{broker.bootstrap_servers}") as producer:
            producer.send("orders", b"1").result({HANG_SECONDS})
        """)
    )
    ran = subprocess.run(
        [
            str(Path(sys.executable).with_name("opentelemetry-instrument")),
            sys.executable,
            str(program),
        ],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "traceparent" in dict(broker.records("orders")[0].headers), ran.stderr
