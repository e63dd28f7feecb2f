"""Producer and SerializingProducer: callbacks run in `poll` and `flush`, on the thread that calls these.

Theory of operation. kbatch calls back on a thread of its own. There, what became of a message is put into a
queue (Reports), from which `poll` and `flush` take it. So a callback may use the producer as it may there.
Messages without a callback are not queued.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, final

from kbatch._native.io.interrupts import at_once
from kbatch.compat.confluent_kafka.cluster import Cluster, seconds
from kbatch.compat.confluent_kafka.error import (
    CODES,
    KafkaError,
    KafkaException,
    KeySerializationError,
    ValueSerializationError,
    error_of,
    translated,
)
from kbatch.compat.confluent_kafka.serialization import MessageField, SerializationContext
from kbatch.compat.confluent_kafka.settings import PRODUCER, for_admin, settings_of, within_delivery_timeout
from kbatch.compat.confluent_kafka.values import (
    TIMESTAMP_CREATE_TIME,
    ClusterMetadata,
    Headers,
    Message,
    TopicPartition,
    as_partition,
    as_position,
)
from kbatch.errors import (
    AuthenticationError,
    BufferExhaustedError,
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from kbatch.errors import KafkaError as Error
from kbatch.producer.threads import Producer as Client
from kbatch.unpatched import real_threading
from kbatch.waiting.conditions import Condition
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.threads import ThreadWaiter

logger = logging.getLogger(__name__)

OnDelivery = Callable[[KafkaError | None, Message], object]
# Errors about the call itself: `produce` raises them. Others are about the cluster, and go to the callback.
_RAISED = (IllegalStateError, ConfigError, RecordTooLargeError, SerializationError)
MOST_MESSAGES = 100_000


@final
class Reports:
    """The messages that are not done: on their way, or waiting for `poll` to call back.

    Parameters
    ----------
    most : int
        How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._counting = real_threading().Lock()
        self._changed = Condition(ThreadWaiter)
        self._waiting: deque[Callable[[], object]] = deque()

    def begin(self) -> None:
        """Count a message. Raise BufferError if there are as many as there may be."""
        with self._counting:
            if self._count >= self._most:
                raise BufferError(
                    f"{self._count} messages are on their way or wait for poll(), as many as "
                    "queue.buffering.max.messages allows; call poll() to run their callbacks"
                )
            self._count += 1

    def end(self) -> None:
        """Count a message as done."""
        with self._counting:
            self._count -= 1
        self._changed.notify()

    def add(self, report: Callable[[], object]) -> None:
        """Let the next `serve` call back."""
        self._waiting.append(report)
        self._changed.notify()

    def serve(self, timeout: float | None) -> int:
        """Call back for all that wait, after waiting for the first, and return their number. Raise what a
        callback raises; those after it wait for the next call.
        """
        at_once(self._changed.wait_until, lambda: bool(self._waiting), Deadline(timeout))
        served = 0
        for _ in range(len(self._waiting)):
            try:
                report = self._waiting.popleft()
            except IndexError:  # another thread took it
                break
            self.end()
            served += 1
            report()
        return served

    def await_next(self, deadline: Deadline) -> bool:
        """True if there is a callback to run; False if there is no message left, or at the deadline."""
        at_once(self._changed.wait_until, lambda: bool(self._waiting) or not self._count, deadline)
        return bool(self._waiting)

    def __len__(self) -> int:
        return self._count


