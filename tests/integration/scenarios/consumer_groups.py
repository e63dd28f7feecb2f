"""Consumer groups of KIP-848: heartbeats, fencing, static members, patterns, and commits by member epoch."""

from collections.abc import Iterable
from typing import Any

from kbatch.protocol import codec, messages
from tests.integration.scenarios.groups import Member as ClassicMember
from tests.integration.scenarios.groups import commit_offset, fetch_offsets
from tests.integration.scenarios.requests import end_txn, init_producer_id
from tests.integration.scenarios.wire import Wire, scenario, unknown_topic_id
from tests.support.patience import until

LEAVE, LEAVE_STATIC = -1, -2
Heartbeat = messages.ConsumerGroupHeartbeatRequest


class Member:
    """A member of the group that has the scenario's name; it reads `topics`, or what a pattern matches."""

    def __init__(
        self, wire: Wire, member_id: str, *topics: str, instance_id: str | None = None, **fields: Any
    ) -> None:
        self.wire = wire
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: list[Heartbeat.TopicPartitions] = []
        self.fields = {"subscribed_topic_names": list(topics)} | fields

    def request(self, **fields: Any) -> Heartbeat:
        usual: dict[str, Any] = {"group_id": self.wire.name, "member_id": self.member_id}
        usual |= {"member_epoch": self.epoch, "instance_id": self.instance_id}
        return Heartbeat(**usual | fields)

    def join_request(self, **fields: Any) -> Heartbeat:
        joining = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        return self.request(**joining | self.fields | fields)

    def join(self, *, note: str = "", **fields: Any) -> Any:
        return self._take(self.wire.call(self.join_request(**fields), note=note))

    def beat(self, *, note: str = "", **fields: Any) -> Any:
        return self._take(self.wire.call(self.request(**fields), note=note))

    def acknowledge(self, *, note: str = "") -> Any:
        """Say what the member owns."""
        return self.beat(note=note, topic_partitions=self.owned)

    def leave(self, epoch: int = LEAVE, *, note: str = "") -> None:
        self.wire.call(self.request(member_epoch=epoch), note=note)

    def until(self, epoch: int) -> None:
        """Send heartbeats without recording them, until the answer has this epoch."""
        until(lambda: self._take(self.wire.ask(self.request())).member_epoch == epoch)

    def _take(self, answer: Any) -> Any:
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                kind = Heartbeat.TopicPartitions
                self.owned = [
                    kind(topic_id=topic.topic_id, partitions=topic.partitions)
                    for topic in answer.assignment.topic_partitions
                ]
        return answer

    @property
    def committer(self) -> ClassicMember:
        return ClassicMember(self.member_id, self.epoch)


def known_topic(wire: Wire, suffix: str = "t", partitions: int = 4) -> str:
    """Create a topic, and wait until the coordinator assigns it: its metadata comes a moment later."""
    topic = wire.topic(suffix, partitions)
    await_assigned(wire, topic, partitions)
    return topic


def await_assigned(wire: Wire, topic: str, partitions: int) -> None:
    probe = Member(wire, f"probe of {topic}", topic)
    group = {"group_id": f"{wire.name}-probe"}

    def is_assigned() -> bool:
        answer = wire.ask(probe.join_request(**group))
        wire.ask(probe.request(member_epoch=LEAVE, **group))
        return sum(len(each.partitions) for each in answer.assignment.topic_partitions) == partitions

    until(is_assigned)


def describe(wire: Wire, note: str, *group_ids: str, version: int = 1) -> None:
    kind = messages.ConsumerGroupDescribeRequest
    request = kind(group_ids=list(group_ids or [wire.name]), include_authorized_operations=version > 0)
    answer = wire.ask(request, version)
    for group in answer.groups:
        group.members.sort(key=lambda member: (member.member_type, member.instance_id, member.member_id))
        for member in group.members:
            member.subscribed_topic_names.sort()
    wire.note(f"ConsumerGroupDescribe v{version} {note}", answer)


# Membership


