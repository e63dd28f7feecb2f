"""A ShareEngine, an embedded cluster, and share sessions that a test scripts, in virtual time.

The brokers have the rules of KIP-932 that a member can see: epochs of members and sessions, and which offsets
it has acquired. A test makes them refuse or forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kbatch
from kbatch.core.client.calls import Call
from kbatch.core.consumer.share_engine import ShareEngine
from kbatch.core.consumer.share_fetcher import Acquired, ShareFailed
from kbatch.core.consumer.share_session import Acknowledge, AcquiredAt
from kbatch.errors import ErrorCode, KafkaError
from kbatch.metrics import SHARE_METRICS
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.reading import FIRST, Reading

APIS = {76: (1, 1), 78: (1, 2), 79: (1, 2)}
INTERVAL_MS, LOCK_MS, ANSWER_MS = 5000, 30_000, 100
_Beat, _Fetch = messages.ShareGroupHeartbeatResponse, messages.ShareFetchResponse
_Acknowledge = messages.ShareAcknowledgeResponse


class ShareReading(Reading):
    """A member of a share group, and brokers that have records for it.

    Attributes
    ----------
    available : dict of TopicPartition to list of int
        Offsets that brokers give next.
    acknowledged : dict of TopicPartition to dict of int to int
        The types that brokers got.
    epoch, session_epoch : int or None
        What they expect next; None if they do not have the member or the session.
    beat_codes, leave_codes, session_codes, part_codes, acknowledge_codes : list of ErrorCode
        Refusals to come.
    """

    engine_class = ShareEngine
    metrics = SHARE_METRICS
    engine: ShareEngine

    def __init__(self, *, partitions: int = 1, nodes: int = 1, **settings: Any) -> None:
        settings.setdefault("group_id", "g")
        versions = settings.pop("versions", APIS)
        super().__init__(partitions=partitions, nodes=nodes, versions=versions, **settings)
        self.assigned = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.available: dict[TopicPartition, list[int]] = {}
        self.acknowledged: dict[TopicPartition, dict[int, int]] = {}
        self.epoch: int | None = None
        self.session_epoch: int | None = None
        self.beat_codes: list[ErrorCode] = []
        self.leave_codes: list[ErrorCode] = []
        self.session_codes: list[ErrorCode] = []
        self.part_codes: list[ErrorCode] = []
        self.acknowledge_codes: list[ErrorCode] = []
        self.in_session: set[TopicPartition] = set()
        for api, handle in (
            ("ShareGroupHeartbeat", self._heartbeat),
            ("ShareFetch", self._fetch),
            ("ShareAcknowledge", self._acknowledge),
        ):
            self.faults.intercept(api, handle)
        self.faults.delay("ShareFetch", ANSWER_MS / 1000)

    @property
    def topic_id(self) -> bytes:
        return self.broker.topic_id(TOPIC)

    # The brokers

    def _heartbeat(self, request: Any) -> Any:
        if request.member_epoch < 0:
            if self.leave_codes:
                return _Beat(error_code=self.leave_codes.pop(0))
            self.epoch = None
            return _Beat(member_id=request.member_id, member_epoch=-1)
        if self.beat_codes:
            self.epoch = None
            return _Beat(error_code=self.beat_codes.pop(0), error_message="said by the broker")
        if request.member_epoch == 0:
            assert request.subscribed_topic_names
            self.epoch = 1
        elif request.member_epoch != self.epoch:
            return _Beat(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        assert self.epoch is not None
        part = _Beat.TopicPartitions(
            topic_id=self.topic_id, partitions=[each.partition for each in self.assigned]
        )
        return _Beat(
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=_Beat.Assignment(topic_partitions=[part]),
        )

    def _refusal(self, request: Any) -> int:
        """Return what is wrong with a request's session, and count its epoch."""
        if self.session_codes:
            self.session_epoch = None
            return self.session_codes.pop(0)
        if request.share_session_epoch == 0:
            self.session_epoch = 0
            self.in_session.clear()
        elif self.session_epoch is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        elif request.share_session_epoch not in (self.session_epoch, -1):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.session_epoch = None if request.share_session_epoch < 0 else self.session_epoch + 1
        return 0

    def _note(self, request: Any) -> dict[TopicPartition, int]:
        """Take acknowledgements, and return a code for each partition that has some."""
        codes: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for part in topic.partitions:
                partition = TopicPartition(TOPIC, part.partition_index)
                if not part.acknowledgement_batches:
                    continue
                assert request.share_session_epoch, "a request that opens a session acknowledges nothing"
                codes[partition] = self.acknowledge_codes.pop(0) if self.acknowledge_codes else 0
                for batch in part.acknowledgement_batches if not codes[partition] else ():
                    types = batch.acknowledge_types
                    for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                        kind = types[0] if len(types) == 1 else types[index]
                        self.acknowledged.setdefault(partition, {})[offset] = kind
        return codes

    def _fetch(self, request: Any) -> Any:
        code = self._refusal(request)
        if code:
            return _Fetch(error_code=code)
        acknowledged = self._note(request)
        for topic in request.topics:
            self.in_session |= {TopicPartition(TOPIC, each.partition_index) for each in topic.partitions}
        for topic in request.forgotten_topics_data:
            self.in_session -= {TopicPartition(TOPIC, each) for each in topic.partitions}
        parts = []
        for partition in sorted(self.in_session):
            answer = _Fetch.PartitionData(
                partition_index=partition.partition,
                acknowledge_error_code=acknowledged.get(partition, 0),
                records=b"",
            )
            if self.part_codes:
                answer.error_code = self.part_codes.pop(0)
                leader, epoch = self.cluster.partition(*partition).leader, 99
                answer.current_leader = _Fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            elif offsets := self.available.pop(partition, []):
                answer.records, answer.acquired_records = batch_of(offsets), acquired_of(offsets)
            parts.append(answer)
        topics = [_Fetch.ShareFetchableTopicResponse(topic_id=self.topic_id, partitions=parts)]
        return _Fetch(acquisition_lock_timeout_ms=LOCK_MS, responses=topics)

    def _acknowledge(self, request: Any) -> Any:
        code = self._refusal(request)
        if code:
            return _Acknowledge(error_code=code)
        parts = [
            _Acknowledge.PartitionData(partition_index=each.partition, error_code=code)
            for each, code in self._note(request).items()
        ]
        topic = _Acknowledge.ShareAcknowledgeTopicResponse(topic_id=self.topic_id, partitions=parts)
        return _Acknowledge(responses=[topic])

    # The program

    def join(self) -> None:
        """Join the group, and open a session."""
        self.engine.subscribe(frozenset([TOPIC]))
        self.advance(ANSWER_MS)
        self.poll()

    def poll(self, parts: Mapping[AcquiredAt, Mapping[int, int]] | None = None) -> Acknowledge:
        """Wait for records a while, and acknowledge others."""
        self.engine.note_poll(self.now_ns)
        call = Acknowledge(parts or {})
        self.engine.acknowledge(call, 10)
        self.advance(2 * ANSWER_MS)
        self.engine.stop_acquiring()
        self.advance(2 * ANSWER_MS)
        return call

    def acknowledge(self, types: Mapping[int, int], partition: TopicPartition = FIRST) -> Acknowledge:
        call = Acknowledge({self.at(partition): types})
        self.engine.acknowledge(call)
        self.run()
        return call

    def at(self, partition: TopicPartition = FIRST, node_id: int = 0) -> AcquiredAt:
        return AcquiredAt(node_id, self.topic_id, partition)

    def leave(self) -> Call:
        call = Call("close")
        self.engine.leave(call)
        self.run()
        return call

    @property
    def acquired(self) -> list[Acquired]:
        results: list[Any] = self.results
        return [each for each in results if isinstance(each, Acquired)]

    @property
    def failures(self) -> list[KafkaError]:
        results: list[Any] = self.results
        return [each.error for each in results if isinstance(each, ShareFailed)]


def batch_of(offsets: list[int]) -> bytes:
    """Return records at these offsets, each in a batch of its own."""
    return b"".join(kbatch.encode([(None, b"%d" % offset)], base_offset=offset) for offset in offsets)


def acquired_of(offsets: list[int]) -> list[Any]:
    return [_Fetch.AcquiredRecords(first_offset=each, last_offset=each, delivery_count=1) for each in offsets]
