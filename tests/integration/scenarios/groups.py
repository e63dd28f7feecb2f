"""The group coordinator: finding it, classic groups, committed offsets."""

import struct
from typing import Any, NamedTuple

from kbatch.protocol import messages
from tests.integration.scenarios.wire import Wire, scenario, unknown_topic_id
from tests.support.patience import until

GROUP, TRANSACTION, SHARE = 0, 1, 2
# ConsumerProtocolSubscription version 0 without topics, and in front of the length of its user data.
METADATA = struct.pack(">hi", 0, 0)


class Member(NamedTuple):
    """The result of JoinGroup."""

    member_id: str
    generation_id: int


NO_MEMBER = Member("", -1)

# FindCoordinator


@scenario
def find_coordinator_in_each_version(wire: Wire) -> None:
    for version in range(4):
        for key_type in (GROUP,) if version == 0 else (GROUP, TRANSACTION):
            request = messages.FindCoordinatorRequest(key=wire.name, key_type=key_type)
            wire.call(request, version, note=f"type {key_type}")
    for version in range(4, 7):
        for key_type in (GROUP, TRANSACTION):
            request = messages.FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=key_type)
            wire.call(request, version, note=f"type {key_type}")


@scenario
def find_coordinator_refusals(wire: Wire) -> None:
    wire.call(messages.FindCoordinatorRequest(key="k", key_type=9), 3, note="unknown type")
    wire.call(messages.FindCoordinatorRequest(coordinator_keys=["k"], key_type=9), 4, note="unknown type")
    wire.call(messages.FindCoordinatorRequest(coordinator_keys=["k"], key_type=-1), 4, note="negative type")
    wire.call(messages.FindCoordinatorRequest(key="", key_type=GROUP), 3, note="empty group")
    wire.call(messages.FindCoordinatorRequest(key="", key_type=TRANSACTION), 3, note="empty transaction")
    wire.call(messages.FindCoordinatorRequest(coordinator_keys=[], key_type=GROUP), 4, note="no keys")


# Membership


def _join_request(wire: Wire, member_id: str = "", **fields: Any) -> Any:
    kind = messages.JoinGroupRequest
    user_data = fields.pop("user_data", b"")
    metadata = METADATA + struct.pack(">i", len(user_data)) + user_data
    protocols = [
        kind.JoinGroupRequestProtocol(name=name, metadata=metadata)
        for name in fields.pop("protocols", ("range",))
    ]
    usual: dict[str, Any] = {
        "group_id": wire.name,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
    }
    usual |= {"protocol_type": "consumer", "member_id": member_id, "protocols": protocols}
    return kind(**usual | fields)


def _join(wire: Wire, member_id: str = "", *, version: int = 9, note: str = "", **fields: Any) -> Member:
    answer = wire.call(_join_request(wire, member_id, **fields), version, note=note)
    return Member(answer.member_id, answer.generation_id)


def _sync_request(wire: Wire, member: Member, assignments: dict[str, bytes], **fields: Any) -> Any:
    kind = messages.SyncGroupRequest
    entries = [kind.SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()]
    usual: dict[str, Any] = {"group_id": wire.name, "assignments": entries, "protocol_type": "consumer"}
    usual |= {"protocol_name": "range", "member_id": member.member_id, "generation_id": member.generation_id}
    return kind(**usual | fields)


def _heartbeat(wire: Wire, member: Member, *, note: str = "", **fields: Any) -> Any:
    usual: dict[str, Any] = {
        "group_id": wire.name,
        "member_id": member.member_id,
        "generation_id": member.generation_id,
    }
    return wire.call(messages.HeartbeatRequest(**usual | fields), note=note)


def _leave(wire: Wire, *member_ids: str, note: str = "", instance_id: str | None = None) -> Any:
    kind = messages.LeaveGroupRequest
    members = [kind.MemberIdentity(member_id=m, group_instance_id=instance_id) for m in member_ids]
    return wire.call(kind(group_id=wire.name, members=members), note=note)


def _new_member(wire: Wire, **fields: Any) -> Member:
    """Join an empty group as its leader, in two steps (KIP-394)."""
    return _join(wire, _join(wire, **fields).member_id, **fields)


def _stable_member(wire: Wire, **fields: Any) -> Member:
    member = _new_member(wire, **fields)
    wire.call(_sync_request(wire, member, {member.member_id: b"all"}))
    return member


def _describe(wire: Wire, note: str) -> None:
    for version in (4, 6):
        wire.call(messages.DescribeGroupsRequest(groups=[wire.name]), version, note=note)


@scenario
def one_member_joins_syncs_heartbeats_and_leaves(wire: Wire) -> None:
    _describe(wire, "before")
    member = _new_member(wire)
    _describe(wire, "joined")
    wire.call(_sync_request(wire, member, {member.member_id: b"all"}))
    wire.call(_sync_request(wire, member, {}), note="again")
    _heartbeat(wire, member)
    _describe(wire, "stable")
    _leave(wire, member.member_id)
    _heartbeat(wire, member, note="after leaving")
    _describe(wire, "left")
    _new_member(wire)


