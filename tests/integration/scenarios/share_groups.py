"""Share groups (KIP-932): heartbeats, sessions, acquired records, acknowledgements, offsets by request.

The first ShareFetch of a share partition may be answered without it, while its state is read. So `acquire`
asks again, without recording it, until records come.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.scenarios.requests import (
    ProducerId,
    await_complete,
    await_stable,
    batch,
    end_txn,
    init_producer_id,
    produce,
    produce_request,
)
from tests.integration.scenarios.wire import Wire, error_codes, scenario, unknown_topic_id
from tests.support.patience import until

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LEAVE, GROUP_RESOURCE = -1, 32
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
SHORT_LOCK_MS = 1_000
Fetch = messages.ShareFetchRequest
Acknowledge = messages.ShareAcknowledgeRequest
# What a request acknowledges: first and last offset, and a type for all or one for each.
Batches = Sequence[tuple[int, int, list[int]]]


class Member:
    """A member of a share group, the one with the scenario's name if no other is given."""

    def __init__(self, wire: Wire, member_id: str, *topics: str, group: str = "") -> None:
        self.wire = wire
        self.group = group or wire.name
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: list[int] = []

    # The group

    def heartbeat(self, **fields: Any) -> messages.ShareGroupHeartbeatRequest:
        usual: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id}
        usual |= {"member_epoch": self.epoch, "subscribed_topic_names": None if self.epoch else self.topics}
        return messages.ShareGroupHeartbeatRequest(**usual | fields)

    def beat(self, note: str = "", **fields: Any) -> Any:
        answer = self.wire.call(self.heartbeat(**fields), note=note)
        self.wire.note(f"text of {note}", answer.error_message)
        return self._take(answer)

    def join(self, partitions: int = 1) -> None:
        """Join, and send heartbeats until so many partitions are assigned, without recording it."""

        def is_assigned() -> bool:
            self._take(self.wire.ask(self.heartbeat()))
            return len(self.assigned) == partitions

        until(is_assigned)

    def settle(self) -> None:
        """Send heartbeats until nothing changes, without recording it."""
        until(lambda: self._take(self.wire.ask(self.heartbeat())).member_epoch == self._group_epoch())

    def _group_epoch(self) -> int:
        request = messages.ShareGroupDescribeRequest(group_ids=[self.group])
        (group,) = self.wire.ask(request).groups
        return int(group.group_epoch)

    def _take(self, answer: Any) -> Any:
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.assigned = [index for each in parts for index in each.partitions]
        return answer

    # The session

    def fetch_request(self, topic: str = "", acks: Batches = (), **fields: Any) -> Fetch:
        usual: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": [],
        }
        partition = fields.pop("partition", 0)
        if topic:
            named = Fetch.FetchPartition(
                partition_index=partition, acknowledgement_batches=_batches(Fetch, acks)
            )
            topic_id = fields.pop("topic_id", None) or self.wire.topic_id(topic)
            usual["topics"] = [Fetch.FetchTopic(topic_id=topic_id, partitions=[named])]
        return Fetch(**usual | fields)

    def fetch(
        self, topic: str = "", acks: Batches = (), *, version: int = 2, note: str = "", **fields: Any
    ) -> Any:
        request = self.fetch_request(topic, acks, **fields)
        answer = self.wire.call(request, version, note=note)
        _texts(self.wire, note, answer)
        return self._count(answer, request)

    def acquire(self, topic: str, *, note: str = "", **fields: Any) -> Any:
        """Fetch until there are records, and record that answer."""
        deadline = time.monotonic() + 20
        while True:
            request = self.fetch_request(topic, **fields | {"max_wait_ms": 100})
            answer = self._count(self.wire.ask(request, 2), request)
            parts = [each for found in answer.responses for each in found.partitions]
            # a busy machine's controller may take the one broker for dead, and let it in again
            is_refused = set(error_codes(answer)) - {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            if any(part.acquired_records for part in parts) or is_refused:
                break
            assert time.monotonic() < deadline
        self.wire.note(f"acquired {note}", answer)
        return answer

    def acknowledge(
        self,
        topic: str = "",
        acks: Batches = (),
        *,
        version: int = 2,
        note: str = "",
        **fields: Any,
    ) -> Any:
        request = self._acknowledgement(topic, acks, **fields)
        answer = self.wire.call(request, version, note=note)
        _texts(self.wire, note, answer)
        return self._count(answer, request)

    def until_refused(self, topic: str, acks: Batches, **fields: Any) -> None:
        """Acknowledge without recording it, until that is refused."""

        def is_refused() -> bool:
            request = self._acknowledgement(topic, acks, **fields)
            answer = self._count(self.wire.ask(request, 2), request)
            return bool(answer.responses[0].partitions[0].error_code)

        until(is_refused)

    def _acknowledgement(self, topic: str, acks: Batches, **fields: Any) -> Any:
        usual: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "topics": [],
        }
        if topic:
            named = Acknowledge.AcknowledgePartition(
                partition_index=fields.pop("partition", 0),
                acknowledgement_batches=_batches(Acknowledge, acks),
            )
            topic_id = fields.pop("topic_id", None) or self.wire.topic_id(topic)
            usual["topics"] = [Acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[named])]
        return Acknowledge(**usual | fields)

    def _count(self, answer: Any, request: Any) -> Any:
        """Count the session's epoch, unless the request named another one."""
        if request.share_session_epoch == LEAVE:
            self.session_epoch = 0
        elif not answer.error_code and request.share_session_epoch == self.session_epoch:
            self.session_epoch += 1
        return answer


