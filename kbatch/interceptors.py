"""Interceptors: a program's own code that sees every record (KIP-42), for tracing, auditing, redirecting.

An interceptor's exception is logged and costs no record: the record goes on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

from kbatch._native.batch.delivery import Acknowledgement
from kbatch._native.send.send import PendingRecord
from kbatch.errors import ConfigError, IllegalStateError, KafkaError
from kbatch.logs import ClientLogger
from kbatch.records import ProducerRecord

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import RecordMetadata
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch.config import ConsumerConfig, ProducerConfig
    from kbatch.records import TopicPartition

__all__ = ["ConsumerInterceptor", "Interceptor"]

logger = ClientLogger(__name__)

_Kind = TypeVar("_Kind")


class Interceptor:
    """The base class of a producer's. Every method is optional. Several threads may call them at once.

    Attributes
    ----------
    passes_batches : bool
        True to let `send_batch` send records that `on_send` does not see; else it is refused.
    """

    passes_batches = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send; `send()` calls this first. Use `record._replace(...)` to change it."""
        return record

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        """Return the table to send; `send_table()` calls this once for a whole table, instead of `on_send`.
        `topic` is None if a column names it.
        """
        return table

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Handle a record's outcome, before its own on_delivery and with the same arguments: on failure
        `metadata` has offset -1, and partition -1 if none was chosen. It is also called for every row of a
        table, before the table's on_delivery.
        """

    def close(self) -> None:
        """Clean up; called once, when the producer has closed."""


@final
class InterceptorChain:
    """All interceptors of a producer, in the order of interceptor.classes; false if there are none.

    Parameters
    ----------
    given : Iterable of Interceptor or of its subclasses
        Classes are instantiated without arguments. Other objects raise ConfigError.

    Attributes
    ----------
    acknowledges : bool
        True if any of them has an `on_acknowledgement`.
    """

    def __init__(self, given: Iterable[object]) -> None:
        self._interceptors = tuple(_instance(each, Interceptor) for each in given)
        self._only_records = [
            type(interceptor).__name__
            for interceptor in self._interceptors
            if _overrides(interceptor, "on_send") and not _overrides(interceptor, "on_send_table")
        ]

        self.acknowledges = any(_overrides(each, "on_acknowledgement") for each in self._interceptors)

    def __len__(self) -> int:
        return len(self._interceptors)

    def intercept(self, record: PendingRecord | PendingBatch) -> None:
        """Apply `on_send` to a record, and call `on_acknowledgement` with its outcome."""
        if isinstance(record, PendingRecord):
            made = self.on_send(
                ProducerRecord(
                    record.topic,
                    record.value,
                    record.key,
                    record.headers or (),
                    record.partition,  # type: ignore[arg-type]  # as given: what is wrong is said later
                    record.timestamp_ms,  # type: ignore[arg-type]
                )
            )
            record.topic, record.value, record.key = made.topic, made.value, made.key
            record.headers, record.partition = made.headers, made.partition
            record.timestamp_ms = made.timestamp_ms
        else:
            self.on_send_batch()
        record.on_delivery = Acknowledgement(self.on_acknowledgement, record.on_delivery)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record from the last interceptor."""
        for interceptor in self._interceptors:
            made = _shielded(interceptor, "on_send", interceptor.on_send, record)
            if isinstance(made, ProducerRecord):
                record = made
            elif made is not _FAILED:
                text = "%s.on_send returned %s, not a ProducerRecord: the record is sent as it was before"
                logger.error(text, type(interceptor).__name__, type(made).__name__)
        return record

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        """Return the table from the last interceptor. Raise IllegalStateError if one handles records only,
        and would miss the table's rows.
        """
        if self._only_records:
            names = ", ".join(self._only_records)
            raise IllegalStateError(f"{names} sees no tables; define its on_send_table, or send records")
        for interceptor in self._interceptors:
            made = _shielded(interceptor, "on_send_table", interceptor.on_send_table, topic, table)
            table = table if made is _FAILED else made
        return table

    def on_send_batch(self) -> None:
        """Raise IllegalStateError if an interceptor handles records: it cannot see an encoded batch's."""
        names = ", ".join(
            type(each).__name__
            for each in self._interceptors
            if _overrides(each, "on_send") and not each.passes_batches
        )
        if names:
            raise IllegalStateError(
                f"{names} cannot see the records of an encoded batch; send them one by one, or remove it "
                f"from interceptor.classes"
            )

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_acknowledgement", interceptor.on_acknowledgement, metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "close", interceptor.close)


