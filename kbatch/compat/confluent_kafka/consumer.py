"""Consumer and DeserializingConsumer: messages one by one or in lists, errors as messages.

Theory of operation. A kbatch Consumer is a member of the group, and keeps its callbacks in polls. What the
program has taken is remembered as the offsets that are stored: `commit` commits them. Automatic commits are
kbatch's own, unless the program stores offsets itself (enable.auto.offset.store=false); then polls commit
what it has stored.

A program may call `assign` in on_assign, to begin elsewhere. The group has assigned the partitions already;
so the call seeks.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import TracebackType
from typing import Any, Self

from kbatch.compat.confluent_kafka.cluster import Cluster, seconds
from kbatch.compat.confluent_kafka.error import (
    CODES,
    UNUSABLE,
    ConsumeError,
    KafkaError,
    KafkaException,
    KeyDeserializationError,
    ValueDeserializationError,
    error_of,
    translated,
)
from kbatch.compat.confluent_kafka.serialization import MessageField, SerializationContext
from kbatch.compat.confluent_kafka.settings import CONSUMER, for_admin, settings_of
from kbatch.compat.confluent_kafka.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ClusterMetadata,
    Message,
    TopicPartition,
    as_partition,
    as_position,
    message_of,
    with_position,
)
from kbatch.config import ConsumerConfig
from kbatch.consumer.threads import Consumer as Client
from kbatch.errors import AuthenticationError, ConfigError
from kbatch.errors import KafkaError as Error
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata
from kbatch.records import TopicPartition as Partition
from kbatch.waiting.deadline import Deadline

logger = logging.getLogger(__name__)

OnRebalance = Callable[["Consumer", list[TopicPartition]], object]
# An error that lasts is a message as often: a program that logs it and polls again does nothing else.
REPEAT_SECONDS = 1.0
# How often a poll that has no message looks whether a partition has ended.
END_SECONDS = 0.05
NO_OFFSET = "Local: No offset stored"  # some programs look for this text
_ENDS = {OFFSET_BEGINNING: "beginning", OFFSET_END: "end"}


class Consumer:
    """Reads messages as a member of a group, or of partitions that the program assigns. One thread uses it at
    a time.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Start a consumer.

        Parameters
        ----------
        config : mapping of str to object
            Keys of librdkafka, and those of kbatch; group.id is needed. `on_commit(error, partitions)` is
            called after commits of the program, and `error_cb` with failed logins.
        **keywords
            The same keys with underscores.
        """
        with translated():
            settings = settings_of(CONSUMER, config, keywords)
            if not settings.client.get("group.id", settings.client.get("group_id")):
                raise ValueError("group.id is missing; set it")
            self._on_commit = settings.callback("on.commit")
            self._on_error = settings.callback("error.cb")
            self._stores_taken = settings.flag("enable.auto.offset.store", True)
            self._tells_ends = settings.flag("enable.partition.eof", False)
            parsed = ConsumerConfig(settings.client)
            self._commits_stored = parsed.enable_auto_commit and not self._stores_taken
            self._interval = parsed.auto_commit_interval_ms / 1000
            given = parsed.settings()
            if self._commits_stored:
                given["enable.auto.commit"] = False
            self._client: Client[Any, Any] = Client(given)
        self._cluster = Cluster(for_admin(settings.client))
        self._taken: dict[Partition, OffsetAndMetadata] = {}  # by the program
        self._stored = self._taken if self._stores_taken else {}
        self._is_closed = False
        self._ahead: list[Message] = []  # that an exception kept from the program
        # of enable.partition.eof
        self._ends: dict[Partition, int] = {}  # where a message has told of the end
        self._untold: set[Partition] = set()  # those of whose end no message has told
        self._unknown: set[Partition] = set()  # of these, those of whose log no answer has said anything
        self._last_error: tuple[str, float] | None = None
        self._due = time.monotonic() + self._interval  # of the commit of what is stored

    # Which partitions

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Read topics as a member of the group. Those that begin with "^" are patterns.

        Callbacks get the consumer and a list of partitions, in polls. They need not assign them.
        """
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(f"topics must be a list of str, got {topics!r}")
        with translated():
            self._client.subscribe(
                _pattern_of(topics) or topics,
                on_assigned=partial(self._assigned, on_assign),
                on_revoked=partial(self._revoked, on_revoke),
                on_lost=partial(self._lost, on_lost or on_revoke),
            )

    def _call_back(self, callback: OnRebalance, partitions: list[Partition]) -> None:
        callback(self, [TopicPartition(*each) for each in partitions])

    def _assigned(self, callback: OnRebalance | None, partitions: list[Partition]) -> None:
        self._await_ends(partitions)
        if callback is not None:
            self._call_back(callback, partitions)

    def _revoked(self, callback: OnRebalance | None, partitions: list[Partition]) -> None:
        try:
            if callback is not None:
                self._call_back(callback, partitions)
        finally:
            if self._commits_stored:
                self._commit_stored(partitions)
            self._forget(partitions)

    def _lost(self, callback: OnRebalance | None, partitions: list[Partition]) -> None:
        self._forget(partitions)
        if callback is not None:
            self._call_back(callback, partitions)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for each in partitions:
            for known in (self._taken, self._stored, self._ends):
                known.pop(each, None)
            self._untold.discard(each)
            self._unknown.discard(each)

    def unsubscribe(self) -> None:
        """Leave the group, or read no partition any more."""
        with translated():
            self._client.unsubscribe()
        self._forget(list(self._untold))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others, from their offsets. While a group assigns them, only their
        offsets count.
        """
        with translated():
            if self._client.subscription():
                self._seek_assigned(partitions)
            else:
                self._client.assign({as_partition(each): self._start_of(each) for each in partitions})
                self._forget((self._taken.keys() | self._untold) - self._client.assignment())
        self._begin_anew(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, too; as `assign` while a group assigns them."""
        with translated():
            if self._client.subscription():
                self._seek_assigned(partitions)
            else:
                before: dict[Partition, Any] = dict.fromkeys(self._client.assignment())
                self._client.assign(
                    before | {as_partition(each): self._start_of(each) for each in partitions}
                )
        self._begin_anew(partitions)

    def _seek_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            if (start := self._start_of(each)) is not None:
                self._client.seek(as_partition(each), start)

    def unassign(self) -> None:
        """Read no partition any more. A group takes them back by itself."""
        self.incremental_unassign(self.assignment())

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Do not read these partitions any more. A group takes them back by itself."""
        with translated():
            if not self._client.subscription():
                gone = {as_partition(each) for each in partitions}
                self._client.assign(dict.fromkeys(self._client.assignment() - gone))
                self._forget(gone)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return [TopicPartition(*each) for each in sorted(self._client.assignment())]

    def _start_of(self, given: TopicPartition) -> Any:
        """Return where to read, as kbatch names it; None for what the group has committed."""
        if given.offset >= 0:
            return as_position(given) if given.leader_epoch is not None else given.offset
        if given.offset in (OFFSET_STORED, OFFSET_INVALID):
            return None
        if given.offset not in _ENDS:
            raise ValueError(
                f"offset must be at least 0, or one of the constants OFFSET_*, got {given.offset}"
            )
        return _ENDS[given.offset]

    # Messages

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, which may be an error; None if none comes within `timeout` seconds. A
        negative time is no limit.
        """
        return next(iter(self._take(1, timeout)), None)

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Return so many messages; fewer if `timeout` seconds are over, or an error is among them."""
        return self._take(num_messages, timeout)

    def _take(self, num_messages: int, timeout: float | None) -> list[Message]:
        self._check_open()
        deadline = Deadline(seconds(timeout))
        found, self._ahead = self._ahead, []
        try:
            while len(found) < num_messages:
                if self._commits_stored:
                    self._commit_due()
                left = deadline.left
                try:
                    polled = self._client.poll(self._patience(left), num_messages - len(found))
                except UNUSABLE:
                    raise
                except Error as error:
                    if left is not None and not self._reads:
                        time.sleep(left)
                        break
                    if (message := self._message_of(error, deadline)) is not None:
                        found.append(message)
                        break
                else:
                    self._taken.update(polled.offsets)
                    found.extend(map(message_of, polled))
                    if self._tells_ends:
                        found.extend(self._new_ends(polled.offsets.keys()))
                if deadline.is_over:
                    break
        except BaseException:
            self._ahead = found
            raise
        self._ahead = found[num_messages:]
        return found[:num_messages]

    @property
    def _reads(self) -> bool:
        """True if there is something to read."""
        return bool(self._client.subscription() or self._client.assignment())

    def _patience(self, left: float | None) -> float | None:
        """Return how long to wait for messages, of `left` seconds."""
        if not self._untold:
            return left
        return END_SECONDS if left is None else min(left, END_SECONDS)

    def _await_ends(self, partitions: Iterable[Partition]) -> None:
        """Tell of the ends of partitions that are read from a new position."""
        for each in partitions if self._tells_ends else ():
            self._ends.pop(each, None)
            self._untold.add(each)
            self._unknown.add(each)

    def _new_ends(self, moved: Set[Partition]) -> Iterator[Message]:
        """Yield a message for each partition of which the program has taken the last message, once. Only
        those whose position has moved are looked at, and those of which nothing is known: more messages of
        the others must come first.
        """
        self._untold |= moved
        for each in (*moved, *(self._unknown - moved)):
            lag = self._client.lag(each)
            if lag is None:
                self._unknown.add(each)
                continue
            self._unknown.discard(each)
            if lag > 0:
                continue
            self._untold.discard(each)
            end = self._client.position(each)
            if self._ends.get(each) != end:
                self._ends[each] = end
                error = KafkaError(CODES["_PARTITION_EOF"], f"{each} has no message at offset {end} yet")
                yield Message(each.topic, each.partition, end, error=error)

    def _message_of(self, error: Error, deadline: Deadline) -> Message | None:
        """Return an error as a message; None if `error_cb` has it, or if it came a moment ago: then some time
        has passed.
        """
        text, now = str(error), time.monotonic()
        if self._last_error is not None and self._last_error[0] == text:
            since = now - self._last_error[1]
            if since < REPEAT_SECONDS:
                left = deadline.left
                wait = REPEAT_SECONDS - since
                time.sleep(wait if left is None else min(left, wait))
                return None
        self._last_error = (text, now)
        made = error_of(error)
        if self._on_error is not None and isinstance(error, AuthenticationError):
            self._on_error(made)
            return None
        return Message(error=made)

    def _begin_anew(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the messages and ends of partitions that are read from elsewhere."""
        chosen = {as_partition(each) for each in partitions}
        self._ahead = [each for each in self._ahead if (each.topic(), each.partition()) not in chosen]
        self._await_ends(chosen)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no messages of these partitions until `resume`."""
        with translated():
            self._client.pause([as_partition(each) for each in partitions])

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return messages of these partitions again."""
        with translated():
            self._client.resume([as_partition(each) for each in partitions])

    def seek(self, partition: TopicPartition) -> None:
        """Go on at the offset of this partition, which is assigned; at OFFSET_INVALID where auto.offset.reset
        says.
        """
        with translated():
            start = self._start_of(partition)
            self._client.seek(as_partition(partition), self._first_of(partition) if start is None else start)
        self._begin_anew([partition])

    def _first_of(self, partition: TopicPartition) -> Any:
        """Return where a partition begins: after what is committed, or where auto.offset.reset says."""
        reset = {"earliest": "beginning", "latest": "end"}.get(self._client.config.auto_offset_reset)
        asked = as_partition(partition)
        committed = self._client.committed([asked])[asked] if partition.offset == OFFSET_STORED else None
        if committed is None and reset is None:
            raise ConfigError(f"seek() needs an offset, got {partition!r}")
        return committed or reset

    # Offsets

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, or offsets, or else those that are stored.

        Returns
        -------
        list of TopicPartition or None
            What was committed; None if `asynchronous`, which does not wait.

        Raises
        ------
        KafkaException
            The commit failed, or has nothing to commit (_NO_OFFSET). If it is asynchronous, `on_commit` gets
            the failure.
        """
        if message is not None and offsets is not None:
            raise ValueError("commit() takes a message or offsets, not both")
        self._check_open()
        chosen = dict(self._stored) if message is None and offsets is None else _chosen(message, offsets)
        if not chosen:
            if asynchronous:
                return None
            raise KafkaException(KafkaError(CODES["_NO_OFFSET"], NO_OFFSET))
        with translated():
            if asynchronous:
                self._client.commit_async(chosen, self._committed)
                return None
            self._client.commit(chosen)
        return [with_position(*each) for each in chosen.items()]

    def _committed(self, offsets: Mapping[Partition, OffsetAndMetadata], error: Error | None) -> None:
        if self._on_commit is not None:
            self._on_commit(
                None if error is None else error_of(error), [with_position(*each) for each in offsets.items()]
            )
        elif error is not None:
            logger.warning("a commit failed: %s", error)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Store the offset after a message, or offsets, for the next commit. It needs
        enable.auto.offset.store=false.
        """
        if self._stores_taken:
            raise KafkaException(
                KafkaError(CODES["_INVALID_ARG"], "store_offsets() needs enable.auto.offset.store=false")
            )
        chosen = _chosen(message, offsets)
        for each in chosen:
            if each not in self._client.assignment():
                raise KafkaException(KafkaError(CODES["_STATE"], f"{each} is not assigned to this consumer"))
        self._stored.update(chosen)

    def _commit_due(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval
            if self._stored:
                self._client.commit_async(dict(self._stored), self._committed)

    def _commit_stored(self, partitions: Iterable[Partition]) -> None:
        """Commit what is stored of partitions, before they are given up."""
        chosen = {each: self._stored[each] for each in partitions if each in self._stored}
        if chosen:
            try:
                self._client.commit(chosen)
            except Error as error:
                logger.warning("the commit before partitions are given up failed: %s", error)

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return what the group has committed for partitions; OFFSET_INVALID for those without."""
        with translated():
            found = self._client.committed(
                [as_partition(each) for each in partitions], timeout=seconds(timeout)
            )
        return [with_position(as_partition(each), found[as_partition(each)]) for each in partitions]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last message that was taken of each partition; OFFSET_INVALID for
        those of which none was.
        """
        return [with_position(as_partition(each), self._taken.get(as_partition(each))) for each in partitions]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last message. Brokers are always
        asked, also if `cached`.
        """
        with translated():
            return self._cluster.watermarks(partition, self._client.config.isolation_level, seconds(timeout))

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the offset of the first message of each partition at a time or later; OFFSET_END without
        one. The times, in milliseconds, are in the place of the offsets.
        """
        with translated():
            return self._cluster.offsets_for_times(
                list(partitions), self._client.config.isolation_level, seconds(timeout)
            )

    # What else there is

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers and topics of the cluster, or one topic."""
        return self._cluster.list_topics(topic, seconds(timeout))

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return what `Producer.send_offsets_to_transaction` takes."""
        with translated():
            return self._client.group_metadata()

    def memberid(self) -> str:
        """Return the id of this member in the group; empty before it is one."""
        return self.consumer_group_metadata().member_id

    def close(self) -> None:
        """Commit what is to be committed automatically, leave the group, and end all connections and
        threads. A second call has no effect.
        """
        with translated():
            if self._commits_stored and not self._is_closed and not self._client.subscription():
                self._commit_stored(self._client.assignment())
            self._client.close()
        self._is_closed = True
        self._cluster.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the consumer is closed; create another")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class DeserializingConsumer(Consumer):
    """A Consumer with the keys key.deserializer and value.deserializer: they get the bytes and a
    SerializationContext.
    """

    def __init__(self, conf: Mapping[str, Any], /) -> None:
        rest = dict(conf)
        self._deserializers = [rest.pop(f"{part}.deserializer", None) for part in ("key", "value")]
        super().__init__(rest)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message with its key and value as objects; None if none comes in time.

        Raises
        ------
        ConsumeError
            An error came instead of a message.
        KeyDeserializationError, ValueDeserializationError
            A deserializer has failed.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        if (error := message.error()) is not None:
            raise ConsumeError(error, kafka_message=message)
        context = SerializationContext(message.topic(), MessageField.KEY, message.headers())
        read_key, read_value = self._deserializers
        if read_key is not None:
            try:
                key = read_key(message.key(), context)
            except Exception as failure:
                raise KeyDeserializationError(failure, message) from failure
            message.set_key(key)
        context.field = MessageField.VALUE
        if read_value is not None:
            try:
                value = read_value(message.value(), context)
            except Exception as failure:
                raise ValueDeserializationError(failure, message) from failure
            message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Raise NotImplementedError: `poll` deserializes."""
        raise NotImplementedError("a DeserializingConsumer has poll() only")


def _chosen(
    message: Message | None, offsets: Sequence[TopicPartition] | None
) -> dict[Partition, OffsetAndMetadata]:
    """Return the offsets of a call by their partitions. Those below 0 are none."""
    if message is not None:
        if (error := message.error()) is not None:
            raise KafkaException(error)
        epoch = message.leader_epoch()
        at = OffsetAndMetadata((message.offset() or 0) + 1, "", -1 if epoch is None else epoch)
        return {Partition(str(message.topic()), message.partition() or 0): at}
    return {as_partition(each): as_position(each) for each in offsets or () if each.offset >= 0}


def _pattern_of(topics: Sequence[str]) -> str | None:
    """Return one pattern for topics of which some are patterns; None if they are names. Those of librdkafka
    match the beginning of a name.
    """
    if not any(each.startswith("^") for each in topics):
        return None
    parts = [f"(?:{each[1:]}).*" if each.startswith("^") else re.escape(each) for each in topics]
    return f"^(?:{'|'.join(parts)})$"
