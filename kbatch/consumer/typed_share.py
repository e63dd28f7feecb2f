"""The records of a share consumer with deserializers.

Theory of operation. Each record is acknowledged by itself, so all are decoded when they are taken. One that
cannot be read and is not delivered is rejected, as no member could read it. If a poll raises its error
instead, it is released, as in Java: members get it again until the group's limit of deliveries, or until
`skip` rejects it.

What was acquired is not given back because a registry is away, or a letter could not be sent: each delivery
counts. The next poll begins with it.

After org.apache.kafka.clients.consumer.internals.ShareCompletedFetch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kbatch._native.codec.record import ConsumerRecord
from kbatch.errors import RecordDeserializationError
from kbatch.records import AcknowledgeType, ShareRecord, TopicPartition

if TYPE_CHECKING:
    from kbatch.consumer.acquired import AcquiredRecords
    from kbatch.consumer.typed_records import Prepared, TypedRecords, Unknown


class TypedShareRecords:
    """Makes what a poll has taken into what the program gets.

    Parameters
    ----------
    typed : TypedRecords
    acquired : AcquiredRecords
        Has taken the records.
    ask : Callable
        Asks a registry for what is unknown, and waits.
    prepare : Callable
        Does what TypedRecords.prepared does.

    Attributes
    ----------
    typed : TypedRecords
    """

    def __init__(
        self,
        typed: TypedRecords,
        acquired: AcquiredRecords,
        ask: Callable[[Unknown], Awaitable[None]],
        prepare: Callable[[Sequence[ConsumerRecord]], Awaitable[Prepared]],
    ) -> None:
        self.typed = typed
        self._acquired = acquired
        self._ask = ask
        self._prepare = prepare

    async def prepared(self, taken: list[ShareRecord]) -> list[ShareRecord]:
        """Return the records that the program gets. The next poll begins with those that are not decoded.

        Raises
        ------
        RecordDeserializationError
            The first record cannot be read, under on.deserialization.error=raise.
        SchemaRegistryError, KafkaTimeoutError
            The registry refuses, cannot be reached, or does not answer.
        Exception
            What a function of on.deserialization.error, or the delivery of a letter, raises.
        """
        try:
            raw = list(map(_consumer_record, taken))
            if unknown := self.typed.unknown(raw):
                await self._ask(unknown)
            prepared, letters, _ = await self._prepare(raw)
            for letter, error in letters if self.typed.dead_letter is not None else ():
                assert self.typed.dead_letter is not None
                if (acknowledged := self.typed.dead_letter(letter, error)) is not None:
                    await acknowledged
        except BaseException:
            self._acquired.keep(taken)
            raise
        return self._delivered(taken, prepared)

    def _delivered(
        self, taken: list[ShareRecord], prepared: Sequence[ConsumerRecord | None]
    ) -> list[ShareRecord]:
        found: list[ShareRecord] = []
        for index, (record, made) in enumerate(zip(taken, prepared, strict=True)):
            if made is None:
                self._choose(record, AcknowledgeType.REJECT)
                continue
            try:
                error = made.deserialization_error
                found.append(record._replace(key=made.key, value=made.value, deserialization_error=error))
            except RecordDeserializationError:
                if found:
                    self._acquired.keep(taken[index:])
                    return found
                self._acquired.keep(taken[index + 1 :])
                self._choose(record, AcknowledgeType.RELEASE)
                raise
        return found

    def skip(self, error: RecordDeserializationError) -> None:
        """Reject the record of an error that the last poll has raised, instead of releasing it."""
        if error.topic is None or error.partition is None or error.offset is None:
            raise ValueError("skip() needs the error of a record, which has topic, partition and offset")
        partition = TopicPartition(error.topic, error.partition)
        self._acquired.choose(partition, error.offset, AcknowledgeType.REJECT)

    def _choose(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self._acquired.choose(TopicPartition(record.topic, record.partition), record.offset, kind)


def _consumer_record(record: ShareRecord) -> ConsumerRecord:
    return ConsumerRecord(
        record.topic,
        record.partition,
        record.raw_key,
        record.raw_value,
        record.headers,
        record.timestamp_ms,
        record.offset,
        record.leader_epoch,
        "create_time" if record.timestamp_type == "create_time" else "log_append_time",
    )
