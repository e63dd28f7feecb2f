"""A whole engine with scripted brokers: the tests control what brokers answer, and when.

Theory of operation. `Sending` is a real ProducerEngine over a real RecordAccumulator. What it writes is read
by the protocol's codec; ApiVersions, Metadata and InitProducerId are answered at once, as the script says,
and Produce requests wait until the test answers them. Time is virtual, and nothing is left to chance but the
jitter of back-offs, which are constant here unless a test wants them to grow.

Batches go by the value of their first record ("b0"), partitions by a number of topic "t". A batch holds one
record unless `batch_size` is given. Whatever the test, each request is checked: the same producer id, epoch
and sequence always come with the same bytes, no batch is sent that is done, and no more batches of a
partition are unanswered than are allowed.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import kbatch
from kbatch._native.batch.delivery import Completion, Delivery
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.in_flight import PartitionState
from kbatch._native.send.lane import Lane
from kbatch._native.send.sealing import SENDER_BYTES, SealPolicy
from kbatch.config import ProducerConfig
from kbatch.core.client.actions import Close, Connect, Resolve, Write, release
from kbatch.core.producer.actions import Seal
from kbatch.core.producer.engine import ProducerEngine
from kbatch.errors import ErrorCode
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec, messages
from tests.support.accumulating import is_whole
from tests.support.core_shell import VERSIONS, address, versions_answer
from tests.support.links import Asked, Link, Sent

MS = 1_000_000
NEVER = 2**63 - 1
TOPIC = "t"
OK = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCER_ID = 4242
# Back-offs without growth, and so without jitter.
BACKOFF_MS = 100
SETTINGS = {
    "bootstrap_servers": "boot:9092",
    "client_id": "scripted",
    "linger_ms": 0,
    "batch_size": 0,
    "retry_backoff_ms": BACKOFF_MS,
    "retry_backoff_max_ms": BACKOFF_MS,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 50,
}
_Produced = messages.ProduceResponse
_PartitionAnswer = messages.ProduceResponse.PartitionProduceResponse


class Reply(NamedTuple):
    """A broker's answer to a batch; `leader` is the node that leads the partition now (KIP-951). If
    `is_silent`, the response leaves the batch out.
    """

    code: int = OK
    offset: int | None = None
    append_time_ms: int = -1
    log_start: int = -1
    text: str | None = None
    records: Mapping[int, str | None] = {}
    leader: int | None = None
    is_silent: bool = False


class Sending:
    """An engine that knows topic "t", and has a producer id unless `identities` say otherwise.

    Parameters
    ----------
    partitions : int
        All led by node 1; node 2 leads none.
    identities : tuple
        What InitProducerId answers, in turn: a code, (producer id, epoch), "drop" for a connection that ends
        or "wait" for no answer; then producer ids from PRODUCER_ID on, with epoch 0.
    first_sequence : int
    versions : dict
        What nodes understand, where it is not all.
    **settings
        As of a ProducerConfig.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        identities: tuple[Any, ...] = (),
        first_sequence: int = 0,
        versions: Mapping[int, tuple[int, int]] | None = None,
        compression: str = "none",
        **settings: Any,
    ) -> None:
        self.config = config = ProducerConfig(**{**SETTINGS, **settings})
        self.now_ns = 1_000_000 * MS
        self.leaders = [1] * partitions
        self.leader_epochs = [0] * partitions
        self.topic_id = bytes(15) + b"t"
        self.nodes = {1, 2}
        self.unreachable: set[int] = set()
        self.refusal: Exception = ConnectionRefusedError("unreachable")  # of those
        self.resolves = True
        self.writes_at_once = True
        self.seals_at_once = True
        self.lets_go = True
        self.was_woken = False
        self.kept: list[bytes | memoryview] = []
        self.metadata_waits = False
        self.unsealed: list[ProducerBatch] = []
        self.identities = deque(identities)
        self.asked: Counter[str] = Counter()
        self.links: dict[int, Link] = {}
        self.waiting_requests: list[Asked] = []
        self.sent: list[Sent] = []
        self.deliveries: dict[str, Delivery] = {}
        self.completed: list[Completion] = []
        self._versions = {**VERSIONS, **(versions or {})}
        # by node: what it offers instead; None for a request that it lacks
        self.node_versions: dict[int, dict[int, tuple[int, int] | None]] = {}
        self._next_producer_id = PRODUCER_ID
        self._next_offset: Counter[int] = Counter()
        self._bytes: dict[tuple[int, tuple[int, int, int]], bytes] = {}
        self.accumulator = RecordAccumulator(
            batch_size=config.batch_size,
            buffer_memory=config.buffer_memory,
            compression=compression,
            linger_ns=config.linger_ms * MS,
            retry_backoff_ns=config.retry_backoff_ms * MS,
            retry_backoff_max_ns=config.retry_backoff_max_ms * MS,
            delivery_timeout_ns=config.delivery_timeout_ms * MS,
            partition_availability_timeout_ns=config.partitioner_availability_timeout_ms * MS,
            transactional=config.transactional_id is not None,
            seal_policy=SealPolicy(by_appender=False, inline_bytes=SENDER_BYTES),
            poison=True,
            wake=self._wake,
        )
        self.metrics = MetricsRegistry(config.client_id)
        self.engine = ProducerEngine(
            config,
            self.accumulator,
            random=random.Random(1),
            registry=self.metrics,
            now_ns=self.now_ns,
            first_counter=first_sequence,
        )
        self.refresh()
        if not identities:
            self.advance(1000)  # the pause after an answer with metadata

    def warmed(self) -> Self:
        """Let brokers have a batch of each partition ("w0", ...), so that sequences and offsets continue at
        1.
        """
        for partition in range(len(self.leaders)):
            self.send(f"w{partition}", partition=partition)
            self.answer(**{f"w{partition}": OK})
        return self

    def _wake(self) -> None:
        self.was_woken = True

    # The application

    def put(self, *names: str, partition: int = 0, size: int = 0, **rest: Any) -> None:
        """Accept records without waking the sender."""
        for name in names:
            value = name.encode().ljust(size, b".")
            arguments = (TOPIC, partition, None, value, None, 1000, self.now_ns, rest.get("on_delivery"))
            delivery = self.accumulator.append(*arguments, in_callback=rest.get("in_callback", False))
            assert isinstance(delivery, Delivery), delivery
            self.deliveries[name] = delivery

    def send(self, *names: str, **rest: Any) -> Self:
        """Accept records, and run the sender after each."""
        for name in names:
            self.put(name, **rest)
            self.run()
        return self

    def offset(self, name: str) -> int:
        return self.deliveries[name].result(0).offset

    def error(self, name: str) -> Any:
        """Return the error of a failed record."""
        error = self.deliveries[name].exception(0)
        assert error is not None, name
        return error

    def is_done(self, name: str) -> bool:
        return self.deliveries[name].done()

    @property
    def is_whole(self) -> bool:
        """True if all memory is released."""
        return is_whole(self.accumulator)

    # The brokers' view

    @property
    def waiting(self) -> list[str]:
        """Return the batches of unanswered requests, in order of arrival."""
        return [batch.name for asked in self.waiting_requests for batch in asked.batches]

    def stamp(self, name: str) -> tuple[int, int, int]:
        """Return producer id, epoch and sequence of a batch when it was last sent."""
        return self.attempts(name)[-1].stamp

    def sequence(self, name: str) -> int:
        return self.stamp(name)[2]

    def epoch(self, name: str) -> int:
        return self.stamp(name)[1]

    def attempts(self, name: str) -> list[Sent]:
        """Return each attempt of a batch."""
        return [batch for batch in self.sent if batch.name == name]

    def state(self, partition: int = 0) -> PartitionState:
        return self.engine._sender._states[TOPIC, partition]

    def next_sequence(self, partition: int = 0) -> int:
        return self.state(partition).next_counter

    def move(self, node_id: int, partition: int = 0) -> None:
        """Let another node lead the partition; metadata requests return it."""
        self.leaders[partition] = node_id
        self.leader_epochs[partition] += 1

    def refresh(self) -> None:
        """Request newer metadata, as the application does."""
        self.engine.want_topic(TOPIC)
        self.run()

    # Answers

    def answer(self, *, throttle_ms: int = 0, **replies: int | Reply) -> None:
        """Answer the requests with these batches, in this order, and run the sender."""
        self.hear(throttle_ms=throttle_ms, **replies)
        self.run()

    def hear(self, *, throttle_ms: int = 0, **replies: int | Reply) -> None:
        """Answer the requests with these batches without running the sender."""
        while replies:
            name = next(iter(replies))
            asked = next(a for a in self.waiting_requests if any(b.name == name for b in a.batches))
            own = [(b, _reply(replies.pop(b.name))) for b in asked.batches]
            topic = _Produced.TopicProduceResponse(
                name=TOPIC,
                topic_id=self.topic_id,
                partition_responses=[
                    self._partition_answer(batch, reply) for batch, reply in own if not reply.is_silent
                ],
            )
            endpoints = [
                _Produced.NodeEndpoint(node_id=reply.leader, host=f"n{reply.leader}", port=9092)
                for _, reply in own
                if reply.leader is not None
            ]
            message = _Produced(responses=[topic], throttle_time_ms=throttle_ms, node_endpoints=endpoints)
            self._give(asked, message)

    def _partition_answer(self, batch: Sent, reply: Reply) -> Any:
        offset = -1 if reply.offset is None else reply.offset
        if reply.code == ErrorCode.MESSAGE_TOO_LARGE:  # parts may come in its place
            self._bytes.pop((batch.partition, batch.stamp), None)
        if reply.code == OK and reply.offset is None:
            offset = self._next_offset[batch.partition]
            self._next_offset[batch.partition] += batch.record_count
        answer = _PartitionAnswer(
            index=batch.partition,
            error_code=reply.code,
            base_offset=offset,
            log_append_time_ms=reply.append_time_ms,
            log_start_offset=reply.log_start,
            error_message=reply.text,
            record_errors=[
                _Produced.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in reply.records.items()
            ],
        )
        if reply.leader is not None:
            answer.current_leader = _Produced.LeaderIdAndEpoch(
                leader_id=reply.leader, leader_epoch=self.leader_epochs[batch.partition]
            )
        return answer

    def answer_identity(self, identity: int | tuple[int, int]) -> None:
        """Answer the waiting InitProducerId."""
        self._give(self._asked_for(), _identity_answer(identity))
        self.run()

    def answer_metadata(self) -> None:
        """Answer the waiting Metadata request (`metadata_waits`)."""
        asked = self._asked_for()
        self._give(asked, self._metadata(asked.request.message))
        self.run()

    def _asked_for(self) -> Asked:
        (asked,) = [a for link in self.links.values() for a in link.unanswered if not a.batches]
        return asked

    def _give(self, asked: Asked, message: Any) -> None:
        link, request = asked.link, asked.request
        assert link.unanswered[0] is asked, "a node answers in the order of the requests"
        self._forget(link.unanswered.popleft())
        frame = b"".join(codec.encode_response(message, request.version, request.correlation_id))
        self._receive(link, frame)
        self._serve(link)

    def _receive(self, link: Link, frame: bytes) -> None:
        self.engine.handle_bytes(link.connection_id, frame, self.now_ns)

    def _serve(self, link: Link) -> None:
        """Return the node's default answer, when it is its turn."""
        if link.unanswered and not link.unanswered[0].batches and not link.unanswered[0].is_held:
            self._answer_at_once(link.unanswered[0])

    def _forget(self, asked: Asked) -> None:
        if asked in self.waiting_requests:
            self.waiting_requests.remove(asked)

    # The network

    def drop(self, node_id: int = 1, error: Exception | None = None) -> None:
        """Close the connection to a node; unanswered requests stay unanswered."""
        (link,) = [link for link in self.links.values() if link.node_id == node_id]
        self._end(link)
        error = error or ConnectionResetError("dropped")
        self.engine.handle_closed(link.connection_id, error, self.now_ns)
        self.run()

    def cut_off(self, node_id: int = 1) -> None:
        """Break the connection and make the node unreachable."""
        self.unreachable.add(node_id)
        if any(link.node_id == node_id for link in self.links.values()):
            self.drop(node_id)

    def _end(self, link: Link) -> None:
        self.kept += link.pending
        if self.lets_go:
            self.let_go()
        for asked in link.unanswered:
            self._forget(asked)
        del self.links[link.connection_id]

    def let_go(self) -> None:
        """Release the bytes of connections that have ended."""
        release(self.kept)
        self.kept.clear()

    def write(self, size_bytes: int = 2**31) -> None:
        """Write some pending bytes, if `writes_at_once` is off."""
        for link in list(self.links.values()):
            self._write(link, size_bytes)
        self.run()

    def _write(self, link: Link, size_bytes: int) -> None:
        taken = link.take(size_bytes)
        if taken:
            arrived = [self._read(link, codec.decode_request(frame)) for frame in link.frames()]
            self.engine.handle_written(link.connection_id, taken, self.now_ns)
            for asked in arrived:
                self._arrive(asked)

    # Time

    def run(self) -> None:
        """Run the sender until there is nothing to do at this time, and run callbacks."""
        for _ in range(500):
            was_quiet = not self.was_woken and self.engine.is_quiet(self.now_ns)
            self.was_woken = False
            self.engine.run(self.now_ns)
            actions = self.engine.poll_actions()
            assert not (was_quiet and actions), f"the engine was quiet, and asked for {actions}"
            for action in actions:
                _PERFORM[type(action)](self, action)
            if not actions and self.engine.deadline_ns(self.now_ns) > self.now_ns:
                break
        else:
            raise AssertionError("there is always something to do: the sender spins")
        self.engine.observe(self.now_ns)
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        self._complete(self.engine.poll_completed())

    def _complete(self, completed: list[Completion]) -> None:
        for completion in completed:
            assert not any(completion is other for other in self.completed), "completed twice"
            self.completed.append(completion)
            completion.run_callbacks(_threw)

    def with_lane(self) -> Self:
        """Let a lane send from now on (`lend_once`)."""
        self.engine.open_loans(self._complete)
        return self

    def lend_once(self, size_bytes: int = 2**31) -> None:
        """Let the lane write that many bytes to each node, and run the sender afterwards."""
        lane = self.engine.lend(_descriptor_of, self.now_ns)
        assert lane is not None
        self._step(lane, size_bytes)
        self.engine.take_back(self.now_ns)
        self.run()

    def _step(self, lane: Lane, size_bytes: int, *, was_rung: bool = True) -> int:
        """Let the lane write that many bytes, and return when there may be more: 0 is now."""
        look_ns = lane.step(self.now_ns, was_rung=was_rung)
        for link in self.links.values():
            data = lane.unsent(link.connection_id)[:size_bytes]
            if not data:
                continue
            link.received += data
            for frame in link.frames():
                self._arrive(self._read(link, codec.decode_request(frame)))
            lane.handed(link.connection_id, len(data))
            lane.written(link.connection_id, len(data), self.now_ns)
        return look_ns if look_ns > self.now_ns else 0

    def advance(self, duration_ms: float) -> None:
        """Let time pass, deadline by deadline."""
        end_ns = self.now_ns + int(duration_ms * MS)
        for _ in range(5000):
            deadline_ns = self.engine.deadline_ns(self.now_ns)
            if deadline_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, deadline_ns)
            self.run()
        else:
            raise AssertionError("a deadline that is not met: the sender would spin")
        self.now_ns = end_ns
        self.run()

    def back_off(self) -> None:
        """Advance until retried batches were sent."""
        self.advance(BACKOFF_MS)

    # The engine's actions

    def _resolve(self, action: Resolve) -> None:
        number = 9 if action.host == "boot" else int(action.host[1:])
        if self.resolves:
            self.engine.handle_resolved(action.host, action.port, [address(number)], self.now_ns)

    def _connect(self, action: Connect) -> None:
        if action.node_id in self.unreachable:
            self.engine.handle_closed(action.connection_id, self.refusal, self.now_ns)
        else:
            self.links[action.connection_id] = Link(action)
            self.engine.handle_connected(action.connection_id, self.now_ns)

    def _take(self, action: Write) -> None:
        link = self.links[action.connection_id]
        link.pending.extend(action.buffers)
        if self.writes_at_once:
            self._write(link, 2**31)

    def _close(self, action: Close) -> None:
        if action.connection_id in self.links:
            self._end(self.links[action.connection_id])

    def _seal(self, action: Seal) -> None:
        self.unsealed.append(action.batch)
        if self.seals_at_once:
            self.seal()

    def seal(self) -> None:
        """Seal the batches that the sender left to other threads."""
        while self.unsealed:
            self.unsealed.pop().seal()

    # Requests to nodes

    def _read(self, link: Link, request: codec.Request) -> Asked:
        is_produce = isinstance(request.message, messages.ProduceRequest)
        return Asked(link, request, self._batches(request.message) if is_produce else [])

    def _arrive(self, asked: Asked) -> None:
        link, message = asked.link, asked.request.message
        name = type(message).__name__.removesuffix("Request")
        self.asked[name] += 1
        self.sent += asked.batches
        if name == "Produce" and self.config.acks == 0:
            return
        allowed = self.config.max_in_flight_requests_per_connection
        assert len(link.unanswered) < allowed
        link.unanswered.append(asked)
        self._serve(link)
        if asked.batches:
            self.waiting_requests.append(asked)
        if asked.batches and self.config.enable_idempotence:
            unanswered = Counter(b.partition for a in self.waiting_requests for b in a.batches)
            assert max(unanswered.values()) <= allowed

    def _batches(self, message: Any) -> list[Sent]:
        found = []
        for topic in message.topic_data:
            for part in topic.partition_data:
                data = bytes(part.records)
                (batch,) = kbatch.decode(data, partial="raise")
                values = [bytes(record.value or b"") for record in batch]
                stamp = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
                name = values[0].rstrip(b".").decode()
                assert not self.is_done(name), "a batch is sent that is done"
                sent = Sent(name, part.index, len(values), stamp, data)
                if stamp[0] >= 0:
                    same = self._bytes.setdefault((part.index, stamp), data)
                    assert same == data, "the same sequence with other bytes"
                found.append(sent)
        return found

    def _answer_at_once(self, asked: Asked) -> None:
        message = asked.request.message
        if isinstance(message, messages.ApiVersionsRequest):
            offered = {**self._versions, **self.node_versions.get(asked.link.node_id, {})}
            self._give(asked, versions_answer({key: each for key, each in offered.items() if each}))
        elif isinstance(message, messages.MetadataRequest):
            asked.is_held = self.metadata_waits
            if not asked.is_held:
                self._give(asked, self._metadata(message))
        else:
            self._answer_identity(
                asked, self.identities.popleft() if self.identities else self._new_identity()
            )

    def _answer_identity(self, asked: Asked, identity: Any) -> None:
        asked.is_held = identity == "wait"
        if identity == "drop":
            self._end(asked.link)
            error = ConnectionResetError("dropped")
            self.engine.handle_closed(asked.link.connection_id, error, self.now_ns)
        elif not asked.is_held:
            self._give(asked, _identity_answer(identity))

    def _new_identity(self) -> tuple[int, int]:
        self._next_producer_id += 1
        return self._next_producer_id - 1, 0

    def _metadata(self, request: Any) -> Any:
        kind = messages.MetadataResponse
        topic, partition = kind.MetadataResponseTopic, kind.MetadataResponsePartition
        partitions = [
            partition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                error_code=OK if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            )
            for index, (leader, epoch) in enumerate(zip(self.leaders, self.leader_epochs, strict=True))
        ]
        known = topic(name=TOPIC, topic_id=self.topic_id, partitions=partitions)
        return kind(
            brokers=[
                kind.MetadataResponseBroker(node_id=node, host=f"n{node}", port=9092) for node in self.nodes
            ],
            topics=[known for asked in request.topics or () if asked.name == TOPIC],
        )