class Producer:
    """Sends messages. Any number of threads may use it."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Start a producer.

        Parameters
        ----------
        config : mapping of str to object
            Keys of librdkafka, and those of kbatch. `on_delivery` is the callback of messages without one,
            and `error_cb` is called with failed logins.
        **keywords
            The same keys with underscores.
        """
        with translated():
            settings = settings_of(PRODUCER, config, keywords)
            self._on_delivery = settings.callback("on.delivery")
            self._on_error = settings.callback("error.cb")
            self._reports = Reports(int(settings.own.get("queue.buffering.max.messages", MOST_MESSAGES)))
            self._client = Client(within_delivery_timeout(settings.client))
        self._cluster = Cluster(for_admin(settings.client))

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Send a message. `poll` or `flush` then calls `on_delivery(error, message)`.

        It waits for memory and for the first metadata of a topic, up to max.block.ms.

        Raises
        ------
        BufferError
            There is no memory, or there are too many messages whose callbacks did not run: call `poll`.
        KafkaException
            The message is too large, or there is no transaction.
        """
        value_bytes, key_bytes = _bytes(value), _bytes(key)
        pairs = _pairs(headers)
        report = on_delivery or callback or self._on_delivery
        begun = time.monotonic()
        reports = self._reports
        on_error = self._on_error

        def done(metadata: Any, error: Error | None) -> None:
            if error is not None and report is None:
                logger.warning("a message to %s failed, and has no callback: %s", topic, error)
            if report is None:
                reports.end()
                return
            message = Message(
                topic,
                partition if metadata is None else metadata.partition,
                None if metadata is None or metadata.offset < 0 else metadata.offset,
                key_bytes,
                value_bytes,
                pairs,
                None if error is None else _failure_of(error),
                None
                if metadata is None or metadata.timestamp_ms < 0
                else (TIMESTAMP_CREATE_TIME, metadata.timestamp_ms),
                time.monotonic() - begun,
            )
            reports.add(lambda: report(message.error(), message))

        reports.begin()
        try:
            self._client.send(
                topic,
                value_bytes,
                key_bytes,
                headers=pairs,
                partition=None if partition < 0 else partition,
                timestamp_ms=timestamp or None,
                on_delivery=done,
            )
        except BufferExhaustedError as error:
            reports.end()
            raise BufferError(str(error)) from error
        except Error as error:
            if isinstance(error, _RAISED) or error.fatal:
                reports.end()
                with translated():
                    raise
            if on_error is not None and isinstance(error, AuthenticationError):
                on_error(error_of(error))
            done(None, error)
        except BaseException:
            reports.end()
            raise

    def poll(self, timeout: float | None = -1) -> int:
        """Run the callbacks of messages that are done, and return their number. It waits for the first, up to
        `timeout` seconds; a negative time is no limit.
        """
        return self._reports.serve(seconds(timeout))

    def flush(self, timeout: float | None = -1) -> int:
        """Wait until all messages are done and their callbacks have run, and return how many are not."""
        deadline = Deadline(seconds(timeout))
        while True:
            try:
                with translated():
                    self._client.flush(deadline.left)
            except KafkaException as exception:
                if not isinstance(exception.__cause__, KafkaTimeoutError):
                    raise
            self._reports.serve(0)
            if not self._reports.await_next(deadline):
                return len(self._reports)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Let messages fail that wait to be sent, or for their answers; it returns when that is so."""
        with translated():
            self._client.purge(queued=in_queue, in_flight=in_flight)

    def __len__(self) -> int:
        return len(self._reports)

    def __bool__(self) -> bool:
        return True  # also without messages

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers and topics of the cluster, or one topic."""
        return self._cluster.list_topics(topic, seconds(timeout))

    def init_transactions(self, timeout: float = -1) -> None:
        """Prepare for transactions, once."""
        with translated():
            self._client.init_transactions(seconds(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction, of which later messages are part."""
        with translated():
            self._client.begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is left, and commit."""
        with translated():
            self._client.commit_transaction(seconds(timeout))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction."""
        with translated():
            self._client.abort_transaction(seconds(timeout))

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit offsets with the transaction. The time limit is max.block.ms."""
        offsets = {as_partition(each): as_position(each) for each in positions if each.offset >= 0}
        with translated():
            self._client.send_offsets_to_transaction(offsets, group_metadata)

    def close(self) -> bool:
        """Flush, and end all connections and threads."""
        self.flush()
        with translated():
            self._client.close()
        self._cluster.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SerializingProducer(Producer):
    """A Producer with the keys key.serializer and value.serializer: they get the object and a
    SerializationContext.
    """

    def __init__(self, conf: Mapping[str, Any], /) -> None:
        rest = dict(conf)
        self._serializers = [rest.pop(f"{part}.serializer", None) for part in ("key", "value")]
        super().__init__(rest)

    def produce(  # type: ignore[override]  # key and value are in the other order there, too
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Serialize a key and a value, and send them.

        Raises
        ------
        KeySerializationError, ValueSerializationError
            A serializer has failed.
        """
        context = SerializationContext(topic, MessageField.KEY, headers)
        serialize_key, serialize_value = self._serializers
        if serialize_key is not None:
            try:
                key = serialize_key(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if serialize_value is not None:
            try:
                value = serialize_value(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic,
            value,
            key,
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=context.headers,
        )


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _pairs(headers: Headers | None) -> list[tuple[str, bytes | None]] | None:
    """Return headers as a list of pairs with bytes."""
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, _bytes(value)) for name, value in pairs]


def _failure_of(error: Error) -> KafkaError:
    """Return the error of a message: one that was not delivered in time has a code of its own."""
    if isinstance(error, KafkaTimeoutError):
        return KafkaError(CODES["_MSG_TIMED_OUT"], str(error))
    return error_of(error)