def _batches(kind: Any, acks: Batches) -> list[Any]:
    return [
        kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]


def _texts(wire: Wire, note: str, answer: Any) -> None:
    """Record texts of errors, which transcripts leave out."""
    parts = [each for found in answer.responses for each in found.partitions]
    texts = [(each.error_message, getattr(each, "acknowledge_error_message", None)) for each in parts if each]
    wire.note(f"texts of {note}", [answer.error_message, *texts])


def set_configs(wire: Wire, configs: Mapping[str, object], note: str = "") -> None:
    """Set configs of the group; underscores are dots."""
    kind = messages.IncrementalAlterConfigsRequest
    resource = kind.AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=wire.name,
        configs=[
            kind.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=str(value))
            for name, value in configs.items()
        ],
    )
    answer = wire.call(kind(resources=[resource]), note=note)
    wire.note(f"text of {note}", answer.responses[0].error_message)


def filled(wire: Wire, count: int, **configs: object) -> str:
    """Return a topic with batches of one record each, for a group that reads from the start."""
    topic = wire.topic()
    for number in range(count):
        wire.ask(_produced(wire, topic, [b"%d" % number]), 12)
    set_configs(wire, {"share_auto_offset_reset": "earliest"} | configs)
    return topic


def _produced(wire: Wire, topic: str, values: Sequence[bytes]) -> Any:
    return produce_request(wire, {(topic, 0): batch(*values)})


def reading(wire: Wire, count: int, *, member_id: str = "a", **configs: object) -> tuple[Member, str]:
    """Return a member of a group that reads a topic with so many records, and the topic."""
    topic = filled(wire, count, **configs)
    member = Member(wire, member_id, topic)
    member.join()
    return member, topic


def offsets(wire: Wire, topic: str, note: str = "", group: str = "", **fields: Any) -> None:
    kind = messages.DescribeShareGroupOffsetsRequest
    wanted = [kind.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])]
    usual: dict[str, Any] = {"group_id": group or wire.name, "topics": wanted}
    request = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(**usual | fields)])
    wire.call(request, note=f"offsets {note}")


# The group


@scenario
def share_group_KG01_KG02_heartbeats(wire: Wire) -> None:
    topic = wire.topic()
    member = Member(wire, "a", topic)
    member.beat("no topics", subscribed_topic_names=None)
    member.beat("no group, epoch 5", member_epoch=5)
    for name in ("group_id", "member_id", "rack_id"):
        member.beat(f"empty {name}", **{name: ""})
    member.beat("epoch -2", member_epoch=-2)
    member.beat("leaves no group", member_epoch=LEAVE)
    answer = member.beat("joins", rack_id="r")
    wire.note("interval", answer.heartbeat_interval_ms)
    member.join()
    member.beat("goes on")
    member.beat("names its topics again", subscribed_topic_names=[topic])
    member.beat("an epoch less", member_epoch=member.epoch - 1)
    member.beat("five epochs more", member_epoch=member.epoch + 5)
    member.beat("two epochs less", member_epoch=member.epoch - 2)
    Member(wire, "b", topic).beat("of a stranger", member_epoch=member.epoch)
    member.beat("joins as a member", member_epoch=0, subscribed_topic_names=[topic])
    member.beat("leaves", member_epoch=LEAVE)
    member.beat("after that", member_epoch=2)


