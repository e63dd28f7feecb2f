"""DeadLetter: records that cannot be processed go to another topic, with the reason in their headers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, final

from kbatch.consumer.process.forwarding import ForwardingProducer, RecordForwarder, reason_of
from kbatch.records import check_text

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord, Header


@final
class DeadLetter(RecordForwarder):
    """Sends a record to another topic as it was, with the bytes of its key and value, headers and timestamp:
    as `on_failure` of `process()` one that cannot be processed, as `on.deserialization.error` one that cannot
    be read. It is finished after the broker has acknowledged it there.

    With a transactional producer a letter is part of the transaction that is open; `process()` takes none.

    The headers `__dlq.topic`, `__dlq.partition`, `__dlq.offset`, `__dlq.error` and `__dlq.reason` are added:
    where it was read, the class of the exception, and its text.

    Parameters
    ----------
    producer : Producer or AsyncProducer
        Without serializers; an AsyncProducer for an AsyncConsumer.
    topic : str
        "{topic}" in it is the topic of the record.
    headers : bool
        False to add none.
    timeout : float
        Seconds for the acknowledgement. After it, or after a failure, it is sent again, as `retry` says.
    """

    def __init__(
        self,
        producer: ForwardingProducer,
        topic: str = "{topic}.dlq",
        *,
        headers: bool = True,
        timeout: float = 30.0,
    ) -> None:
        super().__init__(producer, timeout)
        check_text("topic", topic)
        self._topic = topic
        self._headers = headers

    def __call__(self, record: ConsumerRecord, error: Exception) -> Awaitable[object] | None:
        """Send a record, and wait until it is acknowledged. With an AsyncProducer, return a coroutine for it.
        Raise the error of the delivery.
        """
        topic = self._topic.replace("{topic}", record.topic)
        headers = [*record.headers, *(self._added(record, error) if self._headers else ())]
        return self.forward(topic, record, headers, record.timestamp_ms)

    def _added(self, record: ConsumerRecord, error: Exception) -> list[Header]:
        return [
            ("__dlq.topic", record.topic.encode()),
            ("__dlq.partition", b"%d" % record.partition),
            ("__dlq.offset", b"%d" % record.offset),
            ("__dlq.error", type(error).__name__.encode()),
            ("__dlq.reason", reason_of(error)),
        ]
