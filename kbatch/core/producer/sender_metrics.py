"""The metrics of the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.io.sensor import record_each

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.io.sensor import Sensor
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch._native.send.in_flight import InFlight
    from kbatch._native.send.lane import Answered
    from kbatch.metrics import MetricsRegistry

_HEADER_BYTES = 61  # of a batch; it is never compressed, and as in Java does not count in the ratio
# The sensors of each sent batch: those of all topics, and then those of the topic.
_OF_ALL = ("batch-size", "compression-rate", "record-queue-time", "record-size")
_OF_TOPIC = ("record-send", "byte", "compression-rate")
_OF_TOPIC_AT_TIMES = ("record-retry", "record-error")


class SenderMetrics:
    """The sensors of batches and Produce requests. A topic has sensors from its first batch on."""

    def __init__(self, registry: MetricsRegistry, accumulator: RecordAccumulator) -> None:
        self._registry = registry
        self._of_all = tuple(map(registry.sensor, _OF_ALL))
        self._per_request = registry.sensor("records-per-request")
        self._retry = registry.sensor("record-retry")
        self._error = registry.sensor("record-error")
        self._latency = registry.sensor("request-latency")
        self._throttle = registry.sensor("produce-throttle-time")
        self._sent: list[tuple[list[InFlight], int]] = []
        self._topics: dict[str, tuple[Sensor, ...]] = {}
        self._latencies: dict[int, Sensor] = {}  # by node
        memory = accumulator.memory
        registry.counter("batch-split", lambda: accumulator.split_count)
        registry.gauge("buffer-total-bytes", lambda now_ms: memory.total_memory)
        registry.gauge("buffer-available-bytes", lambda now_ms: memory.available)
        registry.gauge("waiting-threads", lambda now_ms: memory.queued)

    def sent(self, entries: list[InFlight], now_ns: int) -> None:
        """Record a request with these batches; `observe_sent` records it later."""
        self._sent.append((entries, now_ns))

    def observe_sent(self) -> None:
        """Record sent requests, in idle time or before an answer empties the request."""
        if not self._sent:
            return
        for entries, now_ns in self._sent:
            self._observe_batches([entry.batch for entry in entries], now_ns // 1_000_000)
        self._sent.clear()

    def _observe_batches(self, batches: Iterable[ProducerBatch], now_ms: int) -> None:
        records = 0
        for batch in batches:
            size_bytes, count = batch.size_bytes, batch.record_count
            ratio = (size_bytes - _HEADER_BYTES) / batch.records_bytes
            queue_ms = (batch.drained_ns - batch.created_ns) / 1e6
            values = size_bytes, ratio, queue_ms, batch.largest_record_bytes, count, size_bytes, ratio
            record_each(self._of_topic(batch.topic), values, now_ms)
            records += count
        self._per_request.record(records, now_ms)

    def answered(self, node_id: int, latency_ns: int, message: Any, now_ns: int) -> None:
        """Record an answer, and earlier requests. `message` None means no answer, and no latency, as in
        Java's Sender.handleProduceResponse.
        """
        self.observe_sent()
        if message is None:
            return
        self._observe_answer(node_id, latency_ns, message.throttle_time_ms, now_ns)

    def _observe_answer(self, node_id: int, latency_ns: int, throttle_time_ms: int, now_ns: int) -> None:
        now_ms = now_ns // 1_000_000
        record_each((self._latency, self._latency_of(node_id)), (latency_ns / 1e6,) * 2, now_ms)
        self._throttle.record(throttle_time_ms, now_ms)

    def completed(self, answered: Answered) -> None:
        """Record a request that the lane has sent and completed."""
        self._observe_batches(answered.batches, answered.created_ns // 1_000_000)
        if not answered.answer_bytes:  # acks=0
            return
        latency_ns = answered.answered_ns - answered.created_ns
        self._observe_answer(answered.node_id, latency_ns, 0, answered.answered_ns)

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

    def _latency_of(self, node_id: int) -> Sensor:
        sensor = self._latencies.get(node_id)
        if sensor is None:
            sensor = self._latencies[node_id] = self._registry.sensor("request-latency", node=node_id)
        return sensor

    def _of_topic(self, topic: str) -> tuple[Sensor, ...]:
        """Return the sensors of a batch of the topic; the first call makes all metrics of the topic."""
        sensors = self._topics.get(topic)
        if sensors is None:
            made = [self._registry.sensor(name, topic=topic) for name in (*_OF_TOPIC, *_OF_TOPIC_AT_TIMES)]
            self._topics[topic] = sensors = (*self._of_all, *made[: len(_OF_TOPIC)])
        return sensors
