"""TracingInterceptor: OpenTelemetry's trace context in every record; needs `kbatch[opentelemetry]`.

`Producer(interceptor_classes=[TracingInterceptor])` makes a span of each `send()`, under the current one, and
puts its context into the record's headers (W3C's `traceparent`, or another format that the program
propagates), for consumers to continue. Names follow OpenTelemetry's conventions for messaging.
"""

from typing import Any, final

from kbatch.interceptors import Interceptor
from kbatch.records import ProducerRecord

try:
    from opentelemetry import propagate, trace
except ImportError as error:
    raise ImportError(f"kbatch.tracing needs {error.name}; pip install 'kbatch[opentelemetry]'") from error

__all__ = ["TracingInterceptor"]


@final
class TracingInterceptor(Interceptor):
    """Traces records; a table passes without span and header. `send_batch` is refused, because encoded
    records cannot get headers.

    Parameters
    ----------
    client_id : str
        The spans' `messaging.client.id`, if any.
    """

    def __init__(self, client_id: str = "") -> None:
        self._tracer = trace.get_tracer("kbatch")
        self._attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        if client_id:
            self._attributes["messaging.client.id"] = client_id

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        attributes = self._attributes | {"messaging.destination.name": record.topic}
        if record.partition is not None:
            attributes["messaging.destination.partition.id"] = str(record.partition)
        carrier: dict[str, str] = {}
        span = f"send {record.topic}"
        with self._tracer.start_as_current_span(span, kind=trace.SpanKind.PRODUCER, attributes=attributes):
            propagate.inject(carrier)
        kept = [header for header in record.headers if header[0] not in carrier]
        return record._replace(headers=[*kept, *((name, text.encode()) for name, text in carrier.items())])

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        return table