@scenario
def share_group_KG03_describe(wire: Wire) -> None:
    topic = wire.topic(partitions=3)
    describe(wire, "no group")
    member = Member(wire, "a", topic)
    member.join(3)
    describe(wire, "one member")
    member.beat("leaves", member_epoch=LEAVE)
    describe(wire, "empty")
    wire.call(messages.DescribeGroupsRequest(groups=[wire.name]), note="as a classic group")
    wire.call(messages.ConsumerGroupDescribeRequest(group_ids=[wire.name]), note="as a consumer group")


def describe(wire: Wire, note: str, *group_ids: str) -> None:
    request = messages.ShareGroupDescribeRequest(group_ids=list(group_ids or [wire.name]))
    answer = wire.ask(request)
    for group in answer.groups:
        group.members.sort(key=lambda member: str(member.member_id))
        wire.note(f"text of {note}", group.error_message)
    wire.note(f"ShareGroupDescribe {note}", answer)


@scenario
def share_group_KG03_is_no_consumer_group(wire: Wire) -> None:
    member, topic = reading(wire, 1)
    beat = messages.ConsumerGroupHeartbeatRequest(
        group_id=wire.name,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    kind = messages.JoinGroupRequest
    join = kind(
        group_id=wire.name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[kind.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    commit = messages.OffsetCommitRequest
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commits = commit(
        group_id=wire.name, topics=[commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    fetch = messages.OffsetFetchRequest
    fetches = fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=wire.name, topics=None)])
    for note in ("with a member", "empty"):
        wire.call(beat, note=note)
        wire.call(join, note=note)
        wire.call(commits, 9, note=note)
        wire.call(fetches, 9, note=note)
        wire.ask(member.heartbeat(member_epoch=LEAVE))
    consumer = Member(wire, "a", topic, group=f"{wire.name}-c")
    wire.call(messages.ConsumerGroupHeartbeatRequest(**_fields(beat) | {"group_id": consumer.group}))
    consumer.beat("on a consumer group")


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in type(message).__slots__}


@scenario
def share_group_assigns_partitions_to_several_members(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    members = [Member(wire, name, topic) for name in "abc"]
    for member in members:
        wire.ask(member.heartbeat())
        member.epoch = 0
    for _ in range(2):
        for member in members:
            member._take(wire.ask(member.heartbeat()))
            member.settle()
    wire.note("three on two", sorted(each.assigned for each in members))
    wire.ask(members[0].heartbeat(member_epoch=LEAVE))
    for member in members[1:]:
        member.settle()
    wire.note("two on two", sorted(each.assigned for each in members[1:]))


@scenario
def share_group_KG04_reset_to_latest(wire: Wire) -> None:
    topic = wire.topic()
    wire.ask(_produced(wire, topic, [b"old"]), 12)
    member = Member(wire, "a", topic)
    member.join()
    offsets(wire, topic, "before the first fetch")
    for _ in range(3):  # until its state is read
        answer = member._count(wire.ask(request := member.fetch_request(topic, max_wait_ms=300), 2), request)
        assert not answer.error_code
    wire.ask(_produced(wire, topic, [b"new"]), 12)
    member.acquire(topic)
    offsets(wire, topic, "acquired")
    member.acknowledge(topic, [(1, 1, [ACCEPT])])
    offsets(wire, topic, "accepted")
    offsets(wire, topic, "of no group", group=f"{wire.name}-none")
    offsets(wire, f"{topic}-none", "of no topic")
    offsets(wire, topic, "of all topics", topics=None)


@scenario
def share_group_KG05_described_offsets_lag(wire: Wire) -> None:
    member, topic = reading(wire, 10)
    member.acquire(topic)
    member.acknowledge(topic, [(0, 2, [ACCEPT, RELEASE, REJECT])], note="0 to 2")
    offsets(wire, topic, "one released")
    member.fetch(topic, note="what was released")
    member.acknowledge(topic, [(1, 1, [ACCEPT])], note="1")
    offsets(wire, topic, "accepted")
    member.acknowledge(topic, [(3, 9, [ACCEPT])], note="all")
    offsets(wire, topic, "all")


@scenario
def share_group_KG06_offsets_by_request(wire: Wire) -> None:
    member, topic = reading(wire, 6)
    member.acquire(topic, note="all")
    member.acknowledge(topic, [(0, 2, [ACCEPT])], note="0 to 2")
    alter(wire, topic, 3, note="with a member")
    delete(wire, topic, note="with a member")
    wire.call(messages.DeleteGroupsRequest(groups_names=[wire.name]), note="with a member")
    member.acknowledge(share_session_epoch=LEAVE, note="ends its session")
    member.beat("leaves", member_epoch=LEAVE)
    for offset in (3, 99, 0, -5):
        alter(wire, topic, offset, note=f"to {offset}")
        offsets(wire, topic, f"set to {offset}")
    alter(wire, f"{topic}-none", 0, note="no topic")
    alter(wire, topic, 0, partition=9, note="no partition")
    alter(wire, topic, 2, group=f"{wire.name}-new", note="a new group")
    describe(wire, "the new group", f"{wire.name}-new")
    offsets(wire, topic, "of the new group", group=f"{wire.name}-new")
    new = Member(wire, "n", topic, group=f"{wire.name}-new")
    new.join()
    new.acquire(topic, note="from 2")
    delete(wire, f"{topic}-none", note="no topic")
    delete(wire, topic, note="all")
    offsets(wire, topic, "deleted")
    delete(wire, topic, note="again")
    delete(wire, topic, group=f"{wire.name}-none", note="no group")
    wire.call(messages.DeleteGroupsRequest(groups_names=[wire.name, f"{wire.name}-none"]), note="empty")


def alter(
    wire: Wire, topic: str, offset: int, *, partition: int = 0, group: str = "", note: str = ""
) -> None:
    kind = messages.AlterShareGroupOffsetsRequest
    named = kind.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    topics = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[named])]
    answer = wire.call(kind(group_id=group or wire.name, topics=topics), note=note)
    texts = [each.error_message for found in answer.responses for each in found.partitions]
    wire.note(f"texts of {note}", [answer.error_message, *texts])