@scenario
def consumer_group_of_one_member(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic, rack_id="r")
    describe(wire, "no group")
    member.join()
    member.beat()
    member.acknowledge()
    member.beat(note="full", **member.fields, rebalance_timeout_ms=60_000, topic_partitions=member.owned)
    member.beat(note="same topics again", subscribed_topic_names=[topic])
    describe(wire, "one member")
    describe(wire, "version 0", version=0)
    member.leave()
    describe(wire, "empty", wire.name, f"{wire.name}-none")
    member.beat(note="after it left")


@scenario
def consumer_group_moves_partitions(wire: Wire) -> None:
    topic = known_topic(wire)
    first, second = Member(wire, "a", topic), Member(wire, "b", topic)
    first.join()
    second.join(note="second")
    describe(wire, "the second waits")
    first.beat(note="learns")
    first.beat(note="goes on")
    second.beat(note="waits")
    describe(wire, "the first revokes")
    first.acknowledge()
    second.beat(note="gets them")
    describe(wire, "settled")
    second.leave()
    first.beat(note="alone")


@scenario
def consumer_group_of_version_0(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "", topic)
    answer = wire.call(member.join_request(), 0)
    member.member_id, member.epoch = answer.member_id, answer.member_epoch
    wire.call(member.request(), 0)
    wire.call(member.request(member_id=""), 0, note="without id")
    wire.call(member.request(member_epoch=LEAVE), 0)


@scenario
def consumer_group_heartbeat_refusals(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic)
    partitions = [Heartbeat.TopicPartitions(topic_id=unknown_topic_id(), partitions=[0])]
    refused: list[dict[str, Any]] = [
        {"group_id": ""},
        {"group_id": " "},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": partitions},
        {"subscribed_topic_names": None},
        {"server_assignor": "sticky"},
        {"server_assignor": ""},
        {"member_epoch": LEAVE_STATIC},
        {"member_epoch": -3},
        {"member_epoch": 1},
        {"member_epoch": LEAVE},
        {"subscribed_topic_regex": "["},
        {"subscribed_topic_regex": "(?=a)"},
        {"subscribed_topic_regex": r"(a)\1"},
        {"subscribed_topic_regex": "a{1001}"},
    ]
    for fields in refused:
        wire.call(member.join_request(**fields), note=str(sorted(fields)))
    describe(wire, "none of it made a group")
    wire.call(member.join_request(subscribed_topic_names=[]), note="no topics")
    wire.call(member.request(member_epoch=LEAVE), note="leaves")


@scenario
def consumer_group_fencing(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic)
    member.join()
    more = [Heartbeat.TopicPartitions(topic_id=wire.topic_id(topic), partitions=[0, 1, 2, 3, 4])]
    for epoch in (1, 3, 100):
        member.beat(member_epoch=epoch, topic_partitions=[], note=f"epoch {epoch}")
    member.beat(member_id="b", note="unknown member")
    member.join(note="the join again")
    second = Member(wire, "b", topic)
    second.join()
    member.beat()
    member.acknowledge()
    owned = member.owned
    member.beat(member_epoch=2, topic_partitions=owned, note="previous epoch")
    member.beat(member_epoch=2, note="previous epoch, no partitions")
    member.beat(member_epoch=2, topic_partitions=more, note="previous epoch, more partitions")
    member.beat(member_epoch=1, topic_partitions=owned, note="epoch before")
    member.join(note="join as a member")
    member.beat(note="still a member")


@scenario
def consumer_group_static_members(wire: Wire) -> None:
    topic = known_topic(wire)
    first = Member(wire, "a", topic, instance_id="one")
    second = Member(wire, "b", topic, instance_id="two")
    first.join()
    second.join()
    first.beat()
    first.acknowledge()
    second.beat()
    Member(wire, "c", topic, instance_id="one").join(note="instance in use")
    Member(wire, "c", topic, instance_id="one").leave(note="of another")
    Member(wire, "c", topic, instance_id="three").leave(LEAVE_STATIC, note="of an unknown instance")
    first.leave(LEAVE_STATIC, note="for a while")
    describe(wire, "one is away")
    first.beat(note="while it is away")
    commit_offset(wire, topic, 5, first.committer, note="while it is away")
    back = Member(wire, "c", topic, instance_id="one")
    back.join(note="back under another id")
    first.beat(note="the old id")
    second.beat(note="the other")
    describe(wire, "back")
    back.leave(LEAVE_STATIC, note="again")
    back.join(note="under the same id")
    back.leave(note="for good")
    second.beat(note="the other gets its partitions")


