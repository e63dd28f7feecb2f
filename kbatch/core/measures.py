"""What the sender tells the metrics, a call a batch or a request."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbatch._native.accumulator import RecordAccumulator
    from kbatch._native.in_flight import InFlight
    from kbatch._native.producer_batch import ProducerBatch
    from kbatch._native.sensor import Sensor
    from kbatch.metrics import MetricsRegistry

_HEADER_BYTES = 61  # of a batch, never compressed: as in Java it does not count where compression does
_TOPIC_SENSORS = ("record-send", "byte", "compression-rate", "record-retry", "record-error")


class SenderMeasures:
    """The sensors of batches and Produce requests; of topics from their first batch on."""

    def __init__(self, registry: MetricsRegistry, accumulator: RecordAccumulator) -> None:
        self._registry = registry
        self._batch_size = registry.sensor("batch-size")
        self._compression_rate = registry.sensor("compression-rate")
        self._queue_time = registry.sensor("record-queue-time")
        self._record_size = registry.sensor("record-size")
        self._per_request = registry.sensor("records-per-request")
        self._retry = registry.sensor("record-retry")
        self._error = registry.sensor("record-error")
        self._latency = registry.sensor("request-latency")
        self._throttle = registry.sensor("produce-throttle-time")
        self._sent: list[tuple[Collection[InFlight], int]] = []
        self._topics: dict[str, tuple[Sensor, ...]] = {}
        self._nodes: dict[int, Sensor] = {}
        memory = accumulator.memory
        registry.counter("batch-split", lambda: accumulator.split_count)
        registry.gauge("buffer-total-bytes", lambda now_ms: memory.total_bytes)
        registry.gauge("buffer-available-bytes", lambda now_ms: memory.available_bytes)
        registry.gauge("waiting-threads", lambda now_ms: memory.waiting_count)

    def sent(self, entries: Collection[InFlight], now_ns: int) -> None:
        """A request with these batches goes out; `record_sent` records it, when it has been written."""
        self._sent.append((entries, now_ns))

    def record_sent(self) -> None:
        """Records what was sent; when there is time, or before an answer empties the request."""
        for entries, now_ns in self._sent:
            self._record_sent(entries, now_ns)
        self._sent.clear()

    def _record_sent(self, entries: Collection[InFlight], now_ns: int) -> None:
        now_ms = now_ns // 1_000_000
        records = 0
        for entry in entries:
            batch = entry.batch
            size_bytes = batch.size_bytes
            ratio = (size_bytes - _HEADER_BYTES) / batch.records_bytes
            records += entry.record_count
            self._batch_size.record(size_bytes, now_ms)
            self._compression_rate.record(ratio, now_ms)
            self._queue_time.record((batch.drained_ns - batch.created_ns) / 1e6, now_ms)
            self._record_size.record(batch.largest_record_bytes, now_ms)
            sent, bytes_sent, rate, *_ = self._of_topic(batch.topic)
            sent.record(entry.record_count, now_ms)
            bytes_sent.record(size_bytes, now_ms)
            rate.record(ratio, now_ms)
        self._per_request.record(records, now_ms)

    def answered(self, node_id: int, latency_ns: int, message: Any, now_ns: int) -> None:
        """A request was answered, or failed."""
        now_ms = now_ns // 1_000_000
        self._latency.record(latency_ns / 1e6, now_ms)
        if message is not None:
            self._throttle.record(message.throttle_time_ms, now_ms)

    def retried(self, batch: ProducerBatch, now_ns: int) -> None:
        """A batch goes back, to be sent again."""
        now_ms = now_ns // 1_000_000
        self._retry.record(batch.record_count, now_ms)
        self._of_topic(batch.topic)[3].record(batch.record_count, now_ms)

    def failed(self, batch: ProducerBatch, now_ns: int) -> None:
        """A batch failed."""
        now_ms = now_ns // 1_000_000
        self._error.record(batch.record_count, now_ms)
        self._of_topic(batch.topic)[4].record(batch.record_count, now_ms)

    def _of_topic(self, topic: str) -> tuple[Sensor, ...]:
        sensors = self._topics.get(topic)
        if sensors is None:
            sensors = tuple(self._registry.sensor(name, topic=topic) for name in _TOPIC_SENSORS)
            self._topics[topic] = sensors
        return sensors