def delete(wire: Wire, topic: str, *, group: str = "", note: str = "") -> None:
    kind = messages.DeleteShareGroupOffsetsRequest
    topics = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    answer = wire.call(kind(group_id=group or wire.name, topics=topics), note=note)
    wire.note(f"texts of {note}", [answer.error_message, *(each.error_message for each in answer.responses)])


# Sessions


@scenario
def share_group_KG07_session_epochs(wire: Wire) -> None:
    member, topic = reading(wire, 4)
    member.fetch(topic, share_session_epoch=3, note="no session")
    member.fetch(topic, [(0, 0, [ACCEPT])], note="acknowledges as it begins")
    member.acknowledge(topic, [(0, 0, [ACCEPT])], note="epoch 0")
    member.acquire(topic)
    member.fetch(topic, share_session_epoch=member.session_epoch - 1, note="the last epoch again")
    member.fetch(topic, share_session_epoch=member.session_epoch + 1, note="an epoch more")
    member.fetch(topic, note="the next")
    member.fetch(topic, group_id=None, note="no group")
    member.acknowledge(topic, [(0, 0, [ACCEPT])], group_id="", note="empty group")
    Member(wire, "stranger", topic).fetch(topic, note="of no member")
    member.acknowledge(topic, [(0, 0, [ACCEPT])], share_session_epoch=LEAVE, note="ends")
    member.fetch(topic, share_session_epoch=5, note="after it")
    member.acknowledge(topic, [(1, 1, [ACCEPT])], share_session_epoch=LEAVE, note="ends again")
    member.fetch(share_session_epoch=LEAVE, note="ends again by a fetch")
    member.acquire(topic, note="by a new session")
    member.fetch(topic, [(1, 1, [ACCEPT])], share_session_epoch=LEAVE, note="ends and acknowledges")
    member.acquire(topic, note="what is left")


@scenario
def share_group_KG09_session_ends_with_the_connection_that_opened_it(wire: Wire) -> None:
    member, topic = reading(wire, 2)
    other = Member(wire, "b", topic)
    with wire.second_connection() as opener:
        first = Member(opener, "a", topic)
        first.acquire(topic, note="by the first")
        member.session_epoch = first.session_epoch
        member.fetch(topic, note="by another connection")
        other.fetch(topic, note="while both are open")
    other.acquire(topic, note="after the first is closed")
    member.fetch(topic, note="the session is gone")


@scenario
def share_group_KG10_unknown_topics_and_partitions(wire: Wire) -> None:
    member, topic = reading(wire, 2)
    member.acquire(topic)
    member.fetch(topic, partition=9, note="no partition")
    member.fetch(note="and again")
    gone = [Fetch.ForgottenTopic(topic_id=wire.topic_id(topic), partitions=[9])]
    member.fetch(forgotten_topics_data=gone, note="until it is forgotten")
    member.acknowledge(topic, [(0, 0, [ACCEPT])], topic_id=unknown_topic_id(), note="no topic")
    member.acknowledge(topic, [(0, 0, [ACCEPT])], partition=9, note="no partition")
    epoch = member.session_epoch
    member.fetch(topic, topic_id=unknown_topic_id(), note="fetches no topic")
    member.fetch(share_session_epoch=epoch, note="its epoch has counted")
    member.fetch(share_session_epoch=epoch + 1, note="it stays in the session")