_PERFORM: dict[type, Callable[[Sending, Any], None]] = {
    Resolve: Sending._resolve,
    Connect: Sending._connect,
    Write: Sending._take,
    Close: Sending._close,
    Seal: Sending._seal,
}


class InTurns(Sending):
    """A sender that lends its connections to a lane whenever it has nothing to do."""

    _has_lane = False

    def warmed(self) -> Self:
        self._has_lane = True
        return self.with_lane() and super().warmed()

    def run(self) -> None:
        super().run()
        for number in range(100):
            lane = self._lend()
            if lane is None:
                return
            look_ns = self._step(lane, 2**31, was_rung=number == 0)
            self.engine.take_back(self.now_ns)
            super().run()
            if look_ns:
                return
        raise AssertionError("there is always something to do: the lane spins")

    def _lend(self) -> Lane | None:
        return self.engine.lend(_descriptor_of, self.now_ns) if self._has_lane else None

    def _receive(self, link: Link, frame: bytes) -> None:
        lane = self._lend()
        is_lanes = lane is not None and lane.received(link.connection_id, frame, self.now_ns)
        if lane is not None:
            self.engine.take_back(self.now_ns)
        if not is_lanes:
            super()._receive(link, frame)


def _descriptor_of(connection_id: int) -> int:
    return -1  # bytes go by hand


def _reply(reply: int | Reply) -> Reply:
    return reply if isinstance(reply, Reply) else Reply(reply)


def _identity_answer(identity: int | tuple[int, int]) -> Any:
    kind = messages.InitProducerIdResponse
    if isinstance(identity, int):
        return kind(error_code=identity, producer_id=-1, producer_epoch=-1)
    return kind(error_code=OK, producer_id=identity[0], producer_epoch=identity[1])


def _threw(callback: Callable[..., object], error: Exception) -> None:
    raise error
