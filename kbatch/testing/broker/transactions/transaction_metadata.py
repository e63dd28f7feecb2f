"""The state of one transactional id in a transaction coordinator, and its transitions.

Theory of operation. A TransactionMetadata never changes: each transition makes a new one, which counts only
after it is stored, so the stored and the current state are always the same. The rules are those of Kafka's
TransactionMetadata; NEXT_STATES is its table of valid previous states, inverted. Two of its states are never
stored: PREPARE_EPOCH_FENCE, which is `fenced` here, and DEAD, which is a tombstone.

Epochs: under TV1 (KIP-360) only InitProducerId raises them. Under TV2 (KIP-890) every EndTxn does too, before
its markers are written, so that late batches of the transaction meet a newer epoch. No producer gets 32767,
so its epoch can always be raised once more: instead, the client gets a new producer id with epoch 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record, decode_record, encode_record

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_EPOCH = 2**15 - 1

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """The states, by the numbers of TransactionLogValue; `str` returns the name that clients see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __str__(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_preparing(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_STATE = TransactionState
_BETWEEN_TRANSACTIONS = frozenset({_STATE.EMPTY, _STATE.ONGOING, _STATE.PREPARE_ABORT, _STATE.DEAD})

NEXT_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    _STATE.EMPTY: _BETWEEN_TRANSACTIONS,
    _STATE.ONGOING: frozenset({_STATE.ONGOING, _STATE.PREPARE_COMMIT, _STATE.PREPARE_ABORT}),
    _STATE.PREPARE_COMMIT: frozenset({_STATE.COMPLETE_COMMIT}),
    _STATE.PREPARE_ABORT: frozenset({_STATE.COMPLETE_ABORT}),
    _STATE.COMPLETE_COMMIT: _BETWEEN_TRANSACTIONS,
    _STATE.COMPLETE_ABORT: _BETWEEN_TRANSACTIONS,
}


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id.

    Attributes
    ----------
    previous_producer_id : int
        The producer id before the last transition. It differs from `producer_id` right after a new one was
        assigned: it identifies a retry of the request that brought the new one.
    next_producer_id : int
        The `producer_id` after the markers are written; -1 for none.
    last_producer_epoch : int
        The epoch before the last bump, if the producer itself asked for it; else -1.
    timeout_ms, start_ms, last_update_ms : int
        `start_ms` is -1 if no transaction began since InitProducerId.
    partitions : frozenset of (topic, partition)
        Partitions of the transaction; while it is preparing, those without a marker.
    client_transaction_version : int
        0 or 2: the version of the client's last request (KIP-890).
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def may_expire(self) -> bool:
        return _STATE.DEAD in NEXT_STATES[self.state]

    def initialised(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Return the state after InitProducerId with the same producer id.

        `expected_epoch` is the client's own (KIP-360): the current one asks for a bump, the one before it is
        a retry whose answer was lost. Raises BrokerError PRODUCER_FENCED for another epoch.
        """
        if self.is_epoch_exhausted:
            # Kafka does not foresee a retry, or a fenced client, at an exhausted epoch
            # (IllegalStateException)
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "Cannot allocate any more producer epochs.")
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None and self.producer_epoch != NO_PRODUCER_EPOCH:
            if expected_epoch == self.producer_epoch:
                last_epoch = expected_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, expected_epoch
            else:
                raise BrokerError(ErrorCode.PRODUCER_FENCED)
        return self._emptied(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, expected_epoch: int | None, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after InitProducerId with exhausted epochs."""
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return self._emptied(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_transaction_version: int, now_ms: int
    ) -> TransactionMetadata:
        return self._moved(
            _STATE.ONGOING,
            partitions=self.partitions | frozenset(partitions),
            start_ms=self.start_ms if self.state is _STATE.ONGOING else now_ms,
            client_transaction_version=client_transaction_version,
            last_update_ms=now_ms,
        )

    def prepared(
        self, commit: bool, transaction_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after EndTxn, before the markers; TV2 also aborts without partitions."""
        epochs = {}
        if transaction_version >= 2:
            epochs = {
                "producer_epoch": min(self.producer_epoch + 1, MAX_EPOCH),
                "last_producer_epoch": self.producer_epoch,
            }
        return self._moved(
            _STATE.PREPARE_COMMIT if commit else _STATE.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is _STATE.ONGOING else now_ms,
            next_producer_id=next_producer_id,
            client_transaction_version=transaction_version,
            last_update_ms=now_ms,
            **epochs,
        )

    def fenced(self) -> TransactionMetadata:
        """Return the first state of a TV1 abort without a request; under TV2 `prepared` does it."""
        return replace(
            self,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after the markers."""
        producer_id, epoch = self.after_completion
        return self._moved(
            _STATE.COMPLETE_COMMIT if self.state is _STATE.PREPARE_COMMIT else _STATE.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    @property
    def after_completion(self) -> tuple[int, int]:
        """Return the producer id and epoch with which the producer continues."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def without_markers_for(self, partitions: Iterable[TopicPartition]) -> TransactionMetadata:
        """Return the state with only `partitions` left. It is not stored: a restart rewrites all markers."""
        return replace(self, partitions=frozenset(partitions))

    def _emptied(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return self._moved(
            _STATE.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def _moved(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        assert state in NEXT_STATES[self.state], f"{self.transactional_id}: {self.state} to {state}"
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)


def is_epoch_exhausted(epoch: int) -> bool:
    """True if the next epoch is one that no producer gets."""
    return epoch >= MAX_EPOCH - 1


def to_record(metadata: TransactionMetadata, value_version: int) -> Record:
    """Return the record of __transaction_state (TransactionLog); version 0 has no fields of KIP-890."""
    value = messages.TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=None if metadata.state is _STATE.EMPTY else _by_topic(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if value_version >= 1:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_transaction_version
    key = messages.TransactionLogKey(transactional_id=metadata.transactional_id)
    return encode_record(key, value, value_version)


def tombstone(transactional_id: str) -> Record:
    return encode_record(messages.TransactionLogKey(transactional_id=transactional_id), None, 0)


def from_record(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Return the transactional id and its state, None for a tombstone; None for a key of another kind."""
    record = decode_record(messages.TransactionLogKey, messages.TransactionLogValue, key, value)
    if record is None:
        return None
    transactional_id = record[0].transactional_id
    if (stored := record[1]) is None:
        return transactional_id, None
    return transactional_id, TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        timeout_ms=stored.transaction_timeout_ms,
        last_update_ms=stored.transaction_last_update_timestamp_ms,
        producer_epoch=stored.producer_epoch,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        state=TransactionState(stored.transaction_status),
        partitions=frozenset(
            (topic.topic, partition)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        client_transaction_version=stored.client_transaction_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[messages.TransactionLogValue.PartitionsSchema]:
    return [
        messages.TransactionLogValue.PartitionsSchema(
            topic=topic, partition_ids=[partition for _, partition in group]
        )
        for topic, group in groupby(sorted(partitions), key=lambda partition: partition[0])
    ]
