"""The surroundings of a transaction coordinator under test, and producers in known states."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.transactions.transaction_coordinator import TransactionCoordinator
from kbatch.testing.broker.transactions.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
    from_record,
    to_record,
)

NOW, TIMEOUT = 1_000_000, 60_000
ID, EPOCH, NEW_ID = 1_000, 5, 2_000
TOPIC = ("orders", 0)
OTHER = ("orders", 1)

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
PREPARED_STATES = (PREPARE_COMMIT, PREPARE_ABORT)
STORED_STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]

MAPPING, FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
ABORTABLE, NONE = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE


class Cluster:
    """The surroundings of a coordinator: a log, partitions that take markers or not, producer ids."""

    def __init__(self, transaction_version: int = 2, **options: int) -> None:
        self.transaction_version = transaction_version
        self.options = options
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: list[tuple[Any, ...]] = []
        self.without_leader: set[tuple[str, int]] = set()
        self.store_error: ErrorCode | None = None
        self.ids = count(NEW_ID)
        self.coordinator = self.start()

    def start(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            lambda: next(self.ids),
            self.store,
            self.write_markers,
            transaction_version=self.transaction_version,
            coordinator_epoch=lambda: 9,
            **self.options,
        )

    def restart(self, now_ms: int = NOW) -> TransactionCoordinator:
        self.coordinator = self.start()
        self.coordinator.load(list(self.log), now_ms)
        return self.coordinator

    def put(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Load this state into the coordinator, as after a restart, without what is never stored."""
        self.log = [to_record(metadata, 1)]
        self.restart()
        known = replace(self.known(), last_producer_epoch=metadata.last_producer_epoch)
        self.coordinator._transactions[metadata.transactional_id] = known
        self.log.clear()
        self.markers.clear()
        return known

    def store(self, key: bytes, value: bytes | None) -> None:
        if self.store_error is not None:
            raise BrokerError(self.store_error)
        self.log.append((key, value))

    def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        partitions: list[tuple[str, int]],
        transaction_version: int,
    ) -> list[tuple[str, int]]:
        assert partitions
        for each in partitions:
            if each not in self.without_leader:
                self.markers.append(
                    (each, producer_id, producer_epoch, commit, coordinator_epoch, transaction_version)
                )
        return [each for each in partitions if each in self.without_leader]

    def known(self, transactional_id: str = "tx") -> TransactionMetadata:
        return self.coordinator.describe(transactional_id)

    def stored(self) -> list[TransactionMetadata | None]:
        return [record[1] for key, value in self.log if (record := from_record(key, value)) is not None]

    def stored_states(self) -> list[TransactionState | None]:
        return [None if metadata is None else metadata.state for metadata in self.stored()]

    # Requests of one producer, shortened

    def init(self, producer_id: int = -1, epoch: int = -1, now_ms: int = NOW) -> tuple[int, int]:
        return self.coordinator.init_producer_id("tx", TIMEOUT, producer_id, epoch, now_ms)

    def add(self, producer_id: int, epoch: int, *partitions: tuple[str, int], now_ms: int = NOW) -> None:
        self.coordinator.add_partitions("tx", producer_id, epoch, partitions, now_ms)

    def end(
        self, producer_id: int, epoch: int, commit: bool, *, tv2: bool = True, now_ms: int = NOW
    ) -> tuple[int, int]:
        return self.coordinator.end_txn("tx", producer_id, epoch, commit, tv2, now_ms)


def in_state(state: TransactionState, **changes: Any) -> TransactionMetadata:
    """Return a producer with id 1000, epoch 5, last epoch 4, and previous id 900."""
    has_partitions = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    metadata = TransactionMetadata(
        "tx",
        ID,
        TIMEOUT,
        NOW,
        producer_epoch=EPOCH,
        last_producer_epoch=EPOCH - 1,
        previous_producer_id=900,
        state=state,
        partitions=frozenset({TOPIC}) if has_partitions else frozenset(),
        start_ms=-1 if state is EMPTY else NOW,
        client_transaction_version=2,
    )
    return replace(metadata, **changes)


def initialized(transaction_version: int = 2, **options: int) -> tuple[Cluster, tuple[int, int]]:
    """Return a coordinator, and id and epoch of the producer of "tx"."""
    cluster = Cluster(transaction_version, **options)
    return cluster, cluster.init()


def loaded(metadata: TransactionMetadata, transaction_version: int = 2, **options: int) -> Cluster:
    """Return a coordinator that has loaded this state."""
    cluster = Cluster(transaction_version, **options)
    cluster.put(metadata)
    return cluster
