"""OpenTelemetry's traces, from producers to consumers; needs the extra `opentelemetry`.

`Producer(interceptor_classes=[TracingInterceptor])` makes a span of each `send()`, under the current one, and
puts its context into the record's headers (W3C's `traceparent`, or another format that the program
propagates). A ConsumerTracingInterceptor makes a span of each poll, and its `process` one of what the program
does with a record, which continues the record's trace. Names follow OpenTelemetry's conventions for
messaging.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch.distribution import needs
from kbatch.interceptors import ConsumerInterceptor, Interceptor
from kbatch.records import ProducerRecord, ShareRecord

with needs("kbatch.tracing", "opentelemetry"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

__all__ = ["ConsumerTracingInterceptor", "TracingInterceptor"]

# What a program processes.
Traced = ConsumerRecord | ShareRecord
# OpenTelemetry's SDK keeps no more links of a span by default.
MOST_LINKS = 128


@final
class TracingInterceptor(Interceptor):
    """Traces records; a table passes without span and header. `send_batch` is refused, because encoded
    records cannot get headers.

    Parameters
    ----------
    client_id : str
        The spans' `messaging.client.id`, if any.
    tracer_provider : TracerProvider or None
        None is the program's.
    passes_batches : bool
        True to let `send_batch` send encoded records, without spans.
    """

    def __init__(
        self,
        client_id: str = "",
        *,
        tracer_provider: trace.TracerProvider | None = None,
        passes_batches: bool = False,
    ) -> None:
        self._tracer = _tracer_of(tracer_provider)
        self.passes_batches = passes_batches
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


@final
class ConsumerTracingInterceptor(ConsumerInterceptor):
    """Traces polls, and what the program does with records. Give each consumer its own::

        tracing = ConsumerTracingInterceptor(group_id="billing")
        with Consumer(interceptor_classes=[tracing], ...) as consumer:
            for record in consumer:
                with tracing.process(record):
                    ...

    `Consumer.process` does so itself, around its function, unless that runs in an executor of the program.

    A poll without records has no span. The span of one with records is linked to the spans that sent them,
    128 at most; that of a table is not.

    Parameters
    ----------
    client_id, group_id : str
        The spans' `messaging.client.id` and `messaging.consumer.group.name`, if any.
    tracer_provider : TracerProvider or None
        None is the program's.
    """

    def __init__(
        self,
        client_id: str = "",
        group_id: str = "",
        *,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        self._tracer = _tracer_of(tracer_provider)
        self._attributes: dict[str, str | int] = {"messaging.system": "kafka"}
        if client_id:
            self._attributes["messaging.client.id"] = client_id
        if group_id:
            self._attributes["messaging.consumer.group.name"] = group_id
        self._began_ns = 0

    def on_poll(self) -> None:
        self._began_ns = time.time_ns()

    def on_consume(self, polled: Sequence[ConsumerRecord]) -> None:
        if polled:
            self._end_poll(_common(polled), len(polled), _links(polled))

    def on_consume_table(self, table: Any) -> None:
        if table.num_rows:
            self._end_poll({}, table.num_rows, [])

    def _end_poll(self, common: dict[str, str | int], count: int, links: list[trace.Link]) -> None:
        attributes = self._attributes | common | {"messaging.batch.message_count": count}
        attributes |= {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
        self._tracer.start_span(
            _name("poll", common),
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=self._began_ns or None,
        ).end()

    @contextmanager
    def process(
        self, records: Traced | Sequence[ConsumerRecord] | Sequence[ShareRecord]
    ) -> Iterator[trace.Span]:
        """Make a span of what is done inside a `with`, and make it the current one.

        Parameters
        ----------
        records : ConsumerRecord or ShareRecord, or a sequence of them such as Polled
            The span of one record is a child of the span that sent it. That of several is a child of the
            current span, and linked to the spans that sent them.
        """
        attributes = self._attributes | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
        }
        parent, links = None, list[trace.Link]()
        if isinstance(records, ConsumerRecord | ShareRecord):
            common = _common([records])
            attributes |= {"messaging.kafka.offset": records.offset}
            if _sender_of(found := _context_of(records)).is_valid:
                parent = found
        else:
            common, links = _common(records), _links(records)
            attributes |= {"messaging.batch.message_count": len(records)}
        with self._tracer.start_as_current_span(
            _name("process", common),
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes | common,
            links=links,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _tracer_of(provider: trace.TracerProvider | None) -> trace.Tracer:
    """Return the tracer of a provider; None is the program's."""
    return (trace if provider is None else provider).get_tracer("kbatch")


def _name(operation: str, common: dict[str, str | int]) -> str:
    topic = common.get("messaging.destination.name")
    return operation if topic is None else f"{operation} {topic}"


def _common(records: Iterable[Traced]) -> dict[str, str | int]:
    """Return the attributes of a topic and a partition that all records are of."""
    places = {(record.topic, record.partition) for record in records}
    topics, partitions = {topic for topic, _ in places}, {partition for _, partition in places}
    found: dict[str, str | int] = {}
    if len(topics) == 1:
        found["messaging.destination.name"] = topics.pop()
        if len(partitions) == 1:
            found["messaging.destination.partition.id"] = str(partitions.pop())
    return found


def _context_of(record: Traced) -> Context:
    """Return the context in the record's headers; an empty one if there is none."""
    carrier = {name: bytes(value).decode("latin-1") for name, value in record.headers if value is not None}
    return propagate.extract(carrier, Context())


def _sender_of(context: Context) -> trace.SpanContext:
    return trace.get_current_span(context).get_span_context()


def _links(records: Iterable[Traced]) -> list[trace.Link]:
    """Return links to the spans that sent the records."""
    senders = (_sender_of(_context_of(record)) for record in records if record.headers)
    return list(islice((trace.Link(sender) for sender in senders if sender.is_valid), MOST_LINKS))
