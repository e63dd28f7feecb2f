"""Groups as they are stored, by the bytes that Kafka's own classes made, and the table of their states."""

from __future__ import annotations

import pytest

from kbatch.errors import ProtocolError
from kbatch.testing.broker.coordinator_records import coordinator_partition, key_partition
from kbatch.testing.broker.groups.classic_group import (
    NEXT_STATES,
    Group,
    GroupState,
    Member,
    from_record,
    to_record,
)
from tests.unit.testing.broker.groups.harness import subscription

KEY = "00020001" + b"g".hex()
EMPTY_VALUE = "0003000000000000ffffffff00000000000003e800000000"
STABLE_VALUE = (
    "00030008636f6e73756d657200000002000572616e676500026d3100000000000003e80000000100026d310002693100"
    "0163000a2f3132372e302e302e310000ea60000027100000000201020000000103"
)


def stable_group() -> Group:
    group = Group("g", 500)
    member = Member("m1", "i1", "c", "/127.0.0.1", 60_000, 10_000, (("sticky", b""), ("range", b"\x01\x02")))
    group.add(member, "consumer")
    group.generation_id = 2
    group.protocol_name = "range"
    group.state = GroupState.STABLE
    group.state_since_ms = 1_000
    return group


def test_records_are_byte_for_byte_those_of_kafka() -> None:
    key, value = to_record(stable_group(), {"m1": b"\x03"})
    assert value is not None and (key.hex(), value.hex()) == (KEY, STABLE_VALUE)
    key, value = to_record(Group("g", 1_000), {})
    assert value is not None and (key.hex(), value.hex()) == (KEY, EMPTY_VALUE)
    assert Group("g", 1_000).tombstones() == [(key, None)]
    assert key_partition(key, 50) == coordinator_partition("g", 50)


def test_a_stored_group_is_loaded_as_it_was() -> None:
    loaded = from_record(bytes.fromhex(KEY), bytes.fromhex(STABLE_VALUE), 5_000)
    assert loaded is not None and loaded[0] == "g"
    group = loaded[1]
    assert group is not None
    assert (group.state, group.state_since_ms, group.generation_id) == (GroupState.STABLE, 1_000, 2)
    assert (group.protocol_type, group.protocol_name, group.leader_id) == ("consumer", "range", "m1")
    (member,) = group.members.values()
    # only the protocol in use is stored
    assert member.protocols == (("range", b"\x01\x02"),)
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (60_000, 10_000)
    assert (member.client_id, member.client_host, member.assignment) == ("c", "/127.0.0.1", b"\x03")
    assert group.static_members == {"i1": "m1"}


def test_an_empty_group_and_a_deleted_one_are_loaded() -> None:
    loaded = from_record(bytes.fromhex(KEY), bytes.fromhex(EMPTY_VALUE), 5_000)
    assert loaded is not None and loaded[1] is not None
    assert (loaded[1].state, loaded[1].protocol_type, loaded[1].leader_id) == (GroupState.EMPTY, None, None)
    assert from_record(bytes.fromhex(KEY), None, 5_000) == ("g", None)


def test_older_records_have_neither_time_nor_rebalance_timeout() -> None:
    value = bytes.fromhex("0000") + bytes.fromhex(
        "0008636f6e73756d657200000002000572616e676500026d310000000100026d31000163000a2f3132372e302e302e31"
        "000027100000000201020000000103"
    )
    loaded = from_record(bytes.fromhex(KEY), value, 5_000)
    assert loaded is not None and loaded[1] is not None
    assert loaded[1].state_since_ms is None
    assert loaded[1].members["m1"].rebalance_timeout_ms == 10_000
    assert loaded[1].retention_start_ms(77) is None, "its subscription cannot be read"


def test_other_key_types_are_skipped_and_broken_ones_refused() -> None:
    assert from_record(bytes.fromhex("0001000167"), None, 0) is None
    for key, value in [(b"\x00", None), (bytes.fromhex(KEY)[:-1], None), (bytes.fromhex(KEY), b"\x00\x03")]:
        with pytest.raises(ProtocolError):
            from_record(key, value, 0)


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription("orders", "other"), {"orders", "other"}),
        (subscription(), set()),
        # a version to come begins as the known ones do, and these are all the fields of version 3
        (b"\x00\x09" + subscription("orders")[2:] + bytes.fromhex("ffffffffffff"), {"orders"}),
        (b"", None),
        (b"\xff\xff", None),
        (subscription("orders")[:-1], None),
    ],
)
def test_subscriptions_are_read_from_the_metadata_of_consumers(
    metadata: bytes, topics: set[str] | None
) -> None:
    group = Group("g", 0)
    group.add(Member("m", None, "c", "h", 1, 1, (("range", metadata),)), "consumer")
    group.protocol_name = "range"
    group.update_subscribed_topics()
    assert group.subscribed_topics == topics
    assert group.is_subscribed_to("orders") == (topics is None or "orders" in topics)


def test_the_next_states_are_those_of_kafka() -> None:
    empty, preparing, completing = (
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
    )
    stable, dead = GroupState.STABLE, GroupState.DEAD
    expected = {
        empty: {preparing, dead},
        preparing: {completing, empty, dead},
        completing: {stable, preparing, dead},
        stable: {preparing, dead},
        dead: set(),
    }
    assert expected == NEXT_STATES