@scenario
def consumer_group_subscription_changes(wire: Wire) -> None:
    topic, other = known_topic(wire, partitions=2), known_topic(wire, "other", 2)
    member = Member(wire, "a", topic)
    member.join()
    member.beat(subscribed_topic_names=[topic, other], note="one more")
    member.beat(subscribed_topic_names=[other], note="one less")
    member.acknowledge()
    member.beat(subscribed_topic_names=[], note="none")
    member.acknowledge()
    member.beat(subscribed_topic_names=[f"{topic}.missing"], note="missing")
    describe(wire, "missing")


@scenario
def consumer_group_topics_change(wire: Wire) -> None:
    topic = known_topic(wire, partitions=2)
    member = Member(wire, "a", topic, f"{topic}.later")
    member.join()
    kind = messages.CreatePartitionsRequest
    wire.ask(
        kind(topics=[kind.CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=9_000)
    )
    await_assigned(wire, topic, 3)
    member.until(3)
    describe(wire, "more partitions")
    wire.topic("t.later", 1)
    await_assigned(wire, f"{topic}.later", 1)
    member.until(4)
    describe(wire, "a new topic")
    wire.ask(
        messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=9_000
        )
    )
    until(lambda: member._take(wire.ask(member.request())).member_epoch == 5 or _acknowledged(member))
    member.acknowledge(note="after the deletion")
    describe(wire, "a topic less")


def _acknowledged(member: Member) -> bool:
    """Give up at once what an answer takes away."""
    member._take(member.wire.ask(member.request(topic_partitions=member.owned)))
    return member.epoch == 5


@scenario
def consumer_group_patterns(wire: Wire) -> None:
    topic, other = known_topic(wire, "orders-1", 2), known_topic(wire, "other", 2)
    pattern = topic.replace("orders-1", "orders-.*").replace(".orders", r"\.orders")
    member = Member(wire, "a", subscribed_topic_regex=pattern, subscribed_topic_names=None)
    member.join(note="a pattern")
    member.until(2)
    describe(wire, "resolved")
    second = Member(wire, "b", subscribed_topic_regex=pattern, subscribed_topic_names=None)
    second.join(note="the same pattern")
    second.leave()
    member.until(4)
    member.beat(subscribed_topic_names=[other], note="names as well")
    member.beat(subscribed_topic_regex="(", note="an invalid pattern")
    describe(wire, "both")


@scenario
def consumer_group_assignors(wire: Wire) -> None:
    topics = [known_topic(wire, name, 3) for name in "xy"]
    first = Member(wire, "a", *topics, server_assignor="range")
    second = Member(wire, "b", *topics, server_assignor="range")
    for step in (first.join, second.join, first.beat, first.acknowledge, second.beat):
        step()
    describe(wire, "range")
    first.beat(server_assignor="uniform", note="another assignor")
    second.beat(server_assignor="uniform", note="another assignor")
    describe(wire, "uniform is wanted")


# Offsets


