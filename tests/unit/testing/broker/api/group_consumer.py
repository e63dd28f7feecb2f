"""A member of a consumer group, a group's committed offsets, and its coordinator: for tests of BrokerCore."""

from __future__ import annotations

from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import GROUP, SAMPLES, Answer, VirtualBroker

SESSION_MS = 10_000


class Consumer:
    """A member of the group, one request after another."""

    def __init__(self, broker: VirtualBroker, group: str = GROUP) -> None:
        self.client = broker.client()
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.joining: Answer | None = None

    def join(self) -> Answer:
        """Twice, where the member id has to be got first (KIP-394)."""
        kind = messages.JoinGroupRequest
        request = kind(
            group_id=self.group,
            member_id=self.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=[kind.JoinGroupRequestProtocol(name="range", metadata=self.group.encode())],
        )
        self.joining = self.client.send(request)
        if self.joining.is_there and self.joining.message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.joining.message.member_id
            return self.join()
        return self.joining

    @property
    def joined(self) -> Any:
        assert self.joining is not None
        answer = self.joining.message
        assert answer.error_code == 0
        self.generation = answer.generation_id
        return answer

    def sync(self, **assignments: bytes) -> Answer:
        kind = messages.SyncGroupRequest
        return self.client.send(
            kind(
                group_id=self.group,
                member_id=self.member_id,
                generation_id=self.generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    kind.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in assignments.items()
                ],
            )
        )

    def heartbeat(self) -> ErrorCode:
        request = messages.HeartbeatRequest(
            group_id=self.group, member_id=self.member_id, generation_id=self.generation
        )
        return ErrorCode(self.client.ask(request).error_code)

    def leave(self) -> ErrorCode:
        kind = messages.LeaveGroupRequest
        request = kind(group_id=self.group, members=[kind.MemberIdentity(member_id=self.member_id)])
        return ErrorCode(self.client.ask(request).members[0].error_code)

    def commit(self, offset: int) -> ErrorCode:
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="note")
        topic_id = self.client.broker.topic_id()
        answer = self.client.ask(
            kind(
                group_id=self.group,
                member_id=self.member_id,
                generation_id_or_member_epoch=self.generation,
                topics=[kind.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])],
            )
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(broker: VirtualBroker, version: int = 10, *, stable: bool = False) -> tuple[int, int]:
    """Return (error code, offset) of the topic's partition 0."""
    request: Any = SAMPLES["OffsetFetch"](broker, version)
    request.require_stable = stable
    answer = broker.client().ask(request, version)
    if version >= 8:
        (answer,) = answer.groups
    if answer.error_code:
        return answer.error_code, -1
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def find_coordinators(broker: VirtualBroker, keys: list[str], key_type: int = 0, node_id: int = 0) -> Any:
    request = messages.FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)
    return broker.client(node_id).ask(request).coordinators
