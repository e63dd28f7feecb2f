"""Errors that kbatch raises itself. If Python has a class that callers already catch (`ValueError`,
`TimeoutError`, `RuntimeError`), the error is one of those too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from kbatch.errors.base import KafkaError, restored
from kbatch.errors.codes import ErrorCode
from kbatch.errors.producing import KafkaTimeoutError

# The part of a key or value that an error shows.
MAX_SHOWN_BYTES = 100
# The failed items that an error names.
MOST_NAMED = 5

# Before a record is accepted


class ConfigError(KafkaError, ValueError):
    """The configuration is invalid: an unknown key, a value of the wrong type or out of range, or keys that
    contradict each other. The text names the keys, the value and the remedy (Kafka's ConfigException).
    """


class IllegalStateError(KafkaError, RuntimeError):
    """The object's state does not allow the call, such as appending to a sealed batch: fix the program."""


class ProducerClosedError(IllegalStateError):
    """The producer is closed, or was closed while the call waited: create another."""


class ForkedProducerError(IllegalStateError):
    """The producer belongs to the parent of this forked process: create one in the child process."""


class ConsumerClosedError(IllegalStateError):
    """The consumer or reader is closed, or was closed while the call waited: create another."""


class ForkedConsumerError(IllegalStateError):
    """The consumer or reader belongs to the parent of this forked process: create one in the child
    process.
    """


class AdminClosedError(IllegalStateError):
    """The admin is closed, or was closed while the call waited: create another."""


class ForkedAdminError(IllegalStateError):
    """The admin belongs to the parent of this forked process: create one in the child process."""


class ConcurrentUseError(IllegalStateError):
    """Two threads, or two tasks, use a consumer at the same time: the text names both. Give each its own
    consumer, or let one poll and pass the records on (Kafka's ConcurrentModificationException).
    """


class ProcessError(KafkaError):
    """A record cannot be processed, or its `on_failure` has failed, so `process()` has ended. The record is
    not finished, and comes again: mend the function, or choose another `on_failure`.

    Attributes
    ----------
    record : ConsumerRecord or None
    """

    record: Any = None


class WorkerDiedError(KafkaError):
    """A worker process of `process()` has ended while it had a record, with the exit code in the text. The
    attempt counts as failed, and another process is started: see what ends it, such as a lack of memory.
    """


class BufferExhaustedError(KafkaTimeoutError):
    """No memory became free within max.block.ms, because records come faster than brokers accept them: slow
    down, or raise buffer.memory.
    """

    code = None


class SerializationError(KafkaError, ValueError):
    """A key or value could not be converted to bytes: the text says why; correct it or its serializer.

    Attributes
    ----------
    row : int or None
        The number of the row in a table, from 0.
    """

    row: int | None = None


class TypeNotKnownError(KafkaError, ValueError):
    """No record among those that a read looked at says the type of a column: all are null, or cannot be read.
    Give the format a schema.
    """


class DeserializationError(KafkaError, ValueError):
    """A key or value could not be converted from bytes: the text says which record and why. Correct the
    deserializer, or choose with its errors= what becomes of such records.

    Attributes
    ----------
    reason : str
        What is wrong with the bytes.
    part : str
        "key" or "value".
    topic : str or None
    partition, offset : int or None
        The record; None if it is not known.
    key, value : bytes or None
        The record's own bytes; None also if they were not read.
    row : int
        The record's row in the column, from 0. The rows before it can be deserialized.
    """

    def __init__(
        self,
        reason: str | None = None,
        *,
        part: str = "value",
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        row: int = 0,
    ) -> None:
        places = (("topic", topic), ("partition", partition), ("offset", offset))
        known = [f"{name} {place}" for name, place in places if place is not None] or [f"row {row}"]
        text = f"the {part} at {', '.join(known)} cannot be deserialized: {reason}"
        texts = [
            f"{name} {_abridged(data)}" for name, data in (("key", key), ("value", value)) if data is not None
        ]
        super().__init__(*(() if reason is None else ("; ".join([text, *texts]),)))
        self.reason = reason or self.doc
        self.part = part
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.row = row


class RecordDeserializationError(DeserializationError):
    """The key or value of a record could not be made of its bytes: consumer.skip(error) goes on after it, and
    on.deserialization.error says what becomes of such records (Kafka's RecordDeserializationException,
    KIP-334 and KIP-1036).

    Attributes
    ----------
    timestamp_ms : int or None
    headers : tuple of (str, bytes or None)
    """

    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, record: Any, part: str, reason: str) -> Self:
        """Return the error of a ConsumerRecord."""
        error = cls(
            reason,
            part=part,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.raw_key,
            value=record.raw_value,
        )
        error.timestamp_ms = record.timestamp_ms
        error.headers = record.headers
        return error


