"""KbatchInstrumentor: OpenTelemetry's automatic instrumentation; needs the extra `opentelemetry`.

`opentelemetry-instrument python program.py` finds it by its entry point, so that the program needs no change:
every client that is made afterwards is traced as by the interceptors of kbatch.tracing. A program may also
call `KbatchInstrumentor().instrument()`, before it makes its clients.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, final

from kbatch.config import ConsumerConfig, ProducerConfig
from kbatch.distribution import needs
from kbatch.interceptors import ConsumerInterceptor, Interceptor, automatic
from kbatch.tracing import ConsumerTracingInterceptor, TracingInterceptor

with needs("kbatch.instrumentation", "opentelemetry"):
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

__all__ = ["KbatchInstrumentor"]


@final
class KbatchInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # their module has no types
    """Traces all clients. `instrument(tracer_provider=...)` takes a provider of yours; `uninstrument()` ends
    it for clients that are made afterwards.

    A client with an interceptor of kbatch.tracing keeps that one. Records that are encoded already, as those
    of Spark, pass without spans.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: it comes with what it traces."""
        return ()

    def _instrument(self, **options: Any) -> None:
        provider = options.get("tracer_provider")

        def for_producers(config: ProducerConfig) -> Interceptor:
            return TracingInterceptor(config.client_id, tracer_provider=provider, passes_batches=True)

        def for_consumers(config: ConsumerConfig) -> ConsumerInterceptor:
            group = config.group_id or ""
            return ConsumerTracingInterceptor(config.client_id, group, tracer_provider=provider)

        automatic.producers, automatic.consumers = for_producers, for_consumers

    def _uninstrument(self, **options: Any) -> None:
        automatic.producers = automatic.consumers = None
