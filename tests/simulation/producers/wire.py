"""Checks of what a producer writes to its connections, at the moment of writing.

Theory of operation. The network reports to the Wire each request when the producer hands it over, each
answer before the producer gets it, and the end of each connection. The Wire keeps unanswered requests by
connection and by partition. It notes for each batch where its records were sent, under which sequence and
with which bytes, and whether an attempt may have been appended.

An attempt may have been appended if any of its bytes reached the socket and it got no answer, or one that
leaves it open. Such a batch must keep its sequence and its bytes for good.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import decode
from kbatch.errors import ErrorCode, KafkaError, row_of
from kbatch.protocol import codec, messages
from tests.simulation.world.fate import NAMES
from tests.simulation.world.network import ClientHost, Receiver, whole_requests
from tests.simulation.world.replicas.faults import REPLICA_HAPPENINGS
from tests.simulation.world.schedule import MS, LastSecond
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch.config import ProducerConfig
    from kbatch.core.producer.engine import ProducerEngine

REMEMBERED_BATCHES = 5  # by a broker, of each producer id
# With these errors a batch may have a new leader, and goes to it without a back-off (KIP-951).
LEADER_FAULTS = frozenset(
    {
        "forget",
        "move_leader",
        "leave_leaderless",
        "stop_node",
        "recreate",
        "stale metadata",
        "fail_over",
        "elect_unclean",
        *REPLICA_HAPPENINGS,
    }
)
NEVER = 2**63 - 1
QUESTIONS_A_SECOND, LEAST_BACKOFF_MS = 150, 10  # Metadata or InitProducerId; with which retry.backoff.ms
# With these answers a broker confirms that it has the batch.
CONFIRMED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
# With these errors earlier records are gone with the topic.
GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
LOGIN = (messages.SaslHandshakeRequest, messages.SaslAuthenticateRequest)
NOT_APPENDED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
Key = tuple[int, int, int]  # producer id, epoch, base sequence


def record_number(record: Record) -> int:
    """Return the number of a record: each value begins with it; without a value, the key ends with it."""
    value, key = record.value, record.key
    if value is None:
        assert isinstance(key, bytes)
        return int.from_bytes(key[-4:], "big")
    assert isinstance(value, bytes)
    return int.from_bytes(value[:4], "big")


class Leader(NamedTuple):
    """The leader of a partition and the producer id, as the producer knows them."""

    node_id: int
    leader_epoch: int
    topic_id: bytes
    producer_id: int


@dataclass(slots=True)
class SentBatch:
    """A batch of a request: the numbers of its records, and its bytes."""

    topic: str
    topic_id: bytes
    partition: int
    key: Key
    numbers: tuple[int, ...]
    data: bytes
    is_new: bool
    leader: Leader | None = None  # that it was sent to

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(slots=True)
class SentRequest:
    """A request without an answer."""

    correlation_id: int
    api_key: int
    version: int
    sent_ns: int
    start: int  # in the connection's stream
    size: int
    expects_answer: bool
    batches: list[SentBatch] = field(default_factory=list)


class ConnectionWatch:
    """A connection as the Wire sees it."""

    __slots__ = (
        "handed_bytes",
        "is_logging_in",
        "is_open",
        "is_ready",
        "node_id",
        "session_end_ns",
        "throttled_until_ns",
        "unanswered",
        "written_bytes",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_open = False
        self.is_ready = False
        self.is_logging_in = False
        self.session_end_ns = NEVER
        self.throttled_until_ns = -1
        self.handed_bytes = 0
        self.written_bytes = 0
        self.unanswered: deque[SentRequest] = deque()


class Judged(Receiver, Protocol):
    """The application of a producer."""

    def check_partition(self, number: int, topic: str, partition: int) -> None: ...

    def is_settled(self, number: int) -> bool: ...

    def in_callback(self) -> bool: ...


class Host(ClientHost, Protocol):
    """A producer and its surroundings: a World, or one of several Clients."""

    @property
    def config(self) -> ProducerConfig: ...

    @property
    def engine(self) -> ProducerEngine: ...

    @property
    def application(self) -> Judged: ...


class Wire:
    """The judge of a world's requests."""

    def __init__(self, world: Host) -> None:
        settings = world.options.settings
        self._world = world
        self._is_idempotent = settings.get("enable.idempotence", True)
        self._may_resend = settings.get("kbatch.sequence.gap") == "resend"
        self._max_in_flight = settings["max.in.flight.requests.per.connection"]
        self.connections: dict[int, ConnectionWatch] = {}
        # for each unanswered request with the partition, its node
        self._in_flight: dict[tuple[str, int], list[int]] = {}
        self._sent_ns: dict[tuple[str, int], int] = {}  # when the partition was sent to last
        # when the last acknowledged batch was sent, and to which leader
        self._acknowledged: dict[tuple[str, int], tuple[int, Leader | None]] = {}
        self._unsettled: dict[tuple[str, int], dict[int, SentBatch]] = {}  # by their first number
        self._last_key: dict[int, Key] = {}  # by record
        self._bytes: dict[tuple[str, int, Key], bytes] = {}
        self.ambiguous: set[int] = set()  # records some attempt of which may have been appended
        self._ambiguous_in: dict[int, bytes] = {}  # the id of the topic such a record was for
        self.sent: set[int] = set()  # records that were handed over
        self.confirmed: set[int] = set()  # records that a broker said it has, before they were settled
        self._refused_ns: dict[int, int] = {}  # by first record: when it got an error that is retried
        self._asked: dict[type, LastSecond] = defaultdict(LastSecond)

    # Requests

    def connected(self, connection_id: int, node_id: int) -> None:
        self.connections[connection_id] = ConnectionWatch(node_id)

    def opened(self, connection_id: int) -> None:
        self.connections[connection_id].is_open = True

    def handed_over(self, connection_id: int, data: bytes) -> None:
        """Check the requests of one Write; it holds whole requests."""
        connection = self.connections[connection_id]
        if not connection.is_open:
            raise Violation(f"connection {connection_id} is written to before it is open")
        for frame in whole_requests(connection_id, data):
            self._request(connection_id, connection, frame)

    def _request(self, connection_id: int, connection: ConnectionWatch, frame: bytes) -> None:
        try:
            request = codec.decode_request(frame)
        except KafkaError as error:
            raise Violation(f"a request that cannot be read: {error}") from error
        kind = type(request.message)
        now_ns = self._world.schedule.now_ns
        if fault := self._fault(connection, kind, now_ns):
            raise Violation(f"{kind.__name__} on connection {connection_id}{fault}")
        if kind is messages.SaslHandshakeRequest:
            connection.is_logging_in = True
        self._count(kind, now_ns)
        sent = SentRequest(
            request.correlation_id,
            request.api_key,
            request.version,
            now_ns,
            connection.handed_bytes,
            len(frame) + 4,
            expects_answer=getattr(request.message, "acks", -1) != 0,
        )
        connection.handed_bytes += sent.size
        if kind is messages.ProduceRequest:
            self._produce(sent, request.message)
        else:
            self._question(request.message)
        self._world.trace(
            "-> node %s: %s v%d #%d on connection %d%s",
            connection.node_id,
            NAMES[request.api_key],
            request.version,
            request.correlation_id,
            connection_id,
            Described(sent.batches),
        )
        connection.unanswered.append(sent)
        if kind not in LOGIN and len(connection.unanswered) > self._max_in_flight:
            raise Violation(f"{len(connection.unanswered)} requests in flight on connection {connection_id}")
        for batch in sent.batches:
            self._check_in_flight(batch, connection.node_id)

    def _fault(self, connection: ConnectionWatch, kind: type, now_ns: int) -> str:
        """Return why a request must not be sent now; empty if it may be."""
        if connection.is_logging_in:
            is_token = kind is messages.SaslAuthenticateRequest
            return "" if is_token else " between the handshake and the last answer"
        if kind in LOGIN:
            return "" if kind is messages.SaslHandshakeRequest else " without a handshake"
        if not connection.is_ready and kind is not messages.ApiVersionsRequest:
            return " before it is ready"
        if now_ns > connection.session_end_ns:
            return ", whose session is over"
        return ", which is throttled" if now_ns < connection.throttled_until_ns else ""

    def _count(self, kind: type, now_ns: int) -> None:
        """Check that requests for metadata or producer ids are repeated after a back-off only."""
        if kind is messages.ProduceRequest or self._world.config.retry_backoff_ms < LEAST_BACKOFF_MS:
            return
        if (count := self._asked[kind].count(now_ns)) > QUESTIONS_A_SECOND:
            raise Violation(f"{kind.__name__} was sent {count} times in a second")

    def _question(self, message: Any) -> None:
        """Note that a request other than Produce is about to be sent."""

    def _response(self, message: Any) -> None:
        """Note the answer to a request other than Produce."""

    def _produce(self, sent: SentRequest, message: Any) -> None:
        for topic in message.topic_data:
            name = topic.name or self._world.cluster.name_of(bytes(topic.topic_id))
            for each in topic.partition_data:
                sent.batches.append(self._batch(name, bytes(topic.topic_id), each.index, each.records))
        partitions = [batch.topic_partition for batch in sent.batches]
        if len(partitions) != len(set(partitions)):
            raise Violation(f"one request has two batches of a partition: {partitions}")

    def _batch(self, topic: str, topic_id: bytes, partition: int, data: Any) -> SentBatch:
        try:
            (read,) = decode(data, partial="raise")
            numbers = tuple(record_number(record) for record in read)
        except (KafkaError, ValueError) as error:
            raise Violation(f"a batch of {topic}-{partition} that cannot be read: {error}") from error
        key = (read.producer_id, read.producer_epoch, read.base_sequence)
        batch = SentBatch(topic, topic_id, partition, key, numbers, bytes(data), numbers[0] not in self.sent)
        for number in numbers:
            self._world.application.check_partition(number, topic, partition)
        if self._is_idempotent:
            self._check_sequence(batch)
        elif key != (-1, -1, -1):
            raise Violation(f"a batch has {key} without idempotence")
        self._check_back_off(batch)
        self.sent.update(numbers)
        return batch

    def _check_back_off(self, batch: SentBatch) -> None:
        """Check that refused batches are retried after retry.backoff.ms, less 20 %."""
        refused_ns = self._refused_ns.pop(batch.numbers[0], None)
        if refused_ns is None or LEADER_FAULTS & self._world.faults.counts.keys():
            return
        waited_ns = self._world.schedule.now_ns - refused_ns
        if waited_ns < 0.8 * self._world.config.retry_backoff_ms * MS - 1:
            raise Violation(f"records {batch.numbers} are retried after {waited_ns / MS} ms")

    def _check_sequence(self, batch: SentBatch) -> None:
        """Check that an ambiguous batch keeps its sequence, and that no sequence has two contents."""
        if min(batch.key) < 0:
            raise Violation(f"a batch of {batch.topic}-{batch.partition} has no sequence: {batch.key}")
        first = batch.numbers[0]
        before = self._last_key.get(first)
        is_kept = self._ambiguous_in.get(first) == batch.topic_id and not self._may_resend
        if is_kept and before is not None and before != batch.key:
            raise Violation(f"record {first} may be in the log as {before}, and is sent again as {batch.key}")
        sequence = (batch.topic, batch.partition, batch.key)
        known = self._bytes.setdefault(sequence, batch.data)
        if known != batch.data:
            raise Violation(f"{sequence} was sent with other bytes before: records {batch.numbers} now")
        for offset, number in enumerate(batch.numbers):
            self._last_key[number] = (*batch.key[:2], (batch.key[2] + offset) & 0x7FFFFFFF)

    def _check_in_flight(self, batch: SentBatch, node_id: int) -> None:
        nodes = self._in_flight.setdefault(batch.topic_partition, [])
        nodes.append(node_id)
        batch.leader = self._leader_of(batch, node_id)
        self._sent_ns[batch.topic_partition] = self._world.schedule.now_ns
        count = len(nodes)
        where = f"{batch.topic}-{batch.partition}"
        if self._max_in_flight == 1 and count > 1:
            raise Violation(f"{where} is muted, but was sent records {batch.numbers}")
        if not self._is_idempotent:
            return
        if batch.is_new and set(nodes) != {node_id}:
            raise Violation(
                f"{where}: new records {batch.numbers} go to node {node_id} before {nodes} answer"
            )
        if batch.is_new and count > 1 and not self._is_known(batch):
            raise Violation(
                f"{where}: records {batch.numbers} follow others to a leader that may know nothing"
            )
        limit = min(self._max_in_flight, REMEMBERED_BATCHES)
        if count > limit:
            raise Violation(f"{where} has {count} unanswered batches; {limit} are allowed")
        unsettled = self._unsettled.setdefault(batch.topic_partition, {})
        for first in [first for first in unsettled if self._world.application.is_settled(first)]:
            del unsettled[first]
        unsettled[batch.numbers[0]] = batch
        if batch.is_new and len(unsettled) > limit:  # one that is split becomes more, in the same numbers
            raise Violation(f"{where} has {len(unsettled)} batches that are not settled; {limit} are allowed")

    def _is_known(self, batch: SentBatch) -> bool:
        """True if the leader acknowledged a batch of the same epoch and topic within
        kbatch.sequence.idle.ms.
        """
        sent_ns, leader = self._acknowledged.get(batch.topic_partition, (0, None))
        oldest_ns = self._world.schedule.now_ns - self._world.config.kbatch_sequence_idle_ms * MS
        return sent_ns > oldest_ns and leader == batch.leader

    def _leader_of(self, batch: SentBatch, node_id: int) -> Leader:
        topic = self._world.engine.snapshot.topics.get(batch.topic)
        if topic is None or batch.partition >= len(topic.partitions):
            return Leader(node_id, -1, b"", batch.key[0])
        return Leader(node_id, topic.partitions[batch.partition].leader_epoch, topic.topic_id, batch.key[0])

    # Answers

    def written(self, connection_id: int, size: int) -> None:
        """Note bytes that reached the socket. A request without an answer is done when it is written."""
        connection = self.connections[connection_id]
        connection.written_bytes += size
        for request in [each for each in connection.unanswered if not each.expects_answer]:
            if connection.written_bytes >= request.start + request.size:
                connection.unanswered.remove(request)
                self._over(connection, request, ambiguous=True)

    def answered(self, connection_id: int, frame: bytes) -> None:
        """Note a whole answer that the producer is about to get."""
        connection = self.connections[connection_id]
        if not connection.unanswered:
            raise AssertionError(f"connection {connection_id} got an answer to nothing")
        request = connection.unanswered.popleft()
        kind = messages.REQUESTS[request.api_key]
        if kind is messages.ApiVersionsRequest and self._world.options.login is None:
            connection.is_ready = True
        response: Any
        _, response = codec.decode_response(kind.response, request.version, frame)
        if kind is messages.SaslAuthenticateRequest and not response.error_code:
            self._logged_in(connection, response.session_lifetime_ms)
        throttled_ns = getattr(response, "throttle_time_ms", 0) * MS
        connection.throttled_until_ns = self._world.schedule.now_ns + throttled_ns
        if kind is not messages.ProduceRequest:
            self._world.trace("<- node %s: #%d", connection.node_id, request.correlation_id)
            self._response(response)
            return
        codes = {
            (topic.name or self._world.cluster.name_of(bytes(topic.topic_id)), answer.index): (
                answer.error_code,
                answer.base_offset,
            )
            for topic in response.responses
            for answer in topic.partition_responses
        }
        self._world.trace("<- node %s: #%d %s", connection.node_id, request.correlation_id, codes)
        for batch in request.batches:
            code, _ = codes.pop(batch.topic_partition)
            self._in_flight[batch.topic_partition].remove(connection.node_id)
            if code in CONFIRMED:
                self._acknowledged[batch.topic_partition] = request.sent_ns, batch.leader
                if not self._world.application.is_settled(batch.numbers[0]):
                    self.confirmed.update(batch.numbers)
            # batches that wait for the previous transaction are retried sooner
            if code and row_of(code).retriable and code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self._refused_ns[batch.numbers[0]] = self._world.schedule.now_ns
            if code and row_of(code).possibly_persisted and code not in GONE:
                self._note_ambiguous(batch)
            elif code in NOT_APPENDED and not self._may_be_in(batch):
                # it may be split (its first part keeps the sequence), or be renumbered in a transaction
                self._bytes.pop((batch.topic, batch.partition, batch.key), None)

    def _logged_in(self, connection: ConnectionWatch, lifetime_ms: int) -> None:
        """Note that a token of PLAIN was accepted: the session is no older than its answer."""
        connection.is_logging_in, connection.is_ready = False, True
        now_ns = self._world.schedule.now_ns
        connection.session_end_ns = now_ns + lifetime_ms * MS if lifetime_ms else NEVER

    def ended(self, connection_id: int) -> None:
        """Note that the producer closed the connection, or learned that it was closed."""
        connection = self.connections.pop(connection_id, None)
        for request in connection.unanswered if connection is not None else ():
            assert connection is not None
            self._over(connection, request, ambiguous=connection.written_bytes > request.start)

    def _over(self, connection: ConnectionWatch, request: SentRequest, *, ambiguous: bool) -> None:
        for batch in request.batches:
            self._in_flight[batch.topic_partition].remove(connection.node_id)
            if ambiguous:
                self._note_ambiguous(batch)

    def _may_be_in(self, batch: SentBatch) -> bool:
        """True if an earlier attempt may be in the log; not in one of a topic that was made anew since."""
        return any(self._ambiguous_in.get(number) == batch.topic_id for number in batch.numbers)

    def _note_ambiguous(self, batch: SentBatch) -> None:
        self.ambiguous.update(batch.numbers)
        self._ambiguous_in.update(dict.fromkeys(batch.numbers, batch.topic_id))

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        """True if no batch of the partition is in flight or may be sent again; with `is_idle`, for long."""
        unsettled = self._unsettled.get(topic_partition, {})
        if self._in_flight.get(topic_partition) or not all(
            map(self._world.application.is_settled, unsettled)
        ):
            return False
        idle_ns = self._world.config.kbatch_sequence_idle_ms * MS if is_idle else 0
        return self._world.schedule.now_ns - self._sent_ns.get(topic_partition, 0) >= idle_ns


class Described:
    """Batches in a line of the trace, formatted when it is read."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[SentBatch]) -> None:
        self.batches = batches

    def __str__(self) -> str:
        return "".join(
            f" [{batch.topic}-{batch.partition} {'/'.join(map(str, batch.key))} records "
            f"{','.join(map(str, batch.numbers))}]"
            for batch in self.batches
        )