@scenario
def join_in_each_version(wire: Wire) -> None:
    for version in range(10):
        member = _join(wire, version=version)
        if version >= 4:
            member = _join(wire, member.member_id, version=version)
        _leave(wire, member.member_id)


@scenario
def second_member_makes_the_first_join_again(wire: Wire) -> None:
    first = _stable_member(wire)
    with wire.second_connection() as other:
        second_id = _join(other, note="second").member_id
        other.send(_join_request(wire, second_id, user_data=b"second"))
        until(lambda: wire.ask(_heartbeat_request(wire, first)).error_code != 0)
        _heartbeat(wire, first, note="while a second one joins")
        first = _join(wire, first.member_id, note="the first again")
        answer = other.receive()
        wire.note("second joined", answer)
        other.send(_sync_request(wire, Member(second_id, answer.generation_id), {}))
        wire.call(_sync_request(wire, first, {first.member_id: b"left", second_id: b"right"}))
        wire.note("second synced", other.receive())
        _describe(wire, "two members")
        _leave(other, second_id)
    until(lambda: wire.ask(_heartbeat_request(wire, first)).error_code != 0)
    _heartbeat(wire, first, note="after the second left")
    _join(wire, first.member_id, note="alone again")


def _heartbeat_request(wire: Wire, member: Member) -> Any:
    return messages.HeartbeatRequest(
        group_id=wire.name, member_id=member.member_id, generation_id=member.generation_id
    )


@scenario
def joining_again_unchanged(wire: Wire) -> None:
    member = _stable_member(wire)
    again = _join(wire, member.member_id, note="the leader joins again")
    wire.call(_sync_request(wire, again, {again.member_id: b"new"}))
    _heartbeat(wire, member, note="generation before")
    _heartbeat(wire, again)


@scenario
def join_refusals(wire: Wire) -> None:
    _join(wire, "stranger", note="unknown member")
    _join(wire, group_id="", note="empty group")
    _join(wire, session_timeout_ms=10, note="session too short")
    _join(wire, session_timeout_ms=10_000_000, note="session too long")
    _join(wire, protocols=(), note="no protocols")
    _join(wire, protocol_type="", note="empty protocol type")
    _stable_member(wire)
    _join(wire, protocol_type="connect", note="other protocol type")
    _join(wire, protocols=("other",), note="other protocol")


@scenario
def sync_heartbeat_and_leave_refusals(wire: Wire) -> None:
    stranger = Member("stranger", 1)
    _heartbeat(wire, stranger, note="no group")
    wire.call(_sync_request(wire, stranger, {}), note="no group")
    _leave(wire, "stranger", note="no group")
    member = _stable_member(wire)
    _heartbeat(wire, stranger, note="unknown member")
    _heartbeat(wire, member._replace(generation_id=9), note="other generation")
    _heartbeat(wire, member, group_id="", note="empty group")
    wire.call(_sync_request(wire, stranger, {}), note="unknown member")
    wire.call(_sync_request(wire, member._replace(generation_id=9), {}), note="other generation")
    wire.call(_sync_request(wire, member, {}, protocol_name="other"), note="other protocol")
    wire.call(_sync_request(wire, member, {}, protocol_type="other"), note="other protocol type")
    wire.call(_sync_request(wire, member, {}, protocol_type=None, protocol_name=None), note="no protocol")
    unnamed = _sync_request(wire, member, {}, protocol_type=None, protocol_name=None)
    wire.call(unnamed, 4, note="no protocol, in a version without")
    _leave(wire, "stranger", note="unknown member")
    _leave(wire, member.member_id, "stranger", note="two members")
    _leave(wire, note="nobody")


@scenario
def static_members(wire: Wire) -> None:
    member = _join(wire, group_instance_id="one")
    wire.call(_sync_request(wire, member, {member.member_id: b"all"}, group_instance_id="one"))
    again = _join(wire, group_instance_id="one", note="restarted")
    _heartbeat(wire, member, group_instance_id="one", note="the one before")
    _heartbeat(wire, again, group_instance_id="one")
    _heartbeat(wire, again, group_instance_id="two", note="unknown instance")
    _describe(wire, "static")
    _leave(wire, "", instance_id="two", note="unknown instance")
    _leave(wire, "", instance_id="one")


@scenario
def list_and_delete_groups(wire: Wire) -> None:
    def mine(note: str, version: int = 5, **filters: Any) -> None:
        listed = wire.ask(messages.ListGroupsRequest(**filters), version)
        wire.note(f"list {note}", [g for g in listed.groups if g.group_id == wire.name])

    mine("none")
    member = _stable_member(wire)
    for version in (0, 3, 4, 5):
        mine("stable", version)
    mine("filtered by state", states_filter=["stable"])
    mine("filtered by another", states_filter=["Empty"])
    mine("filtered by type", types_filter=["classic"])
    mine("filtered by another type", types_filter=["consumer"])
    delete = messages.DeleteGroupsRequest(groups_names=[wire.name, "nobody", ""])
    wire.call(delete, note="not empty")
    _leave(wire, member.member_id)
    mine("empty")
    wire.call(delete, note="empty")
    mine("deleted")


