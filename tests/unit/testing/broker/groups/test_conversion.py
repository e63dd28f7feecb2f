"""Members of both protocols in one group, and groups that change their protocol (KIP-848)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import TOPIC, VirtualBroker
from tests.unit.testing.broker.group_clients import (
    LEAVE_STATIC,
    NONE,
    ClassicMember,
    Member,
    cluster,
    described,
    joined,
    settle,
)

REBALANCING, UNKNOWN = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID
INCONSISTENT, NOT_FOUND = ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND


def group_type(broker: VirtualBroker) -> str:
    (group,) = broker.client().ask(messages.ListGroupsRequest()).groups
    return str(group.group_type)


def stable_classic(broker: VirtualBroker, **fields: Any) -> ClassicMember:
    """Return the only member of a classic group, which owns all four partitions."""
    member = ClassicMember(broker, **fields)
    assert (member.join(), member.sync(range(4)), member.owned) == (NONE, NONE, [0, 1, 2, 3])
    return member


def shared(broker: VirtualBroker) -> tuple[ClassicMember, Member]:
    """Return a classic member and one of the new protocol, with two partitions each."""
    classic, member = stable_classic(broker), Member(broker, "a")
    assert member.join() == NONE
    for _ in range(2):
        assert (classic.beat(), classic.join(), classic.sync()) == (REBALANCING, NONE, NONE)
    assert (classic.beat(), member.beat()) == (NONE, NONE)
    assert (classic.owned, member.indexes) == ([0, 1], [2, 3])
    return classic, member


def test_classic_group_becomes_a_consumer_group_and_back() -> None:
    broker = cluster()
    classic, member = shared(broker)
    group = described(broker)
    assert (group.group_state, [each.member_type for each in group.members]) == ("Stable", [0, 1])
    assert member.leave() == NONE
    assert group_type(broker) == "classic"
    assert classic.beat() == REBALANCING
    assert (classic.join(), classic.sync(range(4)), classic.beat()) == (NONE, NONE, NONE)


def test_waiting_members_join_again_when_their_group_is_upgraded() -> None:
    broker = cluster()
    stable_classic(broker)
    waiting = ClassicMember(broker)
    assert waiting.join() is None
    member = Member(broker, "a")
    assert member.join() == NONE
    assert waiting.joined() == REBALANCING


def test_restarted_broker_knows_members_of_both_protocols(tmp_path: Path) -> None:
    broker = cluster(directory=tmp_path)
    classic, member = shared(broker)
    before = described(broker)
    broker.state.close()
    again = VirtualBroker(topics=(), directory=tmp_path)
    assert described(again) == before
    classic.broker = member.broker = again
    assert (classic.beat(), member.beat()) == (NONE, NONE)
    member.leave()
    again.state.close()
    classic.broker = VirtualBroker(topics=(), directory=tmp_path)
    assert group_type(classic.broker) == "classic"
    assert (classic.join(), classic.sync(range(4))) == (NONE, NONE)


def test_classic_member_leaves_partitions_to_the_new_protocol() -> None:
    broker = cluster()
    classic, member = shared(broker)
    assert classic.leave() == NONE
    assert (member.beat(), member.indexes, group_type(broker)) == (NONE, [0, 1, 2, 3], "consumer")
    assert classic.beat() == UNKNOWN


def test_classic_members_session_is_its_own() -> None:
    broker = cluster()
    classic, member = shared(broker)
    broker.advance(9_999)
    assert classic.beat() == NONE
    broker.advance(10_000)
    assert classic.beat() == UNKNOWN
    assert (member.beat(), member.indexes) == (NONE, [0, 1, 2, 3])


@pytest.mark.parametrize("stops", ["before joining", "before its assignment"])
def test_classic_member_that_does_not_rejoin_is_removed(stops: str) -> None:
    broker = cluster()
    classic, member = stable_classic(broker), Member(broker, "a")
    member.join()
    assert classic.beat() == REBALANCING
    if stops == "before its assignment":
        assert classic.join() == NONE
    for _ in range(3):
        classic.beat()
        member.beat()
        broker.advance(9_000)
    assert classic.beat() in (REBALANCING, NONE)
    broker.advance(3_000)
    assert classic.beat() == UNKNOWN
    assert (member.beat(), member.indexes) == (NONE, [0, 1, 2, 3])


def test_static_members_change_protocol_with_their_partitions() -> None:
    broker, first, second = joined("a=one", "b=two")
    settle(first, second)
    classic = [ClassicMember(broker, name) for name in ("one", "two")]
    assert (classic[0].join(), classic[0].sync(), classic[0].owned) == (NONE, NONE, [0, 1])
    assert (first.beat(), group_type(broker)) == (ErrorCode.FENCED_INSTANCE_ID, "consumer")
    assert (classic[1].join(), classic[1].sync(), classic[1].owned) == (NONE, NONE, [2, 3])
    assert (group_type(broker), classic[0].beat()) == ("classic", NONE)
    back = Member(broker, "c", instance_id="one")
    assert (back.join(), back.indexes, group_type(broker)) == (NONE, [0, 1], "consumer")
    assert back.leave(LEAVE_STATIC) == NONE
    assert classic[0].join() == ErrorCode.FENCED_INSTANCE_ID
    assert ClassicMember(broker, "one").join() == NONE, "one that is away is replaced too"


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_migration_policy_says_which_groups_change(policy: str) -> None:
    broker = cluster(group_consumer_migration_policy=policy)
    classic, member = stable_classic(broker), Member(broker, "a")
    upgrades = policy in ("upgrade", "bidirectional")
    assert member.join() == (NONE if upgrades else NOT_FOUND)
    assert group_type(broker) == ("consumer" if upgrades else "classic")
    classic.leave()
    member.join()
    assert group_type(broker) == "consumer"
    classic = ClassicMember(broker)
    assert classic.join() == (INCONSISTENT if policy == "disabled" else NONE)
    if policy != "disabled":
        member.leave()
        assert group_type(broker) == ("classic" if policy in ("downgrade", "bidirectional") else "consumer")


def test_groups_larger_than_the_other_protocol_has_stay() -> None:
    broker = cluster(group_max_size=1, group_consumer_max_size=3)
    member, classic = Member(broker, "a"), [ClassicMember(broker) for _ in range(2)]
    assert [member.join(), *(each.join() for each in classic)] == [NONE, NONE, NONE]
    member.leave()
    assert group_type(broker) == "consumer"
    assert ClassicMember(broker).join() == NONE
    assert ClassicMember(broker).join() == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("metadata", [b"", b"\0\1\0\0\0\5", b"\0\1"])
def test_group_without_a_readable_subscription_is_not_upgraded(metadata: bytes) -> None:
    broker = cluster()
    ClassicMember(broker, metadata=metadata).join()
    assert Member(broker, "a").join() == NOT_FOUND
    assert group_type(broker) == "classic"


def test_group_of_a_custom_assignor_is_not_upgraded() -> None:
    broker = cluster()
    classic = ClassicMember(broker)
    classic.join()
    classic.sync([0], user_data=b"mine")
    assert Member(broker, "a").join() == NOT_FOUND
    assert classic.beat() == NONE


def test_classic_requests_of_other_members_are_refused() -> None:
    broker = cluster()
    classic, member = shared(broker)
    stranger = ClassicMember(broker)
    stranger.member_id, stranger.epoch = "a", member.epoch
    assert (stranger.beat(), stranger.sync()) == (UNKNOWN, UNKNOWN)
    classic.epoch += 1
    assert (classic.beat(), classic.sync()) == (ErrorCode.ILLEGAL_GENERATION,) * 2
    assert ClassicMember(broker).join(protocol_type="connect") == INCONSISTENT
    assert ClassicMember(broker, metadata=b"\0\1\0\0\0\5").join() == ErrorCode.UNKNOWN_SERVER_ERROR
    assert stranger.leave() == NONE, "tools remove members of any protocol"


def test_commits_of_classic_members_name_their_generation() -> None:
    broker = cluster()
    classic, member = shared(broker)
    named: dict[str, Any] = {"member_id": classic.member_id}
    for generation, code in [(classic.epoch, NONE), (1, NONE), (9, ErrorCode.ILLEGAL_GENERATION)]:
        assert member.commit(index=0, generation_id_or_member_epoch=generation, **named) == code
    old = {"generation_id_or_member_epoch": 1, **named}
    assert member.commit(index=3, **old) == ErrorCode.ILLEGAL_GENERATION, "it is the other's"
    assert broker.state.coordinators.of_group("group").live.offsets.fetch("group", None)[TOPIC, 0].offset == 1
