"""DeadLetter: records that cannot be processed go to another topic, with the reason in their headers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, final

from kbatch._native.batch.delivery import Delivery
from kbatch.records import check_text
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord, Header
    from kbatch.config import ProducerConfig

# What a header says of an error at most.
MOST_REASON_BYTES = 1000


class LetterProducer(Protocol):
    """A Producer or an AsyncProducer."""

    @property
    def config(self) -> ProducerConfig: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[Header] | None = None,
        timestamp_ms: Any = None,
    ) -> Any: ...


@final
class DeadLetter:
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
        producer: LetterProducer,
        topic: str = "{topic}.dlq",
        *,
        headers: bool = True,
        timeout: float = 30.0,
    ) -> None:
        config = producer.config
        if config.key_serializer is not None or config.value_serializer is not None:
            raise ValueError(
                "DeadLetter takes a producer without serializers: it sends the bytes as they were"
            )
        check_text("topic", topic)
        self._producer = producer
        self._topic = topic
        self._headers = headers
        self._timeout = checked_seconds(timeout, "timeout", "pass a number of seconds")

    def __call__(self, record: ConsumerRecord, error: Exception) -> Awaitable[object] | None:
        """Send a record, and wait until it is acknowledged. With an AsyncProducer, return a coroutine for it.
        Raise the error of the delivery.
        """
        sent: Any = self._producer.send(
            self._topic.replace("{topic}", record.topic),
            record.raw_value,
            record.raw_key,
            headers=[*record.headers, *(self._added(record, error) if self._headers else ())],
            timestamp_ms=record.timestamp_ms,
        )
        if isinstance(sent, Delivery):
            sent.result(self._timeout)
            return None
        return self._acknowledged(sent)

    async def _acknowledged(self, sent: Awaitable[Delivery]) -> None:
        import asyncio  # which consumers in threads do without

        async with asyncio.timeout(self._timeout):
            await (await sent)

    def _added(self, record: ConsumerRecord, error: Exception) -> list[Header]:
        reason = str(error).encode(errors="backslashreplace")[:MOST_REASON_BYTES]
        return [
            ("__dlq.topic", record.topic.encode()),
            ("__dlq.partition", b"%d" % record.partition),
            ("__dlq.offset", b"%d" % record.offset),
            ("__dlq.error", type(error).__name__.encode()),
            ("__dlq.reason", reason),
        ]

    def check_no_transactions(self) -> None:
        """Raise ValueError if its producer is transactional."""
        if self._producer.config.transactional_id is not None:
            raise ValueError(
                "the DeadLetter of process() takes a producer without transactional.id: a transaction has "
                "the offsets of all records, and workers finish them one by one"
            )

    @property
    def is_for_tasks(self) -> bool:
        """True if its producer is awaited."""
        return iscoroutinefunction(self._producer.send)
