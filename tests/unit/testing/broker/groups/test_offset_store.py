"""Committed offsets: permission, transactions, fetches and expiry. Expectations are those of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbatch.errors import ErrorCode, ProtocolError
from kbatch.testing.broker.coordinator_records import coordinator_partition, key_partition
from kbatch.testing.broker.groups.offset_store import (
    RETENTION_CHECK_INTERVAL_MS,
    CommittedOffset,
    FetchedOffset,
    to_record,
)
from tests.support.broker_core import error_of
from tests.unit.testing.broker.groups.harness import (
    FENCED,
    ID,
    ILLEGAL,
    NO_OFFSET,
    NONE,
    NOW,
    OTHER,
    PRODUCER,
    REBALANCING,
    SESSION,
    T0,
    T1,
    UNKNOWN_MEMBER,
    UNSTABLE,
    Member,
    Offsets,
    subscription,
)

MINUTE = 60_000
OTHER_ID = bytes(15) + b"\x02"


# Permission to commit


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize(
    ("state", "changes", "codes"),
    [
        ("none", {}, (NONE, NONE)),
        ("none", {"generation_id": 0}, (ErrorCode.GROUP_ID_NOT_FOUND, ILLEGAL)),
        ("Empty", {}, (NONE, NONE)),
        ("Empty", {"generation_id": 2}, (UNKNOWN_MEMBER, UNKNOWN_MEMBER)),
        ("Empty", {"member_id": "x"}, (NONE, NONE)),
        ("Stable", {}, (UNKNOWN_MEMBER, NONE)),
        ("Stable", {"member_id": "m"}, (ILLEGAL, ILLEGAL)),
        ("Stable", {"member_id": "m", "generation_id": 2}, (NONE, NONE)),
        ("Stable", {"member_id": "m", "generation_id": 1}, (ILLEGAL, ILLEGAL)),
        ("Stable", {"member_id": "m", "generation_id": 3}, (ILLEGAL, ILLEGAL)),
        ("Stable", {"member_id": "x", "generation_id": 2}, (UNKNOWN_MEMBER, UNKNOWN_MEMBER)),
        ("Stable", {"generation_id": 2}, (UNKNOWN_MEMBER, UNKNOWN_MEMBER)),
        ("Stable", {"member_id": "s", "generation_id": 2, "group_instance_id": "i"}, (NONE, NONE)),
        ("Stable", {"member_id": "m", "generation_id": 2, "group_instance_id": "i"}, (FENCED, FENCED)),
        (
            "Stable",
            {"member_id": "m", "generation_id": 2, "group_instance_id": "j"},
            (UNKNOWN_MEMBER, UNKNOWN_MEMBER),
        ),
        ("Stable", {"group_instance_id": "i"}, (FENCED, FENCED)),
        ("PreparingRebalance", {"member_id": "m", "generation_id": 2}, (NONE, NONE)),
        ("CompletingRebalance", {"member_id": "m", "generation_id": 3}, (REBALANCING, NONE)),
        ("CompletingRebalance", {"member_id": "m", "generation_id": 2}, (ILLEGAL, ILLEGAL)),
        ("CompletingRebalance", {}, (UNKNOWN_MEMBER, NONE)),
    ],
)
def test_permission_to_commit(
    state: str, changes: dict[str, Any], codes: tuple[ErrorCode, ErrorCode], is_transactional: bool
) -> None:
    cluster = Offsets()
    member, static = Member(cluster, "a"), Member(cluster, "b", group_instance_id="i")
    if state != "none":
        cluster.stable(member, static)
    if state == "Empty":
        member.leave()
        static.leave()
    if state in ("PreparingRebalance", "CompletingRebalance"):
        member.join()
    if state == "CompletingRebalance":
        static.join()
    if state != "none":
        assert cluster.state == state
    ids = {"m": member.member_id, "s": static.member_id}
    if "member_id" in changes:
        changes = {**changes, "member_id": ids.get(changes["member_id"], changes["member_id"])}
    commit = cluster.commit_in_transaction if is_transactional else cluster.commit
    before = len(cluster.log.batches)
    assert commit({T0: 5}, **changes) == codes[is_transactional]
    assert (len(cluster.log.batches) > before) == (codes[is_transactional] == NONE)


def test_missing_group_before_version_9_is_illegal_generation() -> None:
    assert Offsets().commit({T0: 5}, generation_id=1, version=8) == ILLEGAL


def test_what_old_clients_do_without_a_group_id() -> None:
    cluster = Offsets()
    assert cluster.commit({T0: 5}, "") == NONE
    assert cluster.fetched("") == {T0: 5}
    assert cluster.commit_in_transaction({T0: 5}, "") == ErrorCode.INVALID_GROUP_ID
    assert error_of(lambda: cluster.offsets.delete("", [T0])) == ErrorCode.INVALID_GROUP_ID
    cluster.offsets.delete_group("", NOW)
    assert cluster.fetched("") == {}


def test_a_commit_is_a_sign_of_life() -> None:
    cluster = Offsets()
    member = Member(cluster, "a")
    cluster.stable(member)
    for _ in range(5):
        cluster.pass_time(SESSION - 1)
        committed = cluster.commit({T0: 5}, member_id=member.member_id, generation_id=member.generation_id)
        assert committed == NONE
    assert cluster.state == "Stable"


@pytest.mark.parametrize("is_transactional", [False, True])
def test_metadata_has_a_limit_in_utf_16_units(is_transactional: bool) -> None:
    cluster = Offsets()
    offsets = {
        T0: CommittedOffset(1, metadata="x" * 4_096),
        T1: CommittedOffset(2, metadata="x" * 4_097),
        OTHER: CommittedOffset(3, metadata="\U0001f600" * 2_049),
    }
    if is_transactional:
        codes = cluster.offsets.commit_transactional("g", *PRODUCER, "", -1, offsets, NOW)
        cluster.offsets.complete_transaction(PRODUCER[0], True)
    else:
        codes = cluster.offsets.commit("g", "", -1, offsets, NOW)
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes == {T0: NONE, T1: too_large, OTHER: too_large}
    assert cluster.fetched() == {T0: 1}


def test_nothing_is_stored_where_all_is_too_large() -> None:
    cluster = Offsets(max_metadata_size=1)
    cluster.offsets.commit("g", "", -1, {T0: CommittedOffset(1, metadata="xx")}, NOW)
    assert cluster.log.batches == []


def test_what_is_not_stored_is_not_committed() -> None:
    cluster = Offsets()
    cluster.commit({T0: 1})
    cluster.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.commit({T0: 2}) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.commit_in_transaction({T1: 2}) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(lambda: cluster.offsets.delete("g", [T0])) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.fetched(require_stable=True) == {T0: 1}


# Transactions


@pytest.mark.parametrize("commit", [True, False])
def test_a_transactional_commit_waits_for_its_marker(commit: bool) -> None:
    cluster = Offsets()
    cluster.commit({T0: 1})
    cluster.commit_in_transaction({T0: 5, T1: 6})
    assert cluster.log.batches[-1][1:] == PRODUCER
    wanted = [T0, T1, OTHER]
    assert cluster.offsets.fetch("g", wanted, require_stable=True) == {
        T0: UNSTABLE,
        T1: UNSTABLE,
        OTHER: NO_OFFSET,
    }
    assert cluster.offsets.fetch("g", wanted) == {
        T0: FetchedOffset(offset=1),
        T1: NO_OFFSET,
        OTHER: NO_OFFSET,
    }
    # of all, only what has an offset
    assert cluster.offsets.fetch("g", None, require_stable=True) == {T0: UNSTABLE}
    cluster.offsets.complete_transaction(PRODUCER[0], commit)
    assert cluster.fetched(require_stable=True) == ({T0: 5, T1: 6} if commit else {T0: 1})


def test_a_marker_is_of_one_producer() -> None:
    cluster = Offsets()
    cluster.commit_in_transaction({T0: 5}, producer=(1, 0))
    cluster.commit_in_transaction({T1: 6}, producer=(2, 0))
    cluster.offsets.complete_transaction(2, True)
    cluster.offsets.complete_transaction(3, True)
    assert cluster.fetched() == {T1: 6}
    assert cluster.offsets.fetch("g", [T0], require_stable=True) == {T0: UNSTABLE}


def test_the_offset_stored_last_counts() -> None:
    cluster = Offsets()
    cluster.commit_in_transaction({T0: 5, T1: 5})
    cluster.commit({T0: 9})
    cluster.commit_in_transaction({T1: 7})
    cluster.offsets.complete_transaction(PRODUCER[0], True)
    assert cluster.fetched() == {T0: 9, T1: 7}


# Fetching


def test_what_is_fetched_is_what_was_committed() -> None:
    cluster = Offsets()
    offset = CommittedOffset(5, leader_epoch=3, metadata="m")
    cluster.offsets.commit("g", "", -1, {T0: offset}, NOW)
    assert cluster.offsets.fetch("g", [T0, T1]) == {T0: FetchedOffset(NONE, 5, 3, "m"), T1: NO_OFFSET}
    assert cluster.offsets.fetch("h", [T0]) == {T0: NO_OFFSET}
    assert cluster.offsets.fetch("h", None) == {}


@pytest.mark.parametrize(
    ("committed_id", "topic_id", "is_seen"),
    [
        (ID, ID, True),
        (ID, OTHER_ID, False),
        (bytes(16), ID, True),
        (ID, bytes(16), True),
        (ID, None, True),
    ],
)
def test_an_offset_of_a_topic_made_anew_is_not_seen(
    committed_id: bytes, topic_id: bytes | None, is_seen: bool
) -> None:
    cluster = Offsets()
    cluster.offsets.commit("g", "", -1, {T0: CommittedOffset(5, topic_id=committed_id)}, NOW)
    topic_ids = {} if topic_id is None else {"orders": topic_id}
    expected = FetchedOffset(offset=5) if is_seen else NO_OFFSET
    assert cluster.offsets.fetch("g", [T0], topic_ids=topic_ids) == {T0: expected}
    assert cluster.offsets.fetch("g", None, topic_ids=topic_ids) == ({T0: expected} if is_seen else {})


# Deleting


def test_deleting_takes_pending_offsets_along() -> None:
    cluster = Offsets()
    cluster.commit({T0: 1})
    cluster.commit_in_transaction({T0: 5, T1: 6})
    assert cluster.offsets.delete("g", [T0, OTHER]) == {T0: NONE, OTHER: NONE}
    assert cluster.log.batches[-1] == ([to_record("g", T0, None)], -1, -1)
    cluster.offsets.complete_transaction(PRODUCER[0], True)
    assert cluster.fetched() == {T1: 6}


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        (
            {"protocols": (("range", subscription("orders")),)},
            {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: NONE},
        ),
        ({"protocols": (("range", subscription()),)}, {T0: NONE, OTHER: NONE}),
        (
            {"protocols": (("range", b"\x00"),)},
            {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
        ),
        ({"protocol_type": "connect"}, ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_offsets_that_members_use_are_not_deleted(fields: dict[str, Any], answer: Any) -> None:
    cluster = Offsets()
    cluster.commit({T0: 1, OTHER: 2})
    cluster.stable(Member(cluster, "a", **fields))
    assert error_of(lambda: cluster.offsets.delete("g", [T0, OTHER])) == answer
    kept = {T0: 1, OTHER: 2}
    if isinstance(answer, dict):
        kept = {each: n for each, n in kept.items() if answer[each] != NONE}
    assert cluster.fetched() == kept


def test_a_missing_group_has_nothing_to_delete() -> None:
    cluster = Offsets()
    assert error_of(lambda: cluster.offsets.delete("g", [T0])) == ErrorCode.GROUP_ID_NOT_FOUND
    refusal = error_of(lambda: cluster.offsets.delete_group("g", NOW))
    assert refusal == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_with_all_its_offsets() -> None:
    cluster = Offsets()
    member = Member(cluster, "a")
    cluster.stable(member)
    cluster.commit({T0: 1}, member_id=member.member_id, generation_id=1)
    cluster.commit_in_transaction({T1: 5})
    refusal = error_of(lambda: cluster.offsets.delete_group("g", NOW))
    assert refusal == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    cluster.offsets.delete_group("g", NOW)
    tombstones, _, _ = cluster.log.batches[-2]
    assert sorted(tombstones) == sorted([to_record("g", T0, None), to_record("g", T1, None)])
    cluster.offsets.complete_transaction(PRODUCER[0], True)
    assert cluster.fetched() == {}
    assert cluster.coordinator.list_groups() == []


def test_the_offsets_of_deleted_topics_go() -> None:
    cluster = Offsets()
    committed = {
        T0: CommittedOffset(1, topic_id=ID),
        T1: CommittedOffset(2, topic_id=OTHER_ID),
        OTHER: CommittedOffset(3),
    }
    cluster.offsets.commit("g", "", -1, committed, NOW)
    cluster.offsets.commit("h", "", -1, {T0: CommittedOffset(4)}, NOW)
    cluster.commit_in_transaction({("orders", 2): 5})
    cluster.offsets.topics_deleted({"orders": ID})
    cluster.offsets.complete_transaction(PRODUCER[0], True)
    assert (cluster.fetched("g"), cluster.fetched("h")) == ({T1: 2, OTHER: 3}, {})


def test_offsets_of_deleted_topics_stay_without_a_coordinator() -> None:
    """Kafka logs that they could not be deleted; the topic is deleted all the same."""
    cluster = Offsets()
    for group in ("g", "h"):
        cluster.offsets.commit(group, "", -1, {T0: CommittedOffset(1, topic_id=ID)}, NOW)
    cluster.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.offsets.topics_deleted({"orders": ID})
    assert (cluster.fetched("g"), cluster.fetched("h")) == ({T0: 1}, {T0: 1})


# Retention


def test_offsets_of_a_simple_consumer_expire_by_their_commit() -> None:
    cluster = Offsets(retention_ms=30 * MINUTE)
    cluster.commit({T0: 1, T1: 1})
    cluster.expire(10 * MINUTE)
    cluster.commit({T1: 2})
    cluster.expire(20 * MINUTE - 1)
    assert cluster.fetched() == {T0: 1, T1: 2}
    cluster.expire(10 * MINUTE)
    assert cluster.fetched() == {T1: 2}
    assert cluster.log.records[-1] == to_record("g", T0, None)
    cluster.expire(10 * MINUTE)
    assert cluster.fetched() == {}
    assert cluster.coordinator.list_groups() == []
    assert cluster.offsets.next_deadline_ms() is None


def test_offsets_of_a_group_expire_when_it_is_empty_for_so_long() -> None:
    cluster = Offsets(retention_ms=30 * MINUTE)
    member = Member(cluster, "a", protocols=(("range", subscription("orders")),))
    cluster.stable(member)
    cluster.commit({T0: 1, OTHER: 2}, member_id=member.member_id, generation_id=1)
    cluster.expire(40 * MINUTE)
    assert cluster.fetched() == {T0: 1}, "what members are subscribed to stays"
    member.leave()
    cluster.expire(30 * MINUTE - 1)
    assert cluster.fetched() == {T0: 1}
    cluster.expire(10 * MINUTE)
    assert cluster.fetched() == {}


@pytest.mark.parametrize("protocol", [{"protocol_type": "connect"}, {"protocols": (("range", b""),)}])
def test_offsets_of_members_whose_topics_are_unknown_stay(protocol: dict[str, Any]) -> None:
    cluster = Offsets(retention_ms=MINUTE)
    member = Member(cluster, "a", **protocol)
    cluster.stable(member)
    cluster.commit({T0: 1}, member_id=member.member_id, generation_id=1)
    cluster.expire(100 * MINUTE)
    assert cluster.fetched() == {T0: 1}


def test_a_client_may_set_the_retention_of_a_commit() -> None:
    cluster = Offsets(retention_ms=30 * MINUTE)
    cluster.commit({T0: 1}, retention_ms=11 * MINUTE)
    cluster.commit({T1: 2}, retention_ms=90 * MINUTE)
    cluster.restart()
    cluster.expire(10 * MINUTE)
    assert cluster.fetched() == {T0: 1, T1: 2}
    cluster.expire(80 * MINUTE - 1)
    assert cluster.fetched() == {T1: 2}
    cluster.expire(10 * MINUTE)
    assert cluster.fetched() == {}


def test_offset_with_pending_commit_keeps_its_group() -> None:
    cluster = Offsets(retention_ms=MINUTE)
    cluster.commit({T0: 1})
    cluster.commit_in_transaction({T0: 5})
    cluster.commit_in_transaction({T0: 5}, "h")
    cluster.expire(100 * MINUTE)
    assert cluster.fetched() == {T0: 1}
    assert [group.group_id for group in cluster.coordinator.list_groups()] == ["g", "h"]
    cluster.offsets.complete_transaction(PRODUCER[0], False)
    cluster.expire(10 * MINUTE)
    assert cluster.coordinator.list_groups() == []


def test_an_offset_is_kept_for_less_than_its_retention() -> None:
    cluster = Offsets(retention_ms=20 * MINUTE)
    cluster.commit({T0: 1})
    cluster.expire(10 * MINUTE)
    cluster.expire(10 * MINUTE - 1)
    assert cluster.fetched() == {T0: 1}
    cluster = Offsets(retention_ms=20 * MINUTE)
    cluster.commit({T0: 1})
    cluster.expire(20 * MINUTE)
    assert cluster.fetched() == {}


def test_retention_is_looked_at_now_and_then() -> None:
    cluster = Offsets(retention_ms=0)
    assert cluster.offsets.next_deadline_ms() is None
    cluster.commit({T0: 1})
    assert cluster.offsets.next_deadline_ms() == NOW + RETENTION_CHECK_INTERVAL_MS
    cluster.expire(RETENTION_CHECK_INTERVAL_MS - 1)
    assert cluster.fetched() == {T0: 1}
    cluster.expire(1)
    assert cluster.fetched() == {}


def test_what_cannot_be_dropped_now_is_dropped_later() -> None:
    cluster = Offsets(retention_ms=MINUTE)
    cluster.commit({T0: 1})
    cluster.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.expire(RETENTION_CHECK_INTERVAL_MS)
    assert cluster.fetched() == {T0: 1}
    cluster.log.error = None
    cluster.expire(RETENTION_CHECK_INTERVAL_MS)
    assert cluster.fetched() == {}


# Committed offsets as they are stored and loaded, and changed in any order. Kafka's own classes made the
# bytes.


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (
            CommittedOffset(
                42, 7, "m", 1_700_000_000_000, topic_id=bytes.fromhex("01".zfill(16) + "02".zfill(16))
            ),
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


def test_restart_keeps_order_of_plain_and_transactional_commits() -> None:
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
