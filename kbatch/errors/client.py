"""What kbatch raises of itself. Where Python has a class that callers already catch (`ValueError`,
`TimeoutError`, `RuntimeError`), the error is one of those too.
"""

from collections.abc import Sequence
from typing import Any

from kbatch.errors.base import KafkaError, restored
from kbatch.errors.codes import ErrorCode
from kbatch.errors.producing import KafkaTimeoutError

# Before a record is accepted


class ConfigError(KafkaError, ValueError):
    """A configuration that cannot be: an unknown key, a value of the wrong type or out of range, or keys that
    contradict each other; the text names the keys, the value and the remedy (Kafka's ConfigException).
    """


class IllegalStateError(KafkaError, RuntimeError):
    """A call that the object's state does not allow, such as an append to a sealed batch."""


class ProducerClosedError(IllegalStateError):
    """The producer is closed, or was while the call waited: make another."""


class ForkedProducerError(IllegalStateError):
    """The producer was made in the process that this one was forked from: make one in each process, after
    the fork.
    """


class BufferExhaustedError(KafkaTimeoutError):
    """No memory became free within max.block.ms, as records come faster than brokers take them: slow down,
    or raise buffer.memory.
    """

    code = None


class SerializationError(KafkaError, ValueError):
    """A key or value could not be made into bytes: the text says why, so correct it or its serializer."""


class PartialSendError(KafkaError):
    """Some records of a call were accepted, and one was refused: send the rest again from there.

    Code and what may be done about it are those of the cause. A pickled one has no deliveries, for they
    belong to their process.

    Attributes
    ----------
    deliveries : Sequence
        Those of the accepted records, the first ones of the call.
    index : int
        Of the first record that was not accepted.
    cause : Exception
        Why it was not.
    """

    def __init__(self, deliveries: Sequence[Any], index: int, cause: Exception) -> None:
        super().__init__(
            f"the record at index {index} was refused, and those before it were accepted: {cause}; what is "
            f"left is to be sent again, from index {index} on"
        )
        self.deliveries = deliveries
        self.index = index
        self.cause = self.__cause__ = cause
        _inherit(self, cause)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args), {**self.__dict__, "deliveries": ()}


# After it


class DeliveryError(KafkaError):
    """Records failed, and nobody looked: give send() an on_delivery, or ask each delivery for its result().

    Code and what may be done about it are those of the first.

    Attributes
    ----------
    count : int
        Failed records that had no on_delivery, and whose delivery nobody asked.
    first : KafkaError
        Why the first of them failed.
    """

    def __init__(self, count: int, first: KafkaError) -> None:
        records = "a record failed" if count == 1 else f"{count} records failed, the first"
        super().__init__(
            f"{records} with {type(first).__name__}: {first} (nobody looked: on_delivery, or result() of the "
            "delivery, tells of each)"
        )
        self.count = count
        self.first = self.__cause__ = first
        _inherit(self, first)
        self.possibly_persisted = first.possibly_persisted


class PrecedingRecordFailedError(KafkaError):
    """A record before this one failed, and kbatch.on.delivery.failure lets none pass it: send what failed
    again, after resume().
    """


class PurgedError(KafkaError):
    """The record was thrown away by purge(), or by a close() that did not wait for it."""


class TransactionAbortedError(KafkaError):
    """The transaction was aborted before the record was sent."""


class CommitFailedError(KafkaError):
    """The group has rebalanced, and another consumer has the partitions: abort the transaction, and poll."""

    abortable = True


# Bytes and messages


class ProtocolError(KafkaError, ValueError):
    """Bytes that are not the protocol message they claim to be, or a message that cannot be written; the text
    says which message, version and field.
    """

    code = ErrorCode.INVALID_REQUEST


def _inherit(error: KafkaError, cause: Exception) -> None:
    if isinstance(cause, KafkaError):
        error.code, error.retriable = cause.code, cause.retriable
        error.fatal, error.abortable = cause.fatal, cause.abortable