@scenario
def share_group_KG08_KG11_nothing_to_get(wire: Wire) -> None:
    member, topic = reading(wire, 2)
    member.fetch(topic, share_acquire_mode=7, note="unknown mode")
    member.acquire(topic)
    for most in (0, -1):
        member.fetch(topic, max_records=most, note=f"at most {most}")
    member.fetch(topic, max_wait_ms=300, note="waits in vain")


# Acquiring


@scenario
def share_group_KG12_modes_and_batches(wire: Wire) -> None:
    topic = filled(wire, 0)
    for values in (b"mnopqrstuv", b"ABCDEFGHIJ", b"KLMNOPQRST"):
        wire.ask(_produced(wire, topic, [bytes([each]) for each in values]), 12)
    limited, whole = Member(wire, "a", topic), Member(wire, "b", topic)
    limited.join()
    limited.acquire(topic, max_records=3, share_acquire_mode=RECORD_LIMIT, note="3 of a batch")
    limited.acquire(topic, max_records=4, share_acquire_mode=RECORD_LIMIT, note="4 more")
    whole.acquire(topic, max_records=1, note="1, whole batches")
    whole.acquire(topic, max_records=11, batch_size=2, note="11, whole batches")
    limited.fetch(topic, version=1, note="version 1: nothing left")
    limited.acknowledge(topic, [(0, 6, [RELEASE])], note="7 records")
    whole.acknowledge(topic, [(7, 29, [RELEASE])], note="the rest")
    limited.acquire(topic, max_records=5, share_acquire_mode=RECORD_LIMIT, note="5 again")
    limited.acquire(topic, max_records=12, share_acquire_mode=RECORD_LIMIT, note="12 again")
    whole.acquire(topic, max_records=2, note="2 again, whole batches")
    whole.acquire(topic, note="all that is left")


@scenario
def share_group_KG13_counts_by_range(wire: Wire) -> None:
    member, topic = reading(wire, 10)
    member.acquire(topic, max_records=4, batch_size=4, note="0 to 3")
    member.acknowledge(topic, [(0, 3, [ACCEPT, RELEASE, REJECT, RELEASE])], note="by offset")
    member.acquire(topic, note="1, 3 and the others")


@scenario
def share_group_KG14_limit_of_locks(wire: Wire) -> None:
    topic = filled(wire, 0, share_partition_max_record_locks=100)
    for _ in range(6):
        wire.ask(_produced(wire, topic, [b"r"] * 40), 12)
    member = Member(wire, "a", topic)
    member.join()
    member.acquire(topic, max_records=5_000, batch_size=40, note="up to the limit")
    member.fetch(topic, max_records=5_000, note="no room")
    member.acknowledge(topic, [(10, 29, [RELEASE])], note="in the middle")
    member.acquire(topic, max_records=5_000, note="between the others")
    member.acknowledge(topic, [(0, 39, [ACCEPT])], note="the first batch")
    member.acquire(topic, max_records=5_000, note="room for more")


@scenario
def share_group_KG15_limit_of_deliveries(wire: Wire) -> None:
    topic = filled(wire, 0)
    wire.ask(_produced(wire, topic, [b"%d" % number for number in range(8)]), 12)
    member = Member(wire, "a", topic)
    member.join()
    answer = member.acquire(topic, note="first")
    while answer.responses:
        ((part,),) = (each.partitions for each in answer.responses)
        acks = [(each.first_offset, each.last_offset, [RELEASE]) for each in part.acquired_records]
        member.acknowledge(topic, acks, note="released")
        answer = member.fetch(topic, max_wait_ms=200, note="again")
    offsets(wire, topic, "after it")


@scenario
def share_group_KG15_lower_limit_of_deliveries(wire: Wire) -> None:
    topic = filled(wire, 0, share_delivery_count_limit=2)
    wire.ask(_produced(wire, topic, [b"%d" % number for number in range(4)]), 12)
    member = Member(wire, "a", topic)
    member.join()
    for number in range(2):
        member.acquire(topic, note=f"time {number}")
        member.acknowledge(topic, [(0, 3, [RELEASE])], note=f"time {number}")
    member.fetch(topic, note="all are archived")
    offsets(wire, topic, "after it")