@scenario
def commits_of_consumer_groups(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic)
    member.join()
    commit_offset(wire, topic, 5, member.committer)
    commit_offset(wire, topic, 6, member.committer, version=10)
    commit_offset(wire, topic, 6, member.committer, version=8, note="old version")
    for epoch in (-1, 1, 3):
        commit_offset(wire, topic, 6, ClassicMember("a", epoch), note=f"epoch {epoch}")
    commit_offset(wire, topic, 6, ClassicMember("b", 2), note="unknown member")
    commit_offset(wire, topic, 6, note="no member")
    second = Member(wire, "b", topic)
    second.join()
    member.beat(note="learns")
    commit_offset(wire, topic, 7, member.committer, partition=3, note="while it revokes")
    member.acknowledge()
    commit_offset(wire, topic, 8, ClassicMember("a", 2), note="kept since an older epoch")
    commit_offset(wire, topic, 8, ClassicMember("a", 2), partition=3, note="given up")
    second.beat()
    commit_offset(wire, topic, 9, second.committer, partition=3)
    commit_offset(wire, topic, 9, ClassicMember("b", 2), partition=3, note="before it got it")
    fetch_offsets(wire, topic)
    for named in (("a", 3), ("a", 2), ("c", 3), ("", -1), (None, -1)):
        kind = messages.OffsetFetchRequest
        topics = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        group = kind.OffsetFetchRequestGroup(
            group_id=wire.name, member_id=named[0], member_epoch=named[1], topics=topics
        )
        wire.call(kind(groups=[group]), 9, note=str(named))
    member.leave()
    second.leave()
    commit_offset(wire, topic, 10, note="no member, empty group")
    commit_offset(wire, topic, 10, ClassicMember("a", 3), note="a member that left")