class SchemaRegistryError(KafkaError):
    """The schema registry refused a request, or could not be reached: the text has the request and the
    registry's answer. Check the URL, the credentials and the subject.

    Attributes
    ----------
    status : int
        The status of HTTP; 0 if there was no answer.
    error_code : int or None
        The registry's own code, such as 40403 for an unknown schema.
    retry_after : float or None
        Seconds after which it wants to be asked again, if it said so and they were too many to wait for.
    """

    def __init__(
        self,
        text: str | None = None,
        *,
        status: int = 0,
        error_code: int | None = None,
        retriable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(*(() if text is None else (text,)))
        self.status = status
        self.error_code = error_code
        self.retry_after = retry_after
        self.retriable = retriable


class PartialSendError(KafkaError):
    """Some records of a call were accepted, then one was refused: send the rest again from there.

    Code, `retriable`, `fatal` and `abortable` are those of the cause. A pickled error has no deliveries,
    because they belong to their process.

    Attributes
    ----------
    deliveries : Sequence
        The deliveries of the accepted records, the first ones of the call.
    index : int
        The index of the first refused record.
    cause : Exception
        The reason for refusing it.
    """

    def __init__(self, deliveries: Sequence[Any], index: int, cause: Exception) -> None:
        super().__init__(
            f"the record at index {index} was refused: {cause}; those before it were accepted: after the "
            f"cause is mended, send the rest, from index {index} on"
        )
        self.deliveries = deliveries
        self.index = index
        self.cause = self.__cause__ = cause
        _inherit(self, cause)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args), {**self.__dict__, "deliveries": ()}


# After it


class DeliveryError(KafkaError):
    """Deliveries failed and were never checked: pass an on_delivery to send(), or check each result().

    Code, `retriable`, `fatal` and `abortable` are those of the first.

    Attributes
    ----------
    count : int
        The number of failed records without an on_delivery whose delivery was never checked.
    first : KafkaError
        The error of the first of them.
    """

    def __init__(self, count: int, first: KafkaError) -> None:
        records = "a record failed" if count == 1 else f"{count} records failed, the first"
        super().__init__(
            f"{records} with {type(first).__name__}: {first} (never checked; pass an on_delivery, or call "
            "result() of each delivery)"
        )
        self.count = count
        self.first = self.__cause__ = first
        _inherit(self, first)
        self.possibly_persisted = first.possibly_persisted


class PrecedingRecordFailedError(KafkaError):
    """A record before this one failed, and kbatch.on.delivery.failure lets none pass it: call resume(), then
    send the failed records again.
    """


class PurgedError(KafkaError):
    """The record was discarded by purge(), or by a close() that did not wait for it."""


class TransactionAbortedError(KafkaError):
    """The transaction was aborted before the record was sent."""


class CommitFailedError(KafkaError):
    """The group has rebalanced, and another consumer may have the partitions: poll again, after aborting the
    transaction if there is one.

    Attributes
    ----------
    partitions : tuple of tuple[str, int]
        Topic and number of the partitions that were not committed; empty for a transaction.
    """

    abortable = True
    partitions: tuple[tuple[str, int], ...] = ()


# Bytes and messages


class ProtocolError(KafkaError, ValueError):
    """The bytes are not the protocol message they claim to be, or a message cannot be written; the text names
    the message, version and field.
    """

    code = ErrorCode.INVALID_REQUEST


def _abridged(data: bytes) -> str:
    """Return bytes for an error: the first of them, and how many there are."""
    if len(data) <= MAX_SHOWN_BYTES:
        return repr(data)
    return f"{data[:MAX_SHOWN_BYTES]!r}... ({len(data)} bytes)"


def _inherit(error: KafkaError, cause: Exception) -> None:
    if isinstance(cause, KafkaError):
        error.code, error.retriable = cause.code, cause.retriable
        error.fatal, error.abortable = cause.fatal, cause.abortable


# Of administration


class PartialFailure(ExceptionGroup[KafkaError], KafkaError):
    """Some items of a call failed: `errors` says which, `results` has the others. `except*` splits it.

    Attributes
    ----------
    call : str
        The method that was called.
    results : dict
        By item what came of those that succeeded.
    errors : dict
        By item the errors of the others.
    possibly_persisted : bool
        True if a failed item may have been done all the same.
    """

    call: str
    results: Mapping[Any, Any]
    errors: Mapping[Any, KafkaError]

    def __new__(cls, call: str, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> Self:
        return super().__new__(cls, _failures(call, results, errors), list(errors.values()))

    def __init__(self, call: str, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
        super().__init__(_failures(call, results, errors))  # type: ignore[call-arg]  # for `args`
        self.call, self.results, self.errors = call, results, errors
        self.possibly_persisted = any(error.possibly_persisted for error in errors.values())
        self.retriable = all(error.retriable for error in errors.values())

    def derive(self, excs: Sequence[KafkaError], /) -> ExceptionGroup[KafkaError]:  # type: ignore[override]
        """Return a plain group, for `except*` and `split`: the results belong to the whole."""
        return ExceptionGroup(self.message, excs)

    def __str__(self) -> str:
        return self.message

    def __copy__(self) -> Self:
        copied = type(self)(self.call, self.results, self.errors)
        copied.__dict__.update(self.__dict__)
        if notes := getattr(self, "__notes__", None):
            copied.__notes__ = list(notes)
        copied.__cause__ = self.__cause__
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.call, self.results, self.errors), self.__dict__.copy()


def _failures(call: str, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> str:
    named = [f"{item} ({type(error).__name__}: {error})" for item, error in errors.items()][:MOST_NAMED]
    more = ", ..." if len(errors) > MOST_NAMED else ""
    count = len(errors) + len(results)
    return f"{call}: {len(errors)} of {count} failed: {', '.join(named)}{more}"
