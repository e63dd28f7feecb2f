"""KafkaError and KafkaException, and what an error of kbatch is among them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kbatch import errors
from kbatch.errors.codes import ErrorCode

# What librdkafka calls codes of Kafka for which it has another name.
_RENAMED = {
    "NONE": "NO_ERROR",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "INVALID_FETCH_SIZE": "INVALID_MSG_SIZE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "STALE_CONTROLLER_EPOCH": "STALE_CTRL_EPOCH",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
}
# Errors of the client itself: their codes count up from here.
_FIRST_LOCAL = -199
_LOCAL_NAMES = """
_BAD_MSG _BAD_COMPRESSION _DESTROY _FAIL _TRANSPORT _CRIT_SYS_RESOURCE _RESOLVE _MSG_TIMED_OUT
_PARTITION_EOF _UNKNOWN_PARTITION _FS _UNKNOWN_TOPIC _ALL_BROKERS_DOWN _INVALID_ARG _TIMED_OUT _QUEUE_FULL
_ISR_INSUFF _NODE_UPDATE _SSL _WAIT_COORD _UNKNOWN_GROUP _IN_PROGRESS _PREV_IN_PROGRESS
_EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _CONFLICT _STATE _UNKNOWN_PROTOCOL
_NOT_IMPLEMENTED _AUTHENTICATION _NO_OFFSET _OUTDATED _TIMED_OUT_QUEUE _UNSUPPORTED_FEATURE _WAIT_CACHE _INTR
_KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION _PARTIAL _READ_ONLY
_NOENT _UNDERFLOW _INVALID_TYPE _RETRY _PURGE_QUEUE _PURGE_INFLIGHT _FATAL _INCONSISTENT _GAPLESS_GUARANTEE
_MAX_POLL_EXCEEDED _UNKNOWN_BROKER _NOT_CONFIGURED _FENCED _APPLICATION _ASSIGNMENT_LOST _NOOP
_AUTO_OFFSET_RESET _LOG_TRUNCATION _INVALID_DIFFERENT_RECORD _DESTROY_BROKER
"""
CODES = {_RENAMED.get(code.name, code.name): int(code) for code in ErrorCode} | {
    name: _FIRST_LOCAL + place for place, name in enumerate(_LOCAL_NAMES.split())
}
_NAMES = {code: name for name, code in CODES.items()}
_KAFKAS = {int(code): code.name for code in ErrorCode}


def _in_words(name: str) -> str:
    return name.strip("_").replace("_", " ").capitalize()


class _Codes(type):
    """The type of KafkaError: each code is an attribute, by its name."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> int: ...


class KafkaError(metaclass=_Codes):
    """An error as a value, in a message or in a KafkaException. All codes are attributes of the class, as
    `KafkaError.UNKNOWN_TOPIC_OR_PART`; those that begin with "_" are of the client itself.

    Parameters
    ----------
    error : int
        The code.
    reason : str or None
        The text; None for that of the code.
    fatal, retriable, txn_requires_abort : bool
    """

    __slots__ = ("_code", "_fatal", "_reason", "_retriable", "_txn_requires_abort")

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error
        self._reason = reason
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """Return the code."""
        return self._code

    def name(self) -> builtins.str:
        """Return the name of the code."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> builtins.str:
        """Return the text."""
        if self._reason is not None:
            return self._reason
        if self._code in _KAFKAS:
            return f"Broker: {_in_words(_KAFKAS[self._code])}"
        return f"Local: {_in_words(self.name())}"

    def fatal(self) -> bool:
        """True if the client cannot go on."""
        return self._fatal

    def retriable(self) -> bool:
        """True if the same call may succeed later."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """True if the transaction has to be aborted."""
        return self._txn_requires_abort

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __hash__(self) -> int:
        return hash(self._code)


for _name, _number in CODES.items():
    setattr(KafkaError, _name, _number)


class KafkaException(Exception):
    """The exception of all clients: `args[0]` is the KafkaError."""


class ConsumeError(KafkaException):
    """A record could not be read by a DeserializingConsumer.

    Attributes
    ----------
    exception : Exception or None
        That of the deserializer.
    kafka_message : Message or None
        The record as it was read.
    """

    def __init__(
        self, error: KafkaError, exception: Exception | None = None, kafka_message: Any = None
    ) -> None:
        super().__init__(error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The code of the error."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.args[0].name())


class ProduceError(ConsumeError):
    """A record could not be sent by a SerializingProducer."""


class SerializationError(KafkaException):
    """A serializer or deserializer has failed."""


def _about(code: str, base: type[ConsumeError], doc: str) -> type[Any]:
    """Return the class of the errors of a serializer, or a deserializer, of keys or values."""

    def __init__(self: Any, exception: Exception | None = None, kafka_message: Any = None) -> None:
        base.__init__(self, KafkaError(CODES[code], str(exception)), exception, kafka_message)

    name = "".join(word.capitalize() for word in code.split("_")) + "Error"
    return type(
        name, (base, SerializationError), {"__init__": __init__, "__doc__": doc, "__module__": __name__}
    )


KeySerializationError = _about("_KEY_SERIALIZATION", ProduceError, "The serializer of keys has failed.")
ValueSerializationError = _about("_VALUE_SERIALIZATION", ProduceError, "The serializer of values has failed.")
KeyDeserializationError = _about("_KEY_DESERIALIZATION", ConsumeError, "The deserializer of keys has failed.")
ValueDeserializationError = _about(
    "_VALUE_DESERIALIZATION", ConsumeError, "The deserializer of values has failed."
)

# Errors of kbatch that librdkafka has codes of its own for; others keep Kafka's code.
_LOCAL_CODES: tuple[tuple[type[errors.KafkaError], str], ...] = (
    (errors.PurgedError, "_PURGE_QUEUE"),
    (errors.TransactionAbortedError, "_PURGE_QUEUE"),
    (errors.AuthenticationError, "_AUTHENTICATION"),
    (errors.NetworkError, "_TRANSPORT"),
    (errors.ProducerFencedError, "_FENCED"),
    (errors.ConfigError, "_INVALID_ARG"),
    (errors.NoOffsetForPartitionError, "_AUTO_OFFSET_RESET"),
    (errors.LogTruncationError, "_LOG_TRUNCATION"),
    (errors.CommitFailedError, "ILLEGAL_GENERATION"),
    (errors.BufferExhaustedError, "_QUEUE_FULL"),
    (errors.KafkaTimeoutError, "_TIMED_OUT"),
    (errors.SerializationError, "_VALUE_SERIALIZATION"),
    (errors.IllegalStateError, "_STATE"),
)
# A client that is closed, or used in the wrong process or by two threads: RuntimeErrors there, too.
UNUSABLE = (
    errors.ProducerClosedError,
    errors.ConsumerClosedError,
    errors.AdminClosedError,
    errors.ForkedProducerError,
    errors.ForkedConsumerError,
    errors.ForkedAdminError,
    errors.ConcurrentUseError,
)


def error_of(error: errors.KafkaError) -> KafkaError:
    """Return an error of kbatch as a value, with its text."""
    local = next((name for kind, name in _LOCAL_CODES if isinstance(error, kind)), None)
    code = CODES[local] if local is not None else CODES["_FAIL"] if error.code is None else int(error.code)
    return KafkaError(code, str(error), error.fatal, error.retriable, error.abortable)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of kbatch as KafkaException, with their cause."""
    try:
        yield
    except UNUSABLE:
        raise
    except errors.KafkaError as error:
        raise KafkaException(error_of(error)) from error
