"""Errors that kbatch raises itself. If Python has a class that callers already catch (`ValueError`,
`TimeoutError`, `RuntimeError`), the error is one of those too.
"""

from collections.abc import Sequence
from typing import Any

from kbatch.errors.base import KafkaError, restored
from kbatch.errors.codes import ErrorCode
from kbatch.errors.producing import KafkaTimeoutError

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


class BufferExhaustedError(KafkaTimeoutError):
    """No memory became free within max.block.ms, because records come faster than brokers accept them: slow
    down, or raise buffer.memory.
    """

    code = None


class SerializationError(KafkaError, ValueError):
    """A key or value could not be converted to bytes: the text says why; correct it or its serializer."""


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
            f"the record at index {index} was refused and those before it were accepted: {cause}; send the "
            f"rest again, from index {index} on"
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
    """The group has rebalanced, and another consumer has the partitions: abort the transaction, then poll."""

    abortable = True


# Bytes and messages


class ProtocolError(KafkaError, ValueError):
    """The bytes are not the protocol message they claim to be, or a message cannot be written; the text names
    the message, version and field.
    """

    code = ErrorCode.INVALID_REQUEST


def _inherit(error: KafkaError, cause: Exception) -> None:
    if isinstance(cause, KafkaError):
        error.code, error.retriable = cause.code, cause.retriable
        error.fatal, error.abortable = cause.fatal, cause.abortable
