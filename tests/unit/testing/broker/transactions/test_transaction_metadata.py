"""The states of transactions by Kafka's names and numbers, and how they are stored; the bytes were made
with Kafka's own classes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbatch.errors import ProtocolError
from kbatch.testing.broker.coordinator_records import coordinator_partition, key_partition
from kbatch.testing.broker.transactions.transaction_metadata import (
    NEXT_STATES,
    TransactionMetadata,
    TransactionState,
    from_record,
    to_record,
    tombstone,
)
from tests.unit.testing.broker.transactions.harness import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Cluster,
)


def test_the_next_states_are_those_of_kafka() -> None:
    between = {EMPTY, ONGOING, PREPARE_ABORT, TransactionState.DEAD}
    assert {
        EMPTY: between,
        ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT},
        PREPARE_COMMIT: {COMPLETE_COMMIT},
        PREPARE_ABORT: {COMPLETE_ABORT},
        COMPLETE_COMMIT: between,
        COMPLETE_ABORT: between,
    } == NEXT_STATES


@pytest.mark.parametrize(
    ("state", "name"),
    [(COMPLETE_COMMIT, "CompleteCommit"), (EMPTY, "Empty"), (PREPARE_ABORT, "PrepareAbort")],
)
def test_states_have_the_names_that_clients_see(state: TransactionState, name: str) -> None:
    assert str(state) == name


# The stored bytes

STORED_KEY = "0000000474782d31"
STORED_V1 = (
    "000100000000000010927fff0000ea600202076f7264657273030000000000000003000000018bcfe5687b"
    "0000018bcfe568000300080000000000001068010800000000000010cc02020002"
)
STORED_V0 = "0000000000000000000700000000ea6000ffffffff0000000000000005ffffffffffffffff"
PREPARED = TransactionMetadata(
    "tx-1",
    4_242,
    60_000,
    1_700_000_000_123,
    producer_epoch=32_767,
    previous_producer_id=4_200,
    next_producer_id=4_300,
    state=PREPARE_COMMIT,
    partitions=frozenset({("orders", 3), ("orders", 0)}),
    start_ms=1_700_000_000_000,
    client_transaction_version=2,
)


def test_records_are_byte_for_byte_those_of_kafka() -> None:
    key, value = to_record(PREPARED, 1)
    assert (key.hex(), value.hex() if value else None) == (STORED_KEY, STORED_V1)
    assert from_record(key, value) == ("tx-1", PREPARED)
    assert tombstone("tx-1") == (bytes.fromhex(STORED_KEY), None)
    assert from_record(*tombstone("tx-1")) == ("tx-1", None)


def test_version_0_has_no_room_for_what_tv2_needs() -> None:
    metadata = TransactionMetadata("tx-1", 7, 60_000, 5, producer_epoch=0, previous_producer_id=6)
    key, value = to_record(metadata, 0)
    assert value is not None and value.hex() == STORED_V0
    assert from_record(key, value) == ("tx-1", replace(metadata, previous_producer_id=-1))


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_feature_level_decides_the_version_of_the_record(level: int, version: int) -> None:
    cluster = Cluster(level)
    cluster.init()
    value = cluster.log[0][1]
    assert value is not None and int.from_bytes(value[:2], "big") == version


def test_other_key_types_are_skipped_and_broken_ones_refused() -> None:
    assert from_record(bytes.fromhex("0007") + b"anything", b"\x00\x00") is None
    for key, value in [(b"\x00", None), (b"\x00\x00\x00\x09a", None), (tombstone("a")[0], b"\x00\x01\x00")]:
        with pytest.raises(ProtocolError):
            from_record(key, value)


# Made with java.lang.String and org.apache.kafka.common.utils.Utils.abs
PARTITIONS_OF_50 = {
    "": 0,
    "a": 47,
    "polygenelubricants": 0,  # hashes to -2^31, which has no absolute value
    "test-group": 12,
    "spark-kbatch-0": 0,
    "äöü": 36,
    "\U0001f600-id": 7,
    "\ud800": 46,
}


@pytest.mark.parametrize(("name", "partition"), PARTITIONS_OF_50.items())
def test_coordinator_partitions_are_those_of_java(name: str, partition: int) -> None:
    assert coordinator_partition(name, 50) == partition


def test_the_partition_of_a_key_is_that_of_its_name() -> None:
    assert key_partition(to_record(PREPARED, 1)[0], 50) == coordinator_partition("tx-1", 50)
    assert key_partition(tombstone("äöü")[0], 50) == 36
