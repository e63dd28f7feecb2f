"""A Fetch request in flight, and the reading of its answer.

One native step reads an answer (`read_fetch_answer`). Those it leaves to the codec, which explains every
fault, are read by the codec and brought into the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.fetch.fetch_answer import read_fetch_answer
from kbatch.core.client.api_versions import read_response
from kbatch.protocol import features
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.connections import Request
    from kbatch.core.consumer.fetch_session import FetchSession, Wanted
    from kbatch.core.consumer.partition_state import PartitionState


class FetchAttempt:
    """A Fetch request and the partitions that it asks for.

    Attributes
    ----------
    node_id : int
    version : int
    session : FetchSession
    partitions : dict[TopicPartition, PartitionState]
        The partitions whose answers count, also those that an incremental request does not name.
    wanted : dict[TopicPartition, Wanted]
        What it asks of each.
    topic_names : dict[bytes, str]
        The names of topics by id.
    reserved_bytes, frame_bytes : int
        The bytes reserved for the answer, and its size.
    sent_ns : int
    is_full : bool
        True if the answer has all the partitions; in a session it has those that have changed.
    """

    __slots__ = (
        "frame_bytes",
        "is_full",
        "node_id",
        "partitions",
        "reserved_bytes",
        "sent_ns",
        "session",
        "topic_names",
        "version",
        "wanted",
    )

    def __init__(
        self, node_id: int, version: int, session: FetchSession, reserved_bytes: int, sent_ns: int
    ) -> None:
        self.node_id = node_id
        self.version = version
        self.session = session
        self.reserved_bytes = reserved_bytes
        self.sent_ns = sent_ns
        self.frame_bytes = 0
        self.is_full = True
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.wanted: dict[TopicPartition, Wanted] = {}
        self.topic_names: dict[bytes, str] = {}

    def read(self, request: Request, frame: bytes | memoryview) -> Any:
        """Return the answer in a frame. Raise ProtocolError if there is none."""
        self.frame_bytes = len(frame)
        answer = read_fetch_answer(frame, request.api_version)
        return _from_message(read_response(request, frame)) if answer is None else answer

    def state_of(self, answer: Any) -> PartitionState | None:
        """Return the partition of a part of the answer; None if this request's answer for it does not count
        any more, or the request did not ask for it.
        """
        by_name = self.version < features.FETCH_TOPIC_IDS
        topic = answer.topic if by_name else self.topic_names.get(answer.topic_id, "")
        state = self.partitions.get(TopicPartition(topic, answer.partition))
        return state if state is not None and state.in_flight is self else None


class _Answer(NamedTuple):
    """An answer that the codec has read, with the attributes of FetchAnswer."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[_PartitionAnswer]
    node_endpoints: list[tuple[int, str, int, str | None]]


class _PartitionAnswer(NamedTuple):
    """A part of such an answer, with the attributes of PartitionAnswer."""

    topic: str
    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    leader_id: int
    leader_epoch: int
    preferred_read_replica: int
    aborted: tuple[tuple[int, int], ...] | None
    records: memoryview | None


def _from_message(message: Any) -> _Answer:
    partitions = [
        _PartitionAnswer(
            topic.topic,
            topic.topic_id,
            each.partition_index,
            each.error_code,
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
            each.diverging_epoch.epoch,
            each.diverging_epoch.end_offset,
            each.current_leader.leader_id,
            each.current_leader.leader_epoch,
            each.preferred_read_replica,
            None
            if each.aborted_transactions is None
            else tuple((aborted.producer_id, aborted.first_offset) for aborted in each.aborted_transactions),
            None if each.records is None else memoryview(each.records),
        )
        for topic in message.responses
        for each in topic.partitions
    ]
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in message.node_endpoints]
    return _Answer(message.throttle_time_ms, message.error_code, message.session_id, partitions, nodes)