def _transactions(wire: Wire, isolation: str) -> tuple[Member, str]:
    """Write a record, an aborted pair, a committed record, an open one, and a record after it."""
    topic = filled(wire, 1, share_isolation_level=isolation)
    producer = init_producer_id(wire, wire.name)

    def send(values: list[bytes], sequence: int) -> None:
        records = batch(*values, producer=producer, sequence=sequence, transactional=True)
        produce(wire, topic, records, transactional_id=wire.name)

    send([b"gone", b"gone too"], 0)
    producer = _end(wire, topic, producer, commit=False)
    send([b"kept"], 0)
    producer = _end(wire, topic, producer, commit=True)
    send([b"open"], 0)
    wire.ask(_produced(wire, topic, [b"after"]), 12)
    member = Member(wire, "a", topic)
    member.join()
    return member, topic


def _end(wire: Wire, topic: str, producer: ProducerId, *, commit: bool) -> ProducerId:
    next_producer = end_txn(wire, wire.name, producer, commit)
    await_stable(wire, topic)
    await_complete(wire)
    return next_producer


@scenario
def share_group_KG16_reads_uncommitted(wire: Wire) -> None:
    member, topic = _transactions(wire, "read_uncommitted")
    member.acquire(topic)
    member.acknowledge(topic, [(0, 7, [ACCEPT])])
    offsets(wire, topic)


@scenario
def share_group_KG16_reads_committed(wire: Wire) -> None:
    member, topic = _transactions(wire, "read_committed")
    member.acquire(topic)
    member.fetch(topic, note="again")
    member.acknowledge(topic, [(0, 7, [ACCEPT])], note="beyond")
    member.acknowledge(topic, [(0, 4, [ACCEPT])], note="with the aborted ones")
    member.acknowledge(topic, [(0, 0, [ACCEPT]), (3, 5, [ACCEPT])], note="what was acquired")
    offsets(wire, topic)


@scenario
def share_group_KG17_log_starts_later(wire: Wire) -> None:
    member, topic = reading(wire, 6)
    member.acquire(topic, max_records=4, batch_size=4, note="0 to 3")
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=2)
    request = kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=9_000)
    wire.call(request)
    member.acknowledge(topic, [(1, 1, [ACCEPT])], note="deleted")
    member.acknowledge(topic, [(2, 2, [ACCEPT])], note="there")
    member.acquire(topic, note="the others")
    member.acknowledge(topic, [(3, 5, [ACCEPT])], note="the rest")
    offsets(wire, topic)


# Acknowledging


@scenario
def share_group_KG18_all_batches_or_none(wire: Wire) -> None:
    member, topic = reading(wire, 8)
    member.acquire(topic)
    member.acknowledge(topic, [(4, 4, [ACCEPT]), (50, 50, [ACCEPT])], note="one never acquired")
    member.acknowledge(topic, [(6, 12, [ACCEPT])], note="beyond the end")
    member.acknowledge(topic, [(4, 4, [RELEASE])], note="4 was not accepted")
    member.acknowledge(topic, [(4, 5, [ACCEPT])], note="one of two available")
    member.acknowledge(topic, [(3, 3, [ACCEPT]), (4, 4, [ACCEPT])], note="one of two batches available")
    member.acknowledge(topic, [(3, 3, [ACCEPT]), (5, 5, [REJECT])], note="both were not accepted")


@scenario
def share_group_KG19_refused_acknowledgements(wire: Wire) -> None:
    member, topic = reading(wire, 10)
    member.acquire(topic)
    member.acknowledge(topic, [(0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])], note="0 to 3")
    for offset in range(4):
        for kind in (ACCEPT, RELEASE):
            member.acknowledge(topic, [(offset, offset, [kind])], note=f"{offset} by {kind}")
    other = Member(wire, "b", topic)
    other.acquire(topic, note="1, by another")
    other.acknowledge(topic, [(4, 4, [ACCEPT])], note="of another")
    refused: dict[str, Batches] = {
        "last before first": [(5, 4, [ACCEPT])],
        "overlapping": [(4, 5, [ACCEPT]), (5, 6, [ACCEPT])],
        "out of order": [(6, 6, [ACCEPT]), (5, 5, [ACCEPT])],
        "unknown type": [(5, 5, [9])],
        "negative type": [(5, 5, [-1])],
        "too many types": [(5, 5, [ACCEPT, ACCEPT])],
        "too few types": [(5, 7, [ACCEPT, ACCEPT])],
        "no types": [(5, 5, [])],
        "renewal without is_renew_ack": [(5, 5, [RENEW])],
    }
    for note, acks in refused.items():
        member.acknowledge(topic, acks, note=note)
        member.fetch(topic, acks, note=f"{note}, in a fetch")
    member.acknowledge(topic, [(5, 5, [RENEW])], version=1, note="renewal in version 1")
    member.acknowledge(topic, [(4, 9, [GAP])], note="gaps")
    offsets(wire, topic)


