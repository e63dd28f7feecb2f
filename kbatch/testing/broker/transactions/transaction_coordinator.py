"""A transaction coordinator: producer ids, epochs and transactions of the transactional ids that it has.

Theory of operation. Each request is checked against the metadata of its transactional id
(TransactionMetadata, which knows the transitions). The new metadata is stored as a record of
__transaction_state, and replaces the old when it is replicated. A transaction ends in two steps. First,
PREPARE_COMMIT or PREPARE_ABORT is stored, which decides the transaction. Then markers are written to its
partitions, and COMPLETE_* is stored. If a marker cannot be written (no leader), the transaction stays
prepared, `handle_timeout` tries again, and clients get CONCURRENT_TRANSACTIONS, as they do while a record is
not replicated. Kafka treats both as a transition under way (pendingState), so TV2 requests and InitProducerId
get that error before their producer id and epoch are checked.

TV1 and TV2 (KIP-890): EndTxn version 5 and AddPartitionsToTxn version 4 are TV2, whatever the feature level.
The level decides what the coordinator does by itself (time-outs, fencing), and the version of the stored
records.

The rules and their order follow TransactionCoordinator.scala and TransactionStateManager.scala of Kafka
4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record, coordinator_partition
from kbatch.testing.broker.transactions.transaction_metadata import (
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    from_record,
    is_epoch_exhausted,
    to_record,
    tombstone,
)

if TYPE_CHECKING:
    from kbatch.testing.broker.coordinator_log import Write

OFFSETS_TOPIC = "__consumer_offsets"
RETRY_MS = 100
EXPIRY_CHECK_INTERVAL_MS = 3_600_000

_STATE = TransactionState

EndTxnAnswer = Literal["end", "same", "invalid"]

# The effect of EndTxn: (state, commit) -> end the transaction (under TV2 also one without partitions), repeat
# the answer, or answer INVALID_TXN_STATE.
END_TXN_V1: dict[tuple[TransactionState, bool], EndTxnAnswer] = {
    (_STATE.EMPTY, True): "invalid",
    (_STATE.EMPTY, False): "invalid",
    (_STATE.ONGOING, True): "end",
    (_STATE.ONGOING, False): "end",
    (_STATE.COMPLETE_COMMIT, True): "same",
    (_STATE.COMPLETE_COMMIT, False): "invalid",
    (_STATE.COMPLETE_ABORT, True): "invalid",
    (_STATE.COMPLETE_ABORT, False): "same",
}
# TV2 recognises a retry by its epoch, the one before the current: (state, commit, is_retry)
END_TXN_V2: dict[tuple[TransactionState, bool, bool], EndTxnAnswer] = {
    (_STATE.EMPTY, True, False): "invalid",
    (_STATE.EMPTY, False, False): "end",
    (_STATE.ONGOING, True, False): "end",
    (_STATE.ONGOING, False, False): "end",
    (_STATE.COMPLETE_COMMIT, True, False): "invalid",
    (_STATE.COMPLETE_COMMIT, False, False): "end",
    (_STATE.COMPLETE_COMMIT, True, True): "same",
    (_STATE.COMPLETE_COMMIT, False, True): "invalid",
    (_STATE.COMPLETE_ABORT, True, False): "invalid",
    (_STATE.COMPLETE_ABORT, False, False): "end",
    (_STATE.COMPLETE_ABORT, True, True): "invalid",
    (_STATE.COMPLETE_ABORT, False, True): "same",
}


class WriteMarkers(Protocol):
    """Write a marker to each partition, and return the partitions that cannot take it yet.

    With `transaction_version` 2 the partition refuses an epoch that is not above its own (KIP-1228).
    """

    def __call__(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        transaction_version: int,
    ) -> list[TopicPartition]: ...


class TransactionCoordinator:
    """The state machine of the transactional ids of a coordinator.

    Parameters
    ----------
    next_producer_id : callable
        Returns a producer id that was never returned before (`ProducerIdBlocks.next`).
    store : callable
        (key, value) -> Write or None: stores a record of __transaction_state, and returns what must be waited
        for, None if it is replicated; value None is a tombstone. If it raises, nothing has changed.
    write_markers : WriteMarkers
    transaction_version : int
        Feature level 0, 1 or 2; may be set later.
    max_timeout_ms, expiration_ms : int
        transaction.max.timeout.ms and transactional.id.expiration.ms.
    offsets_partition_count : int
        Partitions of __consumer_offsets.
    coordinator_epoch : callable
        Returns the leader epoch of the partition of __transaction_state, which markers carry.
    """

    def __init__(
        self,
        next_producer_id: Callable[[], int],
        store: Callable[[bytes, bytes | None], Write | None],
        write_markers: WriteMarkers,
        *,
        transaction_version: int = 2,
        max_timeout_ms: int = 900_000,
        expiration_ms: int = 604_800_000,
        offsets_partition_count: int = 50,
        coordinator_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._next_producer_id = next_producer_id
        self._store = store
        self._write_markers = write_markers
        self.transaction_version = transaction_version
        self._max_timeout_ms = max_timeout_ms
        self._expiration_ms = expiration_ms
        self._offsets_partition_count = offsets_partition_count
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, TransactionMetadata] = {}
        self._pending: dict[str, Write] = {}  # what replaces the metadata when it is replicated
        # when an ongoing transaction is aborted, and when the markers of a prepared one are retried
        self._deadlines_ms: dict[str, int] = {}
        self._expiry_check_ms: int | None = None

    # Requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        enable_two_phase_commit: bool = False,
        keep_prepared_transaction: bool = False,
    ) -> tuple[int, int]:
        """Handle InitProducerId: return a producer id and epoch. A client without them passes -1 and -1.

        Raises BrokerError INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit, which is
        not enabled), UNSUPPORTED_VERSION (keeping a prepared transaction), INVALID_TRANSACTION_TIMEOUT,
        CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        check_identity(producer_id, producer_epoch)
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if enable_two_phase_commit:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared_transaction:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id in self._pending:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(transactional_id, self._next_producer_id(), timeout_ms, now_ms)
        self._check_not_preparing(metadata)
        expected_epoch = None if producer_id == NO_PRODUCER_ID else producer_epoch
        if expected_epoch is not None and not _may_go_on(metadata, producer_id, expected_epoch):
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        if metadata.state is _STATE.ONGOING:
            # the client retries, and then gets an epoch above that of the abort
            self._abort_fenced(metadata, now_ms)
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata.is_epoch_exhausted and expected_epoch in (None, metadata.producer_epoch):
            new_id = self._next_producer_id()
            metadata = metadata.with_new_producer_id(new_id, expected_epoch, timeout_ms, now_ms)
        else:
            metadata = metadata.initialised(expected_epoch, timeout_ms, now_ms)
        self._put(metadata)
        return metadata.producer_id, metadata.producer_epoch

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        now_ms: int,
        *,
        client_tv2: bool = False,
        verify_only: bool = False,
    ) -> dict[TopicPartition, ErrorCode]:
        """Handle AddPartitionsToTxn: return a code for each partition, all NONE unless `verify_only`.

        `client_tv2` is true for a client that speaks TV2 (request version 4 and above, which brokers send).
        `verify_only` adds nothing, and answers TRANSACTION_ABORTABLE for partitions that were not added
        before. Raises BrokerError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS.
        """
        metadata = self._find(transactional_id)
        if not verify_only:
            self._check_not_preparing(metadata)
        _check_producer(metadata, producer_id, producer_epoch)
        self._check_not_preparing(metadata)
        if verify_only:
            missing = ErrorCode.TRANSACTION_ABORTABLE
            return {each: ErrorCode.NONE if each in metadata.partitions else missing for each in partitions}
        if metadata.state is not _STATE.ONGOING or not metadata.partitions.issuperset(partitions):
            self._put(metadata.with_partitions(partitions, 2 if client_tv2 else 0, now_ms))
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, now_ms: int
    ) -> int:
        """Handle AddOffsetsToTxn: add the group's partition of __consumer_offsets, and return it.

        Raises the BrokerErrors of `add_partitions`.
        """
        partition = coordinator_partition(group_id, self._offsets_partition_count)
        self.add_partitions(
            transactional_id, producer_id, producer_epoch, [(OFFSETS_TOPIC, partition)], now_ms
        )
        return partition

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_tv2: bool,
        now_ms: int,
    ) -> tuple[int, int]:
        """Handle EndTxn: return the producer id and epoch to continue with under TV2 (version 5), else -1 and
        -1.

        Raises BrokerError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
        CONCURRENT_TRANSACTIONS.
        """
        metadata = self._find(transactional_id)
        if client_tv2:
            self._check_not_preparing(metadata)
            answer = _end_txn_v2(metadata, producer_id, producer_epoch, commit)
        else:
            _check_producer(metadata, producer_id, producer_epoch)
            self._check_not_preparing(metadata)
            answer = END_TXN_V1[metadata.state, commit]
        if answer == "invalid":
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)
        if answer == "end":
            metadata = self._decide(metadata, commit, 2 if client_tv2 else 0, now_ms)
        return metadata.after_completion if client_tv2 else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Handle DescribeTransactions; raise BrokerError INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if transactional_id not in self._transactions:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self._transactions[transactional_id]

    def list_transactions(
        self,
        now_ms: int,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: re.Pattern[str] | None = None,
    ) -> list[TransactionMetadata]:
        """Handle ListTransactions: return those that pass all filters.

        Empty filters and a negative duration let all pass; the pattern must match the whole transactional id.
        """
        return [
            metadata
            for metadata in self._transactions.values()
            if (not producer_ids or metadata.producer_id in producer_ids)
            and (not states or str(metadata.state) in states)
            and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
            and (pattern is None or pattern.fullmatch(metadata.transactional_id))
        ]

    # Time and restarts

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` has something to do."""
        deadlines = list(self._deadlines_ms.values())
        if self._expiry_check_ms is not None:
            deadlines.append(self._expiry_check_ms)
        return min(deadlines, default=None)

    def handle_timeout(self, now_ms: int) -> None:
        """Abort transactions that took too long, retry markers, and forget transactional ids that expired."""
        due = [name for name, deadline_ms in self._deadlines_ms.items() if deadline_ms <= now_ms]
        for transactional_id in due:
            metadata = self._transactions[transactional_id]
            self._deadlines_ms[transactional_id] = now_ms + RETRY_MS
            if transactional_id in self._pending:
                continue
            with suppress(BrokerError):  # if the record cannot be stored now
                if metadata.state is _STATE.ONGOING:
                    self._abort_fenced(metadata, now_ms)
                else:
                    self._complete(metadata, now_ms)
        if self._expiry_check_ms is not None and self._expiry_check_ms <= now_ms:
            self._expire(now_ms)

    def markers_replicated(self, now_ms: int) -> None:
        """Complete the transactions whose markers are in all their partitions now."""
        for metadata in list(self._transactions.values()):
            if metadata.state.is_preparing and metadata.transactional_id not in self._pending:
                self._complete(metadata, now_ms)

    def load(self, records: Iterable[Record], now_ms: int) -> None:
        """Replace the state with the stored records.

        Prepared transactions are completed, so their markers are written again. Ongoing transactions
        continue, and their time-out runs from their start.
        """
        self._transactions.clear()
        self._deadlines_ms.clear()
        for key, value in records:
            if (record := from_record(key, value)) is not None:
                self._know(*record)
        for metadata in list(self._transactions.values()):
            if metadata.state.is_preparing:
                self._complete(metadata, now_ms)
        self._expiry_check_ms = now_ms + EXPIRY_CHECK_INTERVAL_MS if self._transactions else None

    def _expire(self, now_ms: int) -> None:
        for metadata in list(self._transactions.values()):
            is_old = metadata.last_update_ms <= now_ms - self._expiration_ms
            if is_old and metadata.may_expire and metadata.transactional_id not in self._pending:
                with suppress(BrokerError):
                    self._store(*tombstone(metadata.transactional_id))
                    self._know(metadata.transactional_id, None)
        self._expiry_check_ms = now_ms + EXPIRY_CHECK_INTERVAL_MS if self._transactions else None

    # Transitions

    def unreplicated(self, transactional_id: str) -> Write | None:
        """Return what has to be replicated before a change of the transaction is answered, None if all is."""
        return self._pending.get(transactional_id)

    def _check_not_preparing(self, metadata: TransactionMetadata) -> None:
        if metadata.state.is_preparing or metadata.transactional_id in self._pending:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _find(self, transactional_id: str) -> TransactionMetadata:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if transactional_id not in self._transactions:
            is_new = transactional_id in self._pending
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS if is_new else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            )
        return self._transactions[transactional_id]

    def _put(self, metadata: TransactionMetadata, then: Callable[[int], None] = lambda now_ms: None) -> None:
        """Store the metadata; make it current, and go on with `then(now_ms)`, when it is replicated.

        If it is not in time, the old one stays current (TransactionStateManager.appendTransactionToLog).
        """
        write = self._store(*to_record(metadata, min(self.transaction_version, 1)))
        if self._expiry_check_ms is None:
            self._expiry_check_ms = metadata.last_update_ms + EXPIRY_CHECK_INTERVAL_MS
        transactional_id = metadata.transactional_id

        def decided(code: ErrorCode, now_ms: int) -> None:
            self._pending.pop(transactional_id, None)
            if code == ErrorCode.NONE:
                self._know(transactional_id, metadata)
                then(now_ms)

        if write is None:
            decided(ErrorCode.NONE, metadata.last_update_ms)
        else:
            self._pending[transactional_id] = write
            write.then(decided, timeout_ms=metadata.timeout_ms)

    def _know(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        self._deadlines_ms.pop(transactional_id, None)
        if metadata is None:
            self._transactions.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = metadata
        if metadata.state is _STATE.ONGOING:
            self._deadlines_ms[transactional_id] = metadata.start_ms + metadata.timeout_ms
        elif metadata.state.is_preparing:
            self._deadlines_ms[transactional_id] = metadata.last_update_ms + RETRY_MS

    def _abort_fenced(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Abort without the producer's request, with an epoch above its own (PrepareEpochFence)."""
        if self.transaction_version >= 2:
            self._decide(metadata, False, 2, now_ms)
        else:
            self._decide(metadata.fenced(), False, 0, now_ms)

    def _decide(
        self, metadata: TransactionMetadata, commit: bool, transaction_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Decide the transaction, write the markers that can be written, and return the decided metadata."""
        next_id = NO_PRODUCER_ID
        if transaction_version >= 2 and metadata.is_epoch_exhausted:
            next_id = self._next_producer_id()
        prepared = metadata.prepared(commit, transaction_version, next_id, now_ms)
        self._put(prepared, lambda now_ms: self._complete(prepared, now_ms))
        return prepared

    def _complete(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Write the outstanding markers; after the last one, complete the transaction."""
        remaining = self._remaining_markers(metadata)
        transactional_id = metadata.transactional_id
        self._transactions[transactional_id] = metadata.without_markers_for(remaining)
        self._deadlines_ms[transactional_id] = now_ms + RETRY_MS
        if not remaining:
            with suppress(BrokerError):  # the decision stands; it is stored later
                self._put(metadata.completed(now_ms))

    def _remaining_markers(self, metadata: TransactionMetadata) -> list[TopicPartition]:
        if not metadata.partitions:
            return []
        return self._write_markers(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is _STATE.PREPARE_COMMIT,
            self._coordinator_epoch(),
            sorted(metadata.partitions),
            metadata.client_transaction_version,
        )


def _check_producer(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if metadata.producer_id != producer_id:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer_epoch:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)


def _may_go_on(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """True if InitProducerId may come from this producer; its epoch is checked later.

    That is so if the transactional id is new here (it expired), or if a retry of the request that brought a
    new producer id still names the old one.
    """
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == metadata.producer_id
        or (producer_id == metadata.previous_producer_id and is_epoch_exhausted(producer_epoch))
    )


def _end_txn_v2(
    metadata: TransactionMetadata, producer_id: int, producer_epoch: int, commit: bool
) -> EndTxnAnswer:
    """Return what EndTxn of TV2 must do, from END_TXN_V2; raise BrokerError for another producer."""
    is_retry_on_overflow = (
        metadata.previous_producer_id == producer_id
        and producer_epoch == MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer_id and not is_retry_on_overflow:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_retry_on_overflow or metadata.producer_epoch == producer_epoch + 1
    if not is_retry and metadata.producer_epoch != producer_epoch:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)
    answer = END_TXN_V2.get((metadata.state, commit, is_retry))
    if answer is None:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)  # in EMPTY and ONGOING nothing has been ended yet
    return answer


def check_identity(producer_id: int, producer_epoch: int) -> None:
    """Raise BrokerError INVALID_REQUEST for an id without an epoch, or an epoch without an id."""
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST)


def unknown_states(names: Iterable[str]) -> list[str]:
    """Return the names that are no states of transactions."""
    known = {str(state) for state in TransactionState}
    return [name for name in names if name not in known]


def compiled_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Return a pattern of ListTransactions, None for all; raise BrokerError INVALID_REGULAR_EXPRESSION."""
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:  # too long a repetition, too deep a nesting
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}.",
        ) from error
