"""Committed offsets as they are stored and loaded, and changed in any order. Kafka's own classes made the
bytes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbatch.errors import ProtocolError
from kbatch.testing.broker.coordinator_records import coordinator_partition, key_partition
from kbatch.testing.broker.offsets import CommittedOffset, FetchedOffset, to_record
from tests.unit.consumer_groups import (
    ID,
    NO_OFFSET,
    NONE,
    NOW,
    OTHER,
    PRODUCER,
    T0,
    T1,
    UNSTABLE,
    Offsets,
)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (
            CommittedOffset(42, 7, "m", 1_700_000_000_000, topic_id=bytes.fromhex("01".zfill(16) +
            "02".zfill(16))),
            "0004000000000000002a00000007026d0000018bcfe5680001001000000000000000010000000000000002",
        ),
        (CommittedOffset(42, -1, "", 5), "0004000000000000002affffffff01000000000000000500"),
        (CommittedOffset(42, 7, "m", 5, 9), "0001000000000000002a00016d00000000000000050000000000000009"),
    ],
)
def test_records_are_byte_for_byte_those_of_kafka(offset: CommittedOffset, value: str) -> None:
    key, stored = to_record("g", ("orders", 3), offset)
    assert key.hex() == "000100016700066f726465727300000003"
    assert stored is not None and stored.hex() == value
    assert to_record("g", ("orders", 3), None) == (key, None)
    assert key_partition(key, 50) == coordinator_partition("g", 50)


def test_a_restart_knows_what_was_stored() -> None:
    cluster = Offsets()
    offset = CommittedOffset(5, leader_epoch=3, metadata="m", topic_id=ID)
    cluster.offsets.commit("g", "", -1, {T0: offset, T1: offset}, NOW)
    cluster.commit({OTHER: 1})
    cluster.offsets.delete("g", [OTHER])
    cluster.restart()
    expected = FetchedOffset(NONE, 5, 3, "m")
    assert cluster.offsets.fetch("g", None) == {T0: expected, T1: expected}
    assert [group.state for group in cluster.coordinator.list_groups()] == ["Empty"]


def test_a_restart_knows_what_was_pending() -> None:
    cluster = Offsets()
    cluster.commit_in_transaction({T0: 1}, producer=(1, 0))
    cluster.commit_in_transaction({T1: 2}, producer=(2, 0))
    cluster.commit_in_transaction({OTHER: 3}, producer=(3, 0))
    cluster.restart(markers=[(2, 1, True), (3, 2, False)])
    assert cluster.fetched() == {T0: 1}
    assert cluster.offsets.fetch("g", [T1, OTHER], require_stable=True) == {T1: NO_OFFSET, OTHER: UNSTABLE}
    cluster.offsets.complete_transaction(3, True)
    assert cluster.fetched() == {T0: 1, OTHER: 3}


def test_a_restart_keeps_the_order_of_plain_and_transactional_commits() -> None:
    cluster = Offsets()
    cluster.commit_in_transaction({T0: 5, T1: 5})
    cluster.commit({T0: 9})
    cluster.restart(markers=[(2, PRODUCER[0], True)])
    assert cluster.fetched() == {T0: 9, T1: 5}


def test_a_broken_record_is_refused() -> None:
    cluster = Offsets()
    key, value = to_record("g", T0, CommittedOffset(1))
    assert value is not None
    for record in [(key[:-1], value), (key, value[:-1]), (key, value + b"\x00"), (b"", None)]:
        with pytest.raises(ProtocolError):
            cluster.offsets.load([record], NOW)


# Anything, in any order


class OffsetsInAnyOrder(RuleBasedStateMachine):
    """Plain and transactional commits, markers, deletions and restarts, against a model that keeps the
    log."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Offsets()
        self.markers: list[tuple[int, int, bool]] = []
        # what the log says: ("plain" or producer id, partition, offset or None)
        self.log: list[tuple[int, tuple[str, int], int | None]] = []
        self.results: dict[int, bool] = {}
        self.next_producer_id = 1

    partitions = st.sampled_from([T0, T1, OTHER])

    @rule(partition=partitions, offset=st.integers(0, 9))
    def commit(self, partition: tuple[str, int], offset: int) -> None:
        assert self.cluster.commit({partition: offset}) == NONE
        self.log.append((-1, partition, offset))

    @rule(partition=partitions, offset=st.integers(0, 9), back=st.integers(0, 1))
    def commit_in_transaction(self, partition: tuple[str, int], offset: int, back: int) -> None:
        producer_id = max(1, self.next_producer_id - back)
        if producer_id not in self.results:
            assert self.cluster.commit_in_transaction({partition: offset}, producer=(producer_id, 0)) == NONE
            self.log.append((producer_id, partition, offset))

    @rule(commit=st.booleans(), back=st.integers(0, 1))
    def end(self, commit: bool, back: int) -> None:
        producer_id = max(1, self.next_producer_id - back)
        if producer_id not in self.results:
            self.cluster.offsets.complete_transaction(producer_id, commit)
            self.results[producer_id] = commit
            self.markers.append((len(self.cluster.log.batches), producer_id, commit))
            self.next_producer_id += 1

    @rule(partition=partitions)
    def delete(self, partition: tuple[str, int]) -> None:
        if self.log:
            self.cluster.offsets.delete("g", [partition])
            self.log.append((-1, partition, None))

    @rule()
    def restart(self) -> None:
        """Each marker between the batches where it was."""
        cluster = self.cluster
        cluster.coordinator = cluster.start()
        cluster.offsets = cluster.start_offsets()
        for index in range(len(cluster.log.batches) + 1):
            for before, producer_id, commit in self.markers:
                if before == index:
                    cluster.offsets.complete_transaction(producer_id, commit)
            if index < len(cluster.log.batches):
                records, producer_id, _ = cluster.log.batches[index]
                cluster.offsets.load(records, cluster.now_ms, producer_id)

    @invariant()
    def what_is_fetched_is_what_the_log_says(self) -> None:
        if not hasattr(self, "cluster"):
            return
        expected: dict[tuple[str, int], int] = {}
        pending: set[tuple[str, int]] = set()
        for producer_id, partition, offset in self.log:
            if offset is None:
                expected.pop(partition, None)
                pending.discard(partition)
            elif producer_id == -1 or self.results.get(producer_id):
                expected[partition] = offset
            elif producer_id not in self.results:
                pending.add(partition)
        assert self.cluster.fetched() == expected
        stable = self.cluster.offsets.fetch("g", [T0, T1, OTHER], require_stable=True)
        unstable = {each for each, fetched in stable.items() if fetched == UNSTABLE}
        assert unstable == pending


TestOffsetsInAnyOrder = OffsetsInAnyOrder.TestCase
TestOffsetsInAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
