"""The exception tree of kbatch: every error of the project has `KafkaError` as its root.

The names and codes are Kafka's own (org.apache.kafka.common.protocol.Errors). Where Python has a class that
callers already catch (`ValueError`, `TimeoutError`, `RuntimeError`), the error is one of those too.
"""


class KafkaError(Exception):
    """Root of all errors of kbatch.

    Attributes
    ----------
    code : int
        Kafka's error code; -1 (UNKNOWN_SERVER_ERROR) where Kafka has none for it.
    retriable, fatal, abortable : bool
        What may be done about it: try the same again, make a new producer, abort the transaction.
    """

    code: int = -1
    retriable: bool = False
    fatal: bool = False
    abortable: bool = False


class CorruptRecordError(KafkaError, ValueError):
    """Bytes that are not the record batch they claim to be (CORRUPT_MESSAGE): bad CRC, impossible length or
    count, truncated or over-long varint, a header key that is not UTF-8, an unknown codec, a compressed
    stream that is broken, ends early or grows beyond the limit.
    """

    code = 2


class IllegalStateError(KafkaError, RuntimeError):
    """A call that the object's state does not allow, such as an append to a sealed batch."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """Something did not happen within its time (REQUEST_TIMED_OUT)."""

    code = 7
    retriable = True


class BufferExhaustedError(KafkaTimeoutError):
    """No memory became free in a `BufferPool` within the time given."""

    code = -1
