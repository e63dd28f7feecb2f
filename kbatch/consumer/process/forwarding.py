"""RecordForwarder: sends records to other topics as they were, which `on_failure` of `process()` does."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.batch.delivery import Delivery
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord, Header
    from kbatch.config import ProducerConfig

# What a header says of an error at most.
MOST_REASON_BYTES = 1000


class ForwardingProducer(Protocol):
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


class RecordForwarder:
    """Base of what sends the bytes of keys and values on.

    Parameters
    ----------
    producer : Producer or AsyncProducer
        Without serializers.
    timeout : float
        Seconds for the acknowledgement.
    """

    def __init__(self, producer: ForwardingProducer, timeout: float) -> None:
        config = producer.config
        if config.key_serializer is not None or config.value_serializer is not None:
            raise ValueError(
                f"{type(self).__name__} takes a producer without serializers: it sends the bytes as they were"
            )
        self._producer = producer
        self._timeout = checked_seconds(timeout, "timeout", "pass a number of seconds")

    def forward(
        self, topic: str, record: ConsumerRecord, headers: Sequence[Header], timestamp_ms: int | None
    ) -> Awaitable[object] | None:
        """Send a record's key and value, and wait until they are acknowledged. With an AsyncProducer, return
        a coroutine for it. Raise the error of the delivery.
        """
        sent: Any = self._producer.send(
            topic, record.raw_value, record.raw_key, headers=headers, timestamp_ms=timestamp_ms
        )
        if isinstance(sent, Delivery):
            sent.result(self._timeout)
            return None
        return self._acknowledged(sent)

    async def _acknowledged(self, sent: Awaitable[Delivery]) -> None:
        import asyncio  # which consumers in threads do without

        async with asyncio.timeout(self._timeout):
            await (await sent)

    def check_no_transactions(self) -> None:
        """Raise ValueError if its producer is transactional."""
        if self._producer.config.transactional_id is not None:
            raise ValueError(
                f"the {type(self).__name__} of process() takes a producer without transactional.id: a "
                "transaction has the offsets of all records, and workers finish them one by one"
            )

    def check_kind(self, client: str, *, is_async: bool) -> None:
        """Raise TypeError unless its producer is of the kind of a consumer."""
        if self.is_for_tasks is not is_async:
            needed = "an AsyncProducer" if is_async else "a Producer"
            raise TypeError(f"the {type(self).__name__} of {client} needs {needed}")

    @property
    def is_for_tasks(self) -> bool:
        """True if its producer is awaited."""
        return iscoroutinefunction(self._producer.send)


def reason_of(error: Exception) -> bytes:
    """Return what a header says of an error."""
    return str(error).encode(errors="backslashreplace")[:MOST_REASON_BYTES]
