"""A leader that a test plays: it sees what a follower asks, and says what it is answered.

A node of Kafka asks it over a socket (`SocketLeader`), one of an embedded broker by calls (`CalledLeader`).
To the test both are a `PlayedLeader`.
"""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing import Broker
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.replication.replica import EpochEnd, FollowerFetch, FollowerFetched
from tests.support.patience import HANG_SECONDS

EARLIEST = -2
UNUSED_PORT = 9
POKE_SECONDS = 0.05
NO_EPOCH = -1


class Asked(NamedTuple):
    """What a follower asks."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    names_its_start: bool  # by its broker epoch


@dataclass
class Told:
    """What it is answered."""

    batches: list[bytes] = field(default_factory=list)
    high_watermark: int = 0
    diverging: tuple[int, int] | None = None
    error: ErrorCode = ErrorCode.NONE


class PlayedLeader(ABC):
    """The base: the leader of one topic's partition 0 at a time.

    Attributes
    ----------
    node_id, port : int
        The node that is played, and the port of its listener.
    log_start_offset, log_end_offset : int
        Of its log, for a follower whose offset is out of range. `lead` begins with an empty log.
    """

    def __init__(self, node_id: int, port: int) -> None:
        self.node_id = node_id
        self.port = port
        self.log_start_offset = self.log_end_offset = 0
        self._changed = threading.Condition()
        self._asked: Asked | None = None
        self._told: Told | None = None
        self._high_watermark = 0

    def lead(self, topic: str, topic_id: bytes) -> None:
        """Play the leader of this topic, with an empty log."""
        with self._changed:
            self.log_start_offset = self.log_end_offset = 0
            self._asked = self._told = None
            self._high_watermark = 0
            self._changed.notify_all()
        self._begin(topic, topic_id)

    @abstractmethod
    def _begin(self, topic: str, topic_id: bytes) -> None:
        """Have followers of the topic ask."""

    @abstractmethod
    def poke(self) -> None:
        """Have the follower ask again, if it does not by itself."""

    def asked(self, leader_epoch: int | None = None) -> Asked:
        """Return what the follower asks now, in that term if one is given; what was told before has been
        taken then.
        """
        found: list[Asked] = []

        def is_there() -> bool:
            if self._asked is None or self._told is not None:
                return False
            if leader_epoch in (None, self._asked.leader_epoch):
                found.append(self._asked)
            return bool(found)

        self._wait_until(is_there)
        return found[0]

    def tell(self, *batches: bytes, **fields: Any) -> Asked:
        """Answer the follower, as `Told` has it, and return what it asks then."""
        self._give(Told([*batches], **fields))
        return self.asked()

    def refuse(self, error: ErrorCode) -> None:
        """Answer a follower that need not ask again, and return when it has the answer."""
        self._give(Told(error=error))
        self._wait_until(lambda: self._told is None)

    def _give(self, told: Told) -> None:
        with self._changed:
            self._told = told
            self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while time.monotonic() < deadline:
            self.poke()
            with self._changed:
                if self._changed.wait_for(condition, POKE_SECONDS):
                    return
        raise AssertionError("the follower does not ask")

    def _answer(self, asked: Asked, wait_seconds: float = 0.0) -> Told:
        """Return what the follower is to be told, and take that; if there is none in time, the same high
        watermark as last: a follower of Kafka would take a lower one.

        A Fetch that waits takes nothing once there is a later one: a follower that became the leader, and
        follows again, has closed the connection of the earlier one.
        """
        with self._changed:
            self._asked = asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._told or self._asked is not asked, wait_seconds)
            if self._asked is not asked:
                return Told(high_watermark=self._high_watermark)
            told = self._told
            if told is not None or wait_seconds:  # else it asks no more
                self._asked = self._told = None
            if told is not None and told.error == ErrorCode.NONE:
                self._high_watermark = told.high_watermark
            return told or Told(high_watermark=self._high_watermark)


class SocketLeader(PlayedLeader):
    """A leader for a node of Kafka. A context manager."""

    def __init__(self, node_id: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        super().__init__(node_id, self._server.getsockname()[1])
        self._topic_id = b""
        self._connections: list[socket.socket] = []
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in (self._server, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # a thread that waits for it wakes up
            each.close()

    def _begin(self, topic: str, topic_id: bytes) -> None:
        self._topic_id = topic_id

    def poke(self) -> None:
        pass

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        incoming = connection.makefile("rb")
        while not self._is_over.is_set():
            try:
                size = int.from_bytes(incoming.read(4), "big")
                frame = incoming.read(size)
                if not frame:
                    return
                request = codec.decode_request(frame)
                response = self._respond(request.message)
                connection.sendall(
                    b"".join(codec.encode_response(response, request.version, request.correlation_id))
                )
            except OSError:
                return

    def _respond(self, request: Any) -> Any:
        if isinstance(request, messages.ListOffsetsRequest):
            return self._list_offsets(request)
        assert isinstance(request, messages.FetchRequest), request
        kind = messages.FetchResponse
        topics = [
            kind.FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    self._fetch(request, wanted)
                    if topic.topic_id == self._topic_id
                    else kind.PartitionData(partition_index=wanted.partition)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        if all(topic.topic_id != self._topic_id for topic in request.topics):
            self._is_over.wait(request.max_wait_ms / 1000)
        return kind(responses=topics)  # without one of the partitions Kafka would not take it

    def _fetch(self, request: Any, wanted: Any) -> messages.FetchResponse.PartitionData:
        asked = Asked(
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            request.replica_state.replica_epoch != NO_EPOCH,
        )
        told = self._answer(asked, request.max_wait_ms / 1000)
        kind = messages.FetchResponse
        answer = kind.PartitionData(
            partition_index=0,
            error_code=told.error,
            high_watermark=told.high_watermark,
            last_stable_offset=told.high_watermark,
            log_start_offset=self.log_start_offset,
            records=b"".join(told.batches),
        )
        if told.diverging is not None:
            epoch, end_offset = told.diverging
            answer.diverging_epoch = kind.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return answer

    def _list_offsets(self, request: Any) -> Any:
        kind = messages.ListOffsetsResponse
        (topic,) = request.topics
        (wanted,) = topic.partitions
        is_earliest = wanted.timestamp == EARLIEST
        found = kind.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            offset=self.log_start_offset if is_earliest else self.log_end_offset,
            leader_epoch=wanted.current_leader_epoch,
        )
        return kind(topics=[kind.ListOffsetsTopicResponse(name=topic.name, partitions=[found])])


class CalledLeader(PlayedLeader):
    """A leader for node 0 of an embedded broker."""

    def __init__(self, node_id: int, broker: Broker) -> None:
        super().__init__(node_id, UNUSED_PORT)
        self._broker = broker
        self._topic = ""

    def _begin(self, topic: str, topic_id: bytes) -> None:
        self._topic = topic
        replica = _CalledReplica(self, topic)
        self._broker._call(lambda core: core.state.replication.play_leader((topic, 0), replica))

    def poke(self) -> None:
        def ask(core: Any) -> None:
            core.state.replication.changed(core.state.cluster.partition(self._topic, 0))

        self._broker._call(ask)

    def answer(self, topic: str, asked: Asked) -> Told:
        """Return what a follower is told at once: nothing, if another topic is played by now."""
        return self._answer(asked) if topic == self._topic else Told()


class _CalledReplica:
    """What a follower of an embedded broker sees of the leader of a topic."""

    leadership = None  # what a leader knows of its followers, the test knows

    def __init__(self, leader: CalledLeader, topic: str) -> None:
        self.node_id = leader.node_id
        self.log = self
        self._leader = leader
        self._topic = topic

    @property
    def log_start_offset(self) -> int:
        return self._leader.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._leader.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._leader.log_end_offset

    def read_as_follower(self, asked: FollowerFetch) -> FollowerFetched:
        names_its_start = asked.broker_epoch != NO_EPOCH
        said = Asked(
            asked.leader_epoch, asked.offset, asked.last_epoch, asked.log_start_offset, names_its_start
        )
        told = self._leader.answer(self._topic, said)
        if told.error != ErrorCode.NONE:
            raise BrokerError(told.error)
        return FollowerFetched(
            [memoryview(each) for each in told.batches],
            told.high_watermark,
            self.log_start_offset,
            None if told.diverging is None else EpochEnd(*told.diverging),
        )

    def note_follower(self, asked: FollowerFetch, answer: FollowerFetched, now_ms: int) -> None:
        """Note nothing."""
