"""The metrics of the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.io.sensor import SensorGroup

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch._native.send.in_flight import InFlight
    from kbatch.metrics import MetricsRegistry

# The sensors of each sent batch, in the order of kb_batch_record_sent (src_c/batch_queue.h): those of all
# topics, and then those of the topic.
SENT_BATCH = (
    ("batch-size", "compression-rate", "record-queue-time", "record-size"),
    ("record-send", "byte", "compression-rate"),
)
_OF_TOPIC_AT_TIMES = ("record-retry", "record-error")


class SenderMetrics:
    """The sensors of batches and Produce requests. A topic has sensors from its first batch on.

    Attributes
    ----------
    request_records, latency, throttle : Sensor
        The records of a request, and the latency and throttling of an answer; the lane records with them.
    """

    def __init__(self, registry: MetricsRegistry, accumulator: RecordAccumulator) -> None:
        self._registry = registry
        self._accumulator = accumulator
        self._of_all = tuple(map(registry.sensor, SENT_BATCH[0]))
        self.request_records = registry.sensor("records-per-request")
        self.throttle = registry.sensor("produce-throttle-time")
        self._retry = registry.sensor("record-retry")
        self._error = registry.sensor("record-error")
        self.latency = registry.sensor("request-latency")
        self._topics: set[str] = set()
        memory = accumulator.memory
        registry.counter("batch-split", lambda: accumulator.split_count)
        registry.gauge("buffer-total-bytes", lambda now_ms: memory.total_memory)
        registry.gauge("buffer-available-bytes", lambda now_ms: memory.available)
        registry.gauge("waiting-threads", lambda now_ms: memory.queued)

    def open_topic(self, topic: str) -> None:
        """Make the metrics of a topic, and have its batches record, before the first of them is sent."""
        if topic in self._topics:
            return
        self._topics.add(topic)
        made = {
            name: self._registry.sensor(name, topic=topic) for name in (*SENT_BATCH[1], *_OF_TOPIC_AT_TIMES)
        }
        self._accumulator.note_sensors(
            topic, SensorGroup((*self._of_all, *(made[name] for name in SENT_BATCH[1])))
        )

    def sent(self, entries: list[InFlight], now_ns: int) -> None:
        """Record a request with these batches."""
        now_ms = now_ns // 1_000_000
        for entry in entries:
            entry.batch.record_sent(now_ms)
        self.request_records.record(sum(entry.batch.record_count for entry in entries), now_ms)

    def answered(self, node_id: int, latency_ns: int, message: Any, now_ns: int) -> None:
        """Record an answer. `message` None means no answer, and no latency, as in Java's
        Sender.handleProduceResponse.
        """
        if message is None:
            return
        now_ms = now_ns // 1_000_000
        self.latency.record(latency_ns / 1e6, now_ms)
        self._registry.record("request-latency", latency_ns / 1e6, now_ms, node=node_id)
        self.throttle.record(message.throttle_time_ms, now_ms)

    def retried(self, batch: ProducerBatch, now_ns: int) -> None:
        """Record a batch that will be sent again."""
        now_ms = now_ns // 1_000_000
        self._retry.record(batch.record_count, now_ms)
        self._registry.record("record-retry", batch.record_count, now_ms, topic=batch.topic)

    def failed(self, batch: ProducerBatch, now_ns: int) -> None:
        """Record a failed batch."""
        now_ms = now_ns // 1_000_000
        self._error.record(batch.record_count, now_ms)
        self._registry.record("record-error", batch.record_count, now_ms, topic=batch.topic)