@scenario
def share_group_acknowledges_in_a_fetch(wire: Wire) -> None:
    member, topic = reading(wire, 4)
    member.acquire(topic, max_records=2, batch_size=2, note="0 and 1")
    member.fetch(topic, [(0, 1, [ACCEPT])], note="accepts, and gets others")
    member.fetch(topic, [(2, 3, [RELEASE])], max_records=0, max_bytes=0, note="releases, and gets nothing")
    offsets(wire, topic)


@scenario
def share_group_KG27_renewals(wire: Wire) -> None:
    member, topic = reading(wire, 3)
    member.acquire(topic)
    member.acknowledge(topic, [(0, 0, [RENEW])], is_renew_ack=True, note="renews")
    member.acknowledge(topic, [(0, 2, [ACCEPT, RENEW, RELEASE])], is_renew_ack=True, note="of all kinds")
    member.acknowledge(topic, [(2, 2, [RENEW])], is_renew_ack=True, note="renews what is available")
    nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "batch_size": 0, "is_renew_ack": True}
    member.fetch(topic, [(1, 1, [RENEW])], **nothing, note="renews in a fetch")
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "max_records", "batch_size"):
        member.fetch(topic, [(1, 1, [RENEW])], **nothing | {name: 1}, note=f"renews in a fetch, {name} 1")
    set_configs(wire, {"share_renew_acknowledge_enable": False}, "without renewals")
    member.until_refused(
        topic, [(1, 1, [RENEW])], is_renew_ack=True
    )  # Kafka's broker hears of it a bit later
    member.acknowledge(topic, [(1, 1, [RENEW])], is_renew_ack=True, note="renews all the same")
    member.acknowledge(topic, [(1, 1, [ACCEPT])], is_renew_ack=True, note="accepts as if it renewed")
    member.acknowledge(topic, [(1, 1, [ACCEPT])], note="accepts")


@scenario
def share_group_KG27_locks_end(wire: Wire) -> None:
    member, topic = reading(wire, 2, share_record_lock_duration_ms=SHORT_LOCK_MS)
    member.acquire(topic, note="both")
    member.acquire(topic, note="again, after the lock")
    member.acknowledge(topic, [(0, 1, [ACCEPT])], note="late for the first, not for the second")


# Who releases at once, and who does not


@scenario
def share_group_KG20_ends_of_sessions_release(wire: Wire) -> None:
    member, topic = reading(wire, 2)
    other = Member(wire, "b", topic)
    other.join()
    member.acquire(topic, note="first")
    member.acknowledge(share_session_epoch=LEAVE, note="ends its session")
    other.acquire(topic, note="after a ShareAcknowledge")
    other.fetch(share_session_epoch=LEAVE, note="ends its session")
    member.acquire(topic, note="after a ShareFetch")
    gone = [Fetch.ForgottenTopic(topic_id=wire.topic_id(topic), partitions=[0])]
    member.fetch(forgotten_topics_data=gone, note="forgets the topic")
    other.fetch(topic, max_wait_ms=300, note="a forgotten topic releases nothing")
    member.beat("leaves", member_epoch=LEAVE)
    other.fetch(topic, max_wait_ms=300, note="nor does leaving the group")
    member.fetch(topic, share_session_epoch=0, note="a new session")
    other.fetch(topic, max_wait_ms=300, note="nor does a new session of the same member")
    member.acknowledge(topic, [(0, 1, [ACCEPT])], note="still the owner")


@scenario
def share_group_KG25_coordinator_of_a_share_partition(wire: Wire) -> None:
    topic = wire.topic()
    key = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"
    for each in (key, "bad", "g:bad:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", ":AAAAAAAAAAAAAAAAAAAAAQ:0"):
        answer = wire.ask(messages.FindCoordinatorRequest(key_type=2, coordinator_keys=[each]), 6)
        found = answer.coordinators[0]
        wire.note(f"key {each}", (found.error_code, found.node_id >= 0))
    assert topic