@scenario
def transactional_commits_of_consumer_groups(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic)
    member.join()
    producer = init_producer_id(wire, wire.name)
    kind = messages.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    for member_id, epoch in (("a", 2), ("a", 1), ("a", 3), ("b", 2), ("", -1)):
        request = kind(
            transactional_id=wire.name,
            group_id=wire.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            member_id=member_id,
            generation_id=epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        wire.call(request, note=f"{member_id!r} {epoch}")
    end_txn(wire, wire.name, producer, commit=True)
    until(lambda: not _unstable(wire, topic))
    fetch_offsets(wire, topic)


def _unstable(wire: Wire, topic: str) -> bool:
    kind = messages.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    group = kind.OffsetFetchRequestGroup(group_id=wire.name, topics=topics)
    answer = wire.ask(kind(groups=[group], require_stable=True), 9)
    return bool(answer.groups[0].topics[0].partitions[0].error_code)


# Groups of both kinds


@scenario
def empty_groups_change_their_kind(wire: Wire) -> None:
    topic = known_topic(wire)
    commit_offset(wire, topic, 5, note="simple")
    member = Member(wire, "a", topic)
    member.join(note="a simple group")
    _list(wire, "consumer")
    wire.call(messages.DescribeGroupsRequest(groups=[wire.name]), 6, note="not classic")
    wire.call(messages.DescribeGroupsRequest(groups=[wire.name]), 5, note="not classic")
    delete = messages.DeleteGroupsRequest(groups_names=[wire.name])
    wire.call(delete, note="with a member")
    _delete_offsets(wire, [topic, f"{topic}.none"], "a member reads it")
    member.leave()
    _list(wire, "empty")
    _delete_offsets(wire, [topic], "no member")
    wire.call(delete, note="empty")
    describe(wire, "deleted")
    _list(wire, "deleted")


def _list(wire: Wire, note: str) -> None:
    for filters in ({}, {"types_filter": ["CONSUMER"]}, {"types_filter": ["classic"]}):
        answer = wire.ask(messages.ListGroupsRequest(**filters))
        answer.groups = [group for group in answer.groups if group.group_id == wire.name]
        wire.note(f"ListGroups {note} {filters}", answer)


def _delete_offsets(wire: Wire, topics: Iterable[str], note: str) -> None:
    kind = messages.OffsetDeleteRequest
    partitions = [kind.OffsetDeleteRequestPartition(partition_index=0)]
    named = [kind.OffsetDeleteRequestTopic(name=topic, partitions=partitions) for topic in topics]
    wire.call(kind(group_id=wire.name, topics=named), note=note)


class ClassicConsumer:
    """A member of the scenario's group that uses the classic protocol."""

    def __init__(self, wire: Wire, topic: str, instance_id: str | None = None) -> None:
        self.wire = wire
        self.topic = topic
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []

    def join(self, note: str = "", version: int = 9, **fields: Any) -> Any:
        kind = messages.JoinGroupRequest
        protocol = kind.JoinGroupRequestProtocol(name="range", metadata=self._subscription())
        usual: dict[str, Any] = {
            "group_id": self.wire.name,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [protocol],
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        answer = self.wire.call(kind(**usual | fields), version, note=note)
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.generation_id
        return answer

    def new(self) -> None:
        """Join a group as a new member, with the id that the first answer gives."""
        if self.instance_id is None:
            self.join("for an id")
        self.join("with the id")

    def sync(self, note: str = "", assigned: Iterable[int] = (), **fields: Any) -> Any:
        """Send SyncGroup, with an assignment for itself if it leads; note what it owns then."""
        kind = messages.SyncGroupRequest
        named = messages.ConsumerProtocolAssignment.TopicPartition(topic=self.topic, partitions=[*assigned])
        assignment = messages.ConsumerProtocolAssignment(assigned_partitions=[named])
        data = b"\0\3" + b"".join(codec.encode(assignment, 3))
        entries = [kind.SyncGroupRequestAssignment(member_id=self.member_id, assignment=data)]
        usual: dict[str, Any] = {
            "group_id": self.wire.name,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": entries if assigned else [],
        }
        answer = self.wire.ask(kind(**usual | fields))
        if not answer.error_code:
            found = codec.decode(messages.ConsumerProtocolAssignment, 3, answer.assignment[2:])
            self.owned = [index for each in found.assigned_partitions for index in each.partitions]
        answer.assignment = b""
        self.wire.note(f"SyncGroup {note}", {"answer": answer, "owned": self.owned})
        return answer

    def beat(self, note: str = "", **fields: Any) -> None:
        usual: dict[str, Any] = {
            "group_id": self.wire.name,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self.instance_id,
        }
        self.wire.call(messages.HeartbeatRequest(**usual | fields), note=note)

    def leave(self, note: str = "", **fields: Any) -> None:
        kind = messages.LeaveGroupRequest
        identity = {"member_id": self.member_id, "group_instance_id": self.instance_id} | fields
        members = [kind.MemberIdentity(**identity), kind.MemberIdentity(member_id="stranger")]
        self.wire.call(kind(group_id=self.wire.name, members=members), note=note)

    def _subscription(self) -> bytes:
        kind = messages.ConsumerProtocolSubscription
        owned = [kind.TopicPartition(topic=self.topic, partitions=self.owned)] if self.owned else []
        subscription = kind(topics=[self.topic], owned_partitions=owned)
        return b"\0\3" + b"".join(codec.encode(subscription, 3))


@scenario
def classic_group_is_upgraded_and_downgraded(wire: Wire) -> None:
    topic = known_topic(wire)
    classic = ClassicConsumer(wire, topic)
    classic.new()
    classic.sync(assigned=range(4))
    commit_offset(wire, topic, 5, ClassicMember(classic.member_id, classic.generation))
    member = Member(wire, "a", topic)
    member.join(note="the first of the new protocol")
    describe(wire, "upgraded")
    _list(wire, "upgraded")
    wire.call(messages.DescribeGroupsRequest(groups=[wire.name]), 6)
    classic.beat("has to join again")
    classic.sync("instead")
    commit_offset(wire, topic, 6, ClassicMember(classic.member_id, classic.generation), note="before that")
    classic.join("has all")
    classic.sync("less than before")
    member.beat(note="waits")
    classic.beat("has to give up partitions")
    classic.join("gave them up")
    classic.sync("settled")
    member.beat(note="gets them")
    classic.beat("goes on")
    describe(wire, "shared")
    commit_offset(wire, topic, 7, ClassicMember(classic.member_id, classic.generation), note="after")
    commit_offset(wire, topic, 7, ClassicMember(classic.member_id, 1), note="an old generation")
    member.leave()
    _list(wire, "downgraded")
    describe(wire, "downgraded")
    classic.beat("after the downgrade")
    classic.join("after the downgrade")
    classic.sync("leads again", assigned=range(4))
    fetch_offsets(wire, topic)
    classic.leave()


@scenario
def classic_members_of_a_consumer_group(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic)
    member.join()
    classic = ClassicConsumer(wire, topic)
    refused: list[dict[str, Any]] = [
        {"protocol_type": "connect"},
        {"protocols": []},
        {"member_id": "stranger", "group_instance_id": "i"},
        {"session_timeout_ms": 1},
    ]
    for fields in refused:
        ClassicConsumer(wire, topic).join(str(sorted(fields)), **fields)
    classic.new()
    kind = messages.JoinGroupRequest
    other = kind.JoinGroupRequestProtocol(name="other", metadata=classic._subscription())
    ClassicConsumer(wire, topic).join("another protocol", protocols=[other])
    classic.sync("nothing is free")
    member.beat(note="learns")
    classic.beat("nothing is free yet")
    member.acknowledge()
    classic.beat("they are free")
    classic.sync("has to join first")
    classic.join("for the rest")
    classic.sync("has its part")
    classic.sync("other type", protocol_type="connect")
    classic.sync("other name", protocol_name="other")
    classic.sync("other generation", generation_id=9)
    classic.beat("other generation", generation_id=9)
    classic.beat("unknown", member_id="stranger")
    classic.beat("of the new protocol", member_id="a", generation_id=member.epoch)
    classic.sync("of the new protocol", member_id="a", generation_id=member.epoch)
    describe(wire, "both")
    classic.leave()
    member.beat(note="alone")
    describe(wire, "alone")


@scenario
def static_members_change_their_protocol(wire: Wire) -> None:
    topic = known_topic(wire)
    member = Member(wire, "a", topic, instance_id="one")
    other = Member(wire, "b", topic, instance_id="two")
    member.join()
    other.join()
    member.beat()
    member.acknowledge()
    other.beat()
    first, second = ClassicConsumer(wire, topic, "one"), ClassicConsumer(wire, topic, "two")
    first.join("replaces a member")
    first.sync("has its partitions")
    member.beat(note="is replaced")
    _list(wire, "one of each")
    second.join("replaces the last")
    second.sync("has its partitions")
    _list(wire, "downgraded")
    first.beat("goes on")
    back = Member(wire, "c", topic, instance_id="one")
    back.join(note="upgrades again")
    describe(wire, "upgraded")
    second.beat("goes on")


@scenario
def classic_group_that_cannot_be_upgraded(wire: Wire) -> None:
    topic = known_topic(wire)
    classic = ClassicConsumer(wire, topic)
    kind = messages.JoinGroupRequest
    protocol = kind.JoinGroupRequestProtocol(name="default", metadata=b"any")
    for note in ("for an id", "with the id"):
        classic.join(note, protocol_type="connect", protocols=[protocol])
    Member(wire, "a", topic).join(note="no consumers")
    Member(wire, "a", topic).leave(note="not a consumer group")


# DescribeTopicPartitions


@scenario
def topic_partitions_are_described_in_pages(wire: Wire) -> None:
    kind = messages.DescribeTopicPartitionsRequest
    topics = [wire.topic(name, partitions=3) for name in "ab"]
    missing = f"{wire.name}.c"

    def page(note: str, names: Iterable[str], **fields: Any) -> None:
        wire.call(kind(topics=[kind.TopicRequest(name=name) for name in names], **fields), note=note)

    page("all", topics)
    page("twice and out of order", [*reversed(topics), topics[0]])
    page("missing and invalid", [missing, "in valid"])
    for limit in (-1, 0, 1, 3, 4, 6):
        page(f"limit {limit}", [*topics, missing], response_partition_limit=limit)
    for name, index in ((topics[0], 2), (topics[1], 1), (topics[1], 9), (missing, 0)):
        cursor = kind.Cursor(topic_name=name, partition_index=index)
        page(f"from {name[-1]} {index}", [*topics, missing], cursor=cursor)
    page("cursor elsewhere", topics, cursor=kind.Cursor(topic_name=missing, partition_index=0))
    page("negative cursor", topics, cursor=kind.Cursor(topic_name=topics[0], partition_index=-1))