class ConsumerInterceptor:
    """The base class of a consumer's. Every method is optional."""

    def on_poll(self) -> None:
        """Notice that a poll begins to wait, or the next step of an iteration."""

    def on_consume(self, polled: Sequence[ConsumerRecord]) -> None:
        """See the records that a poll, or the next steps of an iteration, will return. Those of a share
        consumer are ShareRecords.
        """

    def on_consume_table(self, table: Any) -> None:
        """See the table that `poll_table` will return, instead of `on_consume`."""

    def process(self, records: Any) -> AbstractContextManager[object]:
        """Return a context in which `Consumer.process` calls its function for a record, or a list of records
        (`batch`), on the thread or in the task of the worker. With processes it is on the thread that waits
        for one; a program's own executor does without.
        """
        return nullcontext()

    def on_commit(self, offsets: Mapping[TopicPartition, Any], error: KafkaError | None) -> None:
        """See offsets (OffsetAndMetadata) that were committed, or why they were not."""

    def close(self) -> None:
        """Clean up; called once, when the consumer has closed."""


@final
class ConsumerInterceptorChain:
    """All interceptors of a consumer, in the order of interceptor.classes; false if there are none.

    Parameters
    ----------
    given : Iterable of ConsumerInterceptor or of its subclasses
        Classes are instantiated without arguments. Other objects raise ConfigError.
    """

    def __init__(self, given: Iterable[object]) -> None:
        self._interceptors = tuple(_instance(each, ConsumerInterceptor) for each in given)
        self._processing = [
            each for each in self._interceptors if _overrides(each, "process", ConsumerInterceptor)
        ]
        self._open = list(self._interceptors)

    def __len__(self) -> int:
        return len(self._interceptors)

    def check_tables(self) -> None:
        """Raise IllegalStateError if an interceptor handles records only, and would miss those of tables."""
        names = ", ".join(
            type(each).__name__
            for each in self._interceptors
            if _overrides(each, "on_consume", ConsumerInterceptor)
            and not _overrides(each, "on_consume_table", ConsumerInterceptor)
        )
        if names:
            raise IllegalStateError(f"{names} sees no tables; define its on_consume_table, or poll records")

    def on_poll(self) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_poll", interceptor.on_poll)

    def on_consume(self, polled: Sequence[Any]) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_consume", interceptor.on_consume, polled)

    def on_consume_table(self, table: Any) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_consume_table", interceptor.on_consume_table, table)

    def context_of_records(self, records: Any) -> AbstractContextManager[object]:
        """Return the context in which `Consumer.process` calls its function."""
        return self._contexts_of(records) if self._processing else nullcontext()

    @contextmanager
    def _contexts_of(self, records: Any) -> Iterator[None]:
        with ExitStack() as contexts:
            for interceptor in self._processing:
                _shielded(
                    interceptor,
                    "process",
                    lambda each: contexts.enter_context(each.process(records)),
                    interceptor,
                )
            yield

    def on_commit(self, offsets: Mapping[TopicPartition, Any], error: KafkaError | None) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_commit", interceptor.on_commit, offsets, error)

    def close(self) -> None:
        """Close each, once, also if an interrupt ends this and it is called again."""
        while self._open:
            interceptor = self._open.pop(0)
            _shielded(interceptor, "close", interceptor.close)


@dataclass(slots=True)
class Automatic:
    """What makes an interceptor for every client that is created, in front of its own; None makes none. A
    client whose own are of the same class gets none either.
    """

    producers: Callable[[ProducerConfig], Interceptor] | None = None
    consumers: Callable[[ConsumerConfig], ConsumerInterceptor] | None = None


automatic = Automatic()


def interceptors_of_producer(config: ProducerConfig) -> InterceptorChain:
    """Return the interceptors of a new producer."""
    return InterceptorChain(_with_automatic(config.interceptor_classes, automatic.producers, config))


def interceptors_of_consumer(config: ConsumerConfig) -> ConsumerInterceptorChain:
    """Return the interceptors of a new consumer."""
    return ConsumerInterceptorChain(_with_automatic(config.interceptor_classes, automatic.consumers, config))


def _with_automatic(
    given: Sequence[object], make: Callable[[Any], object] | None, config: object
) -> list[object]:
    made = [] if make is None else [make(config)]
    own = {each if isinstance(each, type) else type(each) for each in given}
    return [*(each for each in made if type(each) not in own), *given]


_FAILED = object()


def _shielded(interceptor: object, name: str, method: Callable[..., Any], *arguments: object) -> Any:
    try:
        return method(*arguments)
    except Exception:
        logger.exception("%s.%s failed and is skipped", type(interceptor).__name__, name)
        return _FAILED


def _instance(given: object, kind: type[_Kind]) -> _Kind:
    interceptor = given() if isinstance(given, type) else given
    if not isinstance(interceptor, kind):
        raise ConfigError(
            f"interceptor.classes must be subclasses of kbatch.interceptors.{kind.__name__}, or objects of "
            f"them, got {given!r}"
        )
    return interceptor


def _overrides(interceptor: object, name: str, kind: type = Interceptor) -> bool:
    return getattr(type(interceptor), name) is not getattr(kind, name)