@scenario
def share_group_KG26_topic_is_deleted(wire: Wire) -> None:
    member, topic = reading(wire, 2)
    member.acquire(topic)
    kind = messages.DeleteTopicsRequest
    wire.ask(kind(topics=[kind.DeleteTopicState(name=topic)], timeout_ms=9_000))
    until(lambda: member._take(wire.ask(member.heartbeat())) and not member.assigned)
    member.acknowledge(topic, [(0, 0, [ACCEPT])], note="of a deleted topic")
    member.fetch(topic, note="of a deleted topic")


# Configs


@scenario
def share_group_configs(wire: Wire) -> None:
    refused: list[Mapping[str, object]] = [
        {"share_record_lock_duration_ms": 1},
        {"share_record_lock_duration_ms": 99_999_999},
        {"share_record_lock_duration_ms": "x"},
        {"share_auto_offset_reset": "none"},
        {"share_auto_offset_reset": "Earliest"},
        {"share_auto_offset_reset": "by_duration:-PT1H"},
        {"share_auto_offset_reset": "by_duration:P"},
        {"share_isolation_level": "x"},
        {"share_delivery_count_limit": 1},
        {"share_delivery_count_limit": 11},
        {"share_session_timeout_ms": 200_000},
        {"share_heartbeat_interval_ms": 99_999},
        {"share_partition_max_record_locks": 1},
        {"share_partition_max_record_locks": 99_999},
        {"share_renew_acknowledge_enable": "x"},
        {"share_assignment_interval_ms": -1},
        {"consumer_heartbeat_interval_ms": 99_999},
        {"consumer_session_timeout_ms": 99_999},
        {"nope": 1},
    ]
    for configs in refused:
        set_configs(wire, configs, str(configs))
    taken: list[Mapping[str, object]] = [
        {"share_auto_offset_reset": "by_duration:PT1H", "share_isolation_level": "read_committed"},
        {"share_auto_offset_reset": "by_duration:P1DT2.5S"},
        {"share_heartbeat_interval_ms": 700, "share_record_lock_duration_ms": " 20000 "},
        {"share_heartbeat_interval_ms": 500},
    ]
    for configs in taken:
        set_configs(wire, configs, str(configs))
        await_configs(wire, configs)
    describe_configs(wire, "all that are set")
    alter = messages.AlterConfigsRequest
    for names in (["share.delivery.count.limit"], ["nope"], []):
        configs_of = [alter.AlterableConfig(name=name, value="7") for name in names]
        resource = alter.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=wire.name, configs=configs_of
        )
        wire.call(alter(resources=[resource]), note=str(names))
    await_configs(wire, {})
    describe_configs(wire, "none that are set")
    describe_configs(wire, "the empty group", group="")


@scenario
def configured_resources_are_listed(wire: Wire) -> None:
    topic = wire.topic()
    configs = {"share_heartbeat_interval_ms": 700}
    set_configs(wire, configs)
    await_configs(wire, configs)
    kind = messages.ListConfigResourcesRequest
    for types in ([], [2], [32], [32, 2, 32], [4, 8], [16], [3], [2, 3]):
        answer = wire.ask(kind(resource_types=types))
        shown = [each for each in answer.config_resources if each.resource_name in (topic, wire.name, "0")]
        found = sorted((each.resource_type, str(each.resource_name)) for each in shown)
        wire.note(f"of types {types}", (answer.error_code, found))
    wire.call(kind(), 0, note="version 0: client metrics")


SHOWN = (
    *("share.heartbeat.interval.ms", "share.isolation.level", "share.auto.offset.reset"),
    *("share.record.lock.duration.ms", "share.delivery.count.limit", "share.renew.acknowledge.enable"),
)


def _configs(wire: Wire, group: str) -> Any:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=list(SHOWN)
    )
    return wire.ask(kind(resources=[resource], include_synonyms=True))


def describe_configs(wire: Wire, note: str, group: str | None = None) -> None:
    answer = _configs(wire, wire.name if group is None else group)
    for result in answer.results:
        wire.note(f"text of {note}", result.error_message)
        result.configs.sort(key=lambda config: str(config.name))
    wire.note(f"DescribeConfigs {note}", answer)


def await_configs(wire: Wire, configs: Mapping[str, object]) -> None:
    """Wait until the broker shows these configs, or none that are set: the controller has them earlier."""
    wanted = {name.replace("_", "."): str(value).strip() for name, value in configs.items()}

    def is_shown() -> bool:
        (result,) = _configs(wire, wire.name).results
        found = {config.name: config.value for config in result.configs if config.config_source == 8}
        return all(found.get(name) == value for name, value in wanted.items()) and (
            bool(configs) or not found
        )

    until(is_shown)