# Offsets


def commit_offset(
    wire: Wire,
    topic: str,
    offset: int,
    member: Member = NO_MEMBER,
    *,
    version: int = 9,
    partition: int = 0,
    metadata: str | None = "m",
    note: str = "",
    **fields: Any,
) -> Any:
    kind = messages.OffsetCommitRequest
    entry = kind.OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata=metadata,
    )
    by_id = version >= 10
    named = kind.OffsetCommitRequestTopic(
        name="" if by_id else topic,
        topic_id=wire.topic_id(topic) if by_id else bytes(16),
        partitions=[entry],
    )
    usual: dict[str, Any] = {"group_id": wire.name, "topics": [named], "member_id": member.member_id}
    usual["generation_id_or_member_epoch"] = member.generation_id
    return wire.call(kind(**usual | fields), version, note=note)


def offset_fetch_request(wire: Wire, topic: str | None, *, require_stable: bool = False) -> Any:
    kind = messages.OffsetFetchRequest
    topics = None
    if topic is not None:
        topics = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    group = kind.OffsetFetchRequestGroup(group_id=wire.name, topics=topics)
    return kind(groups=[group], require_stable=require_stable)


def fetch_offsets(wire: Wire, topic: str | None, *, require_stable: bool = False, note: str = "") -> Any:
    """Fetch the offsets of partitions 0 and 1; None for all topics."""
    return wire.call(offset_fetch_request(wire, topic, require_stable=require_stable), 9, note=note)


@scenario
def offsets_are_committed_and_fetched(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    fetch_offsets(wire, topic, note="nothing committed")
    fetch_offsets(wire, None, note="all, nothing committed")
    for version in range(2, 11):
        commit_offset(wire, topic, 100 + version, version=version)
        fetch_offsets(wire, topic)
    commit_offset(wire, topic, 7, partition=1, metadata=None, note="null metadata")
    fetch_offsets(wire, None, note="all")
    commit_offset(wire, topic, 3, note="backwards")
    commit_offset(wire, topic, -1, note="negative")
    fetch_offsets(wire, topic)


@scenario
def offsets_are_fetched_in_each_version(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    commit_offset(wire, topic, 5)
    kind = messages.OffsetFetchRequest
    for version in range(1, 8):
        topics = [kind.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1, 9])]
        wire.call(kind(group_id=wire.name, topics=topics), version)
    wire.call(kind(group_id=wire.name, topics=None), 7, note="all")
    for version in (8, 9):
        groups = [
            kind.OffsetFetchRequestGroup(
                group_id=group, topics=[kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 9])]
            )
            for group in (wire.name, "nobody")
        ]
        wire.call(kind(groups=groups), version)
    wire.forge_topic_id("unknown", unknown_topic_id())
    by_id = [
        kind.OffsetFetchRequestTopics(topic_id=wire.topic_id(name), partition_indexes=[0])
        for name in (topic, "unknown")
    ]
    wire.call(kind(groups=[kind.OffsetFetchRequestGroup(group_id=wire.name, topics=by_id)]), 10)


@scenario
def offset_commit_refusals(wire: Wire) -> None:
    topic = wire.topic()
    commit_offset(wire, topic, 1, metadata="x" * 4097, note="metadata too large")
    commit_offset(wire, topic, 1, metadata="x" * 4096, note="largest metadata")
    commit_offset(wire, "unknown", 1, note="unknown topic")
    wire.forge_topic_id("unknown", unknown_topic_id())
    commit_offset(wire, "unknown", 1, version=10, note="unknown topic id")
    commit_offset(wire, topic, 1, partition=8, note="unknown partition")
    commit_offset(wire, topic, 1, group_id="", note="empty group")
    commit_offset(wire, topic, 1, Member("stranger", 1), note="member of no group")
    commit_offset(wire, topic, 1, Member("", 4), note="generation of no group")
    member = _stable_member(wire)
    commit_offset(wire, topic, 2, member, note="member")
    commit_offset(wire, topic, 2, member._replace(generation_id=7), note="other generation")
    commit_offset(wire, topic, 2, Member("stranger", member.generation_id), note="unknown member")
    commit_offset(wire, topic, 2, note="simple, of a group with members")
    fetch_offsets(wire, topic)


@scenario
def offsets_are_deleted(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    kind = messages.OffsetDeleteRequest

    def delete(name: str, note: str) -> None:
        partitions = [kind.OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1)]
        topics = [kind.OffsetDeleteRequestTopic(name=name, partitions=partitions)]
        wire.call(kind(group_id=wire.name, topics=topics), note=note)

    delete(topic, "no group")
    commit_offset(wire, topic, 5)
    delete("unknown", "unknown topic")
    delete(topic, "one committed")
    fetch_offsets(wire, topic)
